"""Find the tests that execute each file, for `try.py`: `pytest -p contexts` measures, `contexts.py` writes the result.

As a plugin of pytest, the module records by coverage the executed lines of `src` and the time of each test, in files
below MEASURED, one for each process. As a program, it writes RESULT: the tests, and for each file the numbers of the
tests that execute a line of a function in it. Lines that are only executed by an import do not count.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "build/contexts.json"
MEASURED = ROOT / "build/contexts"


class Contexts:
    """The plugin of pytest. The running test is the context of the executed lines."""

    def __init__(self) -> None:
        MEASURED.mkdir(parents=True, exist_ok=True)
        data = str(MEASURED / f"lines.{os.getpid()}")
        self._coverage = coverage.Coverage(data, config_file=False, source=[str(ROOT / "src")], messages=False)
        self._coverage.start()
        self._seconds: dict[str, float] = defaultdict(float)
        self._modules: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Record all modules, also modules without selected tests."""
        self._modules = {item.nodeid.split("::")[0] for item in items}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure the lines that a test and its fixtures execute."""
        self._coverage.switch_context(item.nodeid)
        result = yield
        self._coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the time of a test."""
        self._seconds[report.nodeid] += report.duration

    def pytest_unconfigure(self) -> None:
        """Save the measurements."""
        self._coverage.stop()
        self._coverage.save()
        found = {"modules": sorted(self._modules), "seconds": self._seconds}
        (MEASURED / f"tests.{os.getpid()}.json").write_text(json.dumps(found))


def pytest_configure(config: pytest.Config) -> None:
    """Start before modules of `src` are imported."""
    config.pluginmanager.register(Contexts())


def lines_of_functions(source: str) -> set[int]:
    """Return the numbers of the lines in the bodies of functions."""
    functions = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return {line for node in functions for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)}


def main() -> None:
    """Write the result of the measurements of all processes."""
    runs = [json.loads(path.read_text()) for path in sorted(MEASURED.glob("tests.*.json"))]
    tests = [(test, round(seconds, 4)) for run in runs for test, seconds in run["seconds"].items()]
    numbers = {test: number for number, (test, _) in enumerate(tests)}
    measured = [coverage.CoverageData(str(path)) for path in sorted(MEASURED.glob("lines.*"))]
    for data in measured:
        data.read()
    files = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        lines = lines_of_functions(path.read_text())
        contexts = {
            context
            for data in measured
            for line, names in data.contexts_by_lineno(str(path)).items()
            if line in lines
            for context in names
        }
        files[str(path.relative_to(ROOT))] = sorted(numbers[context] for context in contexts & numbers.keys())
    modules = sorted({module for run in runs for module in run["modules"]})
    RESULT.write_text(json.dumps({"tests": tests, "modules": modules, "files": files}))
    print(f"{len(tests)} tests run {sum(map(bool, files.values()))} files: {RESULT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
