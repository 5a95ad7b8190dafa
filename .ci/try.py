"""Run the tests that cover files, for a minute at most: `try.py [OPTION...] FILE...`, with options of pytest.

For a FILE below `src`, the program runs the quickest of the tests that `contexts.py` found, and tests that were added
to their modules since then. Before `contexts.py` has run, it runs the quick unit tests of the same folder. If FILE is a
module of tests, the program runs this module.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONTEXTS = ROOT / "build/contexts.json"
# Of the chosen tests, measured with coverage: without it, they take about half of this time. Tests that have not begun
# at the deadline are skipped.
TESTS_S = 60.0
DEADLINE_S = 50.0


class Choice(NamedTuple):
    """The tests to run.

    Attributes:
        whole: modules with all their tests.
        tests: other tests.
        known: all tests in the contexts; other tests in their modules are new.
        quick: modules with their quick tests.
    """

    whole: set[str]
    tests: set[str]
    known: set[str]
    quick: frozenset[str] = frozenset()

    @property
    def modules(self) -> list[str]:
        """Return the modules that pytest collects."""
        return sorted(self.whole | self.quick | {module_of(test) for test in self.tests})

    def has(self, item: pytest.Item) -> bool:
        """Return True for a chosen test."""
        if module_of(item.nodeid) in self.whole or item.nodeid in self.tests:
            return True
        return item.nodeid not in self.known and item.get_closest_marker("slow") is None


class Chosen:
    """A plugin of pytest that runs the chosen tests until the deadline."""

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._deadline_s = time.monotonic() + DEADLINE_S
        self.left_out = 0
        self.gone: set[str] = set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect the other tests of the same modules."""
        self.gone = self._choice.tests - {item.nodeid for item in items}
        config.hook.pytest_deselected(items=[item for item in items if not self._choice.has(item)])
        items[:] = filter(self._choice.has, items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        """Skip tests after the deadline."""
        if time.monotonic() < self._deadline_s:
            return None
        self.left_out += 1
        return True


def module_of(test: str) -> str:
    """Return the path of a test's module."""
    return test.split("::", maxsplit=1)[0]


def fail(message: str) -> NoReturn:
    """Exit with an error."""
    sys.exit(f"make try: {message}")


def is_module_of_tests(file: str) -> bool:
    """Return True for a module that pytest collects."""
    return file.startswith("tests/") and Path(file).match("test_*.py")


def choose(files: list[str]) -> Choice:
    """Return the tests that cover files."""
    whole = {file for file in files if is_module_of_tests(file)}
    sources = [file for file in files if file not in whole]
    if not sources:
        return Choice(whole, set(), set())
    if not CONTEXTS.exists():
        quick = frozenset(module for file in sources for module in tests_of_folder(file))
        print(f"{len(quick)} modules of tests of the folder; `make contexts` (three minutes) finds those of a file")
        return Choice(whole, set(), set(), quick)
    contexts = json.loads(CONTEXTS.read_text())
    numbers: set[int] = set()
    for file in sources:
        if file not in contexts["files"]:
            fail(f"{file} is new since the contexts were made, or not below src: run `make contexts`")
        if not contexts["files"][file]:
            fail(f"no quick test runs a function of {file}")
        numbers |= set(contexts["files"][file])
    covering = [tuple(contexts["tests"][number]) for number in numbers]
    there = [(test, seconds) for test, seconds in covering if (ROOT / module_of(test)).exists()]
    tell_of_changes(contexts["modules"], len(covering) - len(there))
    if not there:
        fail("none of the tests that covered it is there any more: run `make contexts`")
    tests = quickest(there)
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(CONTEXTS.stat().st_mtime))
    print(f"{len(tests)} of {len(covering)} tests, the quickest, by the contexts of {made}", flush=True)
    return Choice(whole, tests, {test for test, _ in contexts["tests"]})


def tests_of_folder(file: str) -> list[str]:
    """Return the modules of unit tests for the folder of a file of `src`, or for its nearest parent with tests."""
    folder = (ROOT / "tests/unit").joinpath(*Path(file).parts[2:-1])  # without src and the package
    while not (modules := sorted(folder.glob("test_*.py"))) and folder != ROOT / "tests/unit":
        folder = folder.parent
    if not modules:
        fail(f"there are no unit tests for {file}")
    return [str(module.relative_to(ROOT)) for module in modules]


def quickest(tests: list[tuple[str, float]]) -> set[str]:
    """Return the quickest tests whose sum is within the time."""
    chosen: set[str] = set()
    total_s = 0.0
    for test, seconds in sorted(tests, key=lambda pair: pair[::-1]):
        total_s += seconds
        if chosen and total_s > TESTS_S:
            break
        chosen.add(test)
    return chosen


def tell_of_changes(modules: list[str], gone: int) -> None:
    """Print the differences between the contexts and the files."""
    if gone:
        print(f"{gone} tests are in modules that are gone: run `make contexts`")
    known = set(modules)
    new = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests/unit").rglob("test_*.py"))]
    new = [module for module in new if module not in known]
    if new:
        print(f"new modules of tests, not in the contexts, which you can name as FILE: {' '.join(new)}")


def main(words: list[str]) -> int:
    """Run the tests; return 0 if they passed."""
    options = [word for word in words if word.startswith("-")]
    paths = [Path(word).absolute() for word in words if word not in options]
    if not paths:
        fail('name a file or several: `make try FILE="src/ftfile/log/publish.py tests/unit/log/test_wal.py"`')
    for path in paths:
        if not path.is_file() or not path.is_relative_to(ROOT):
            fail(f"there is no file {path}")
    names = [str(path.relative_to(ROOT)) for path in paths]
    for name in names:
        if not is_module_of_tests(name) and not name.startswith("src/"):
            fail(f"{name} is neither below src nor a module of tests")
    choice = choose(names)
    chosen = Chosen(choice)
    code = pytest.main(["-o", "cache_dir=.reports/cache/try", *options, *choice.modules], plugins=[chosen])
    if chosen.left_out:
        print(f"the time is over: {chosen.left_out} tests were left out")
    if chosen.gone:
        print(f"{len(chosen.gone)} tests are gone, such as {min(chosen.gone)}: run `make contexts`")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
