"""Hooks and fixtures of all tests: the seed, Hypothesis profiles, and a check that a run leaves the checkout clean."""

from __future__ import annotations

import gc
import getpass
import itertools
import os
import random
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.workermanage import WorkerController

ROOT = Path(__file__).parent
UNIT = ROOT / "tests/unit"
_NUMBERS = itertools.count()
LEFT_BY_TOOLS = {
    ".hypothesis",
    ".power",
    ".import_linter_cache",
    ".mypy_cache",
    ".pytest_cache",
    ".reports",
    "build",
    ".ruff_cache",
    "__pycache__",
}

# A shell lets its background processes ignore Ctrl-C, and so would all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The id of a container's user can lack a name, which clients of HDFS send.
try:
    getpass.getuser()
except (KeyError, OSError):
    os.environ["LOGNAME"] = "tests"

# The servers of tests are on this machine.
for _variable in ("no_proxy", "NO_PROXY"):
    os.environ[_variable] = ",".join(filter(None, [os.environ.get(_variable), "localhost", "127.0.0.1"]))

# No deadlines: the machine may be busy. `ci` and `few` repeat the same examples in every run; `few` is for runs that
# repeat tests elsewhere. `thorough` is for `make long`.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
DEFAULT = hypothesis.settings.get_profile("default")
hypothesis.settings.register_profile("ci", parent=DEFAULT, derandomize=True, max_examples=30)
hypothesis.settings.register_profile("few", parent=DEFAULT, derandomize=True, max_examples=10)
hypothesis.settings.register_profile("thorough", parent=DEFAULT, max_examples=500)
hypothesis.settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="repeat the run that printed this seed")
    choices = ("hints", "ranges", "either")
    parser.addoption("--cases", type=float, default=1, help="of each slow unit test, run this share of its parameters")
    parser.addoption("--without", choices=choices, help="delete such files before each step; either: what is drawn")


@pytest.hookimpl(trylast=True)  # after the marks have selected the tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a share of the cases of each slow unit test, drawn by the seed, and the cases that mutants name.

    At least one case of each test is kept.
    """
    if config.option.cases >= 1:
        return
    from tests.mutants.mutant import mutants

    named = {test for mutant in mutants() for test in mutant.tests}
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("slow") and UNIT in item.path.parents:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for test, cases in tests.items():
        count = max(1, round(config.option.cases * len(cases)))
        drawn = random.Random(f"{config.option.seed} {test}").sample(cases, count)
        left_out |= {case for case in cases if case not in drawn and case.nodeid not in named}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Exclude the loaded modules and thousands of collected tests from garbage collection, and collect seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its seed
def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is not None and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)
    inherited = getattr(config, "workerinput", {}).get("seed", config.option.seed)
    config.option.seed = random.SystemRandom().getrandbits(32) if inherited is None else inherited
    if config.option.without is not None:
        config.pluginmanager.import_plugin("tests.without")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Give each worker of xdist the seed of the run."""
    node.workerinput["seed"] = node.config.option.seed


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Delete the report of an interrupted run, so that the next run repeats all tests."""
    config = session.config
    if exitstatus > pytest.ExitCode.TESTS_FAILED and not hasattr(config, "workerinput") and config.option.xmlpath:
        Path(config.option.xmlpath).unlink(missing_ok=True)
        if config.cache is not None:
            config.cache.set("cache/lastfailed", {})


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Repeat tests of `short_limits` that failed while the machine was stalled."""
    if pyfuncitem.get_closest_marker("short_limits") is None:
        return None
    from tests.kit.stalls import run_in_peace

    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}  # noqa: SLF001
    run_in_peace(lambda: pyfuncitem.obj(**arguments))
    return True


def pytest_report_header(config: pytest.Config) -> str:
    return f"repeat with: --seed={config.option.seed}"


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new directory. Pytest's fixture lists the directories of all earlier tests each time to find a number."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    path = tmp_path_factory.getbasetemp() / f"{next(_NUMBERS)}-{name}"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run, for every generator that a test creates: `random.Random(seed)`."""
    number: int = request.config.option.seed
    return number


@pytest.fixture(scope="session", autouse=True)
def checkout_stays_clean() -> Iterator[None]:
    """Fail a run that leaves a file in the checkout: tests write only below `tmp_path`."""
    before = set(ROOT.iterdir())
    yield
    # Other make targets may have created their environments meanwhile.
    new = {path.name for path in set(ROOT.iterdir()) - before if not path.name.startswith(".venv")}
    left = new - LEFT_BY_TOOLS
    assert not left, f"the tests left {sorted(left)} in the checkout"
