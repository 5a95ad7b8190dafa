"""One mistake on trial: a copy of the code with it, and its tests run against the copy.

To start Python and pytest and to import pyarrow takes longer than most tests that catch a mistake: a process that has
imported all of it, but for the code under test, forks for each run.
"""

from __future__ import annotations

import compileall
import importlib
import importlib.util
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.mutants.mutant import ROOT, NotMadeError, change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.mutant import Mutant

TIMEOUT_S = 900
FORKS = multiprocessing.get_context("forkserver")
# What is missing here is imported by the tests that need it.
FORKS.set_forkserver_preload(
    [
        *("_pytest.config", "_pytest.python", "pytest", "xdist", "hypothesis", "unittest.mock"),
        *("hypothesis.strategies", "arro3.io", "cryptography.hazmat.primitives.ciphers.aead", "fsspec", "numpy"),
        *("isal.isal_zlib", "lz4.frame", "pyarrow.dataset", "pyarrow.ipc", "pyarrow.orc", "pyarrow.parquet"),
        *("pyspark.sql.datasource", "requests"),
    ]
)


class Outcome(NamedTuple):
    """How a trial ended.

    Attributes:
        verdict: `broken` when the mistake could not be made, or the tests could not be run.
        told: the test that caught it, how their process ended, or what went wrong.
    """

    name: str
    verdict: Literal["caught", "survived", "broken"]
    told: str
    seconds: float


class Run(NamedTuple):
    """How a run of tests ended: the exit code of pytest, None where it took too long, and what was printed."""

    exit_code: int | None
    output: str


def try_mutant(mutant: Mutant, code: Path, folder: Path) -> Outcome:
    """Make the mistake in a copy of the code and run its tests until one fails.

    Args:
        mutant: the mistake.
        code: a copy without it, as `compiled_copy` makes one.
        folder: where its own copy goes; must not exist.
    """
    began = time.monotonic()

    def outcome(verdict: Literal["caught", "survived", "broken"], told: str) -> Outcome:
        return Outcome(mutant.name, verdict, told, time.monotonic() - began)

    try:
        file, text = change(mutant)
    except NotMadeError as error:
        return outcome("broken", str(error))
    shutil.copytree(code / "src", folder / "src", copy_function=os.link)
    changed = folder / "src" / file
    for old in (changed, Path(importlib.util.cache_from_source(changed))):
        old.unlink()  # not the file of all copies
    changed.write_text(text)
    run = run_tests(mutant.tests, folder)
    caught = re.search(r"^FAILED (.*?)(?: - .*)?$", run.output, re.MULTILINE)
    if run.exit_code == 1 and caught:
        return outcome("caught", caught[1])
    if run.exit_code in {-signal.SIGABRT, -signal.SIGSEGV}:
        return outcome("caught", f"the process of its tests ended by {signal.Signals(-run.exit_code).name}")
    if run.exit_code == 0:
        return outcome("survived", "all of its tests passed")
    return outcome("broken", f"exit code {run.exit_code}: {run.output[-2000:]}")


def compiled_copy(folder: Path) -> Path:
    """Copy the code to `folder/src`, compile what was not yet, and return `folder`."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc.*"))  # which come and go
    compileall.compile_dir(folder / "src", quiet=1)
    return folder


def run_tests(tests: Sequence[str], folder: Path, timeout_s: float = TIMEOUT_S) -> Run:
    """Run tests of this checkout against the code in `folder`, up to the first failure."""
    process = FORKS.Process(target=_run_here, args=(list(tests), folder))
    process.start()
    process.join(timeout_s)
    exit_code = process.exitcode
    process.kill()
    process.join()
    output = folder / "output"
    return Run(exit_code, output.read_text() if output.exists() else "")


def _run_here(tests: list[str], folder: Path) -> None:
    """Run pytest in this process and end it."""
    with (folder / "output").open("w") as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    code: int = 70
    try:
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = str(folder / "src")
        os.environ["FTFILE_THOROUGH"] = "1"  # a mistake is caught under any seed
        sys.path.insert(0, str(folder / "src"))
        assert "ftfile" not in sys.modules
        found = importlib.util.find_spec("ftfile")
        assert found is not None
        assert Path(str(found.origin)).is_relative_to(folder), f"{found.origin} would be tested"
        import pytest

        # Modules that are imported already cannot be rewritten. A directory of its own for each run: runs side by side
        # would fail at clearing away each other's old ones.
        how = ["-x", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]
        code = pytest.main([*how, *tests])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
