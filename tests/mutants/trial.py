"""The trial of a mistake: a copy of the code with the mistake, and a run of its tests against the copy.

Starting Python and pytest and importing pyarrow takes longer than most tests that catch a mistake. Therefore a process
that has imported everything except the code under test forks for each run.
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
# Tests import all other modules that they need.
FORKS.set_forkserver_preload(
    [
        *("_pytest.config", "_pytest.python", "pytest", "xdist", "hypothesis", "unittest.mock"),
        *("hypothesis.strategies", "arro3.io", "cryptography.hazmat.primitives.ciphers.aead", "fsspec", "numpy"),
        *("isal.isal_zlib", "lz4.frame", "pyarrow.dataset", "pyarrow.ipc", "pyarrow.orc", "pyarrow.parquet"),
        *("pyspark.sql.datasource", "requests"),
    ]
)


class Outcome(NamedTuple):
    """The outcome of a trial.

    Attributes:
        verdict: `broken` if the mistake could not be made, or the tests could not be run.
        detail: the test that caught the mistake, how the process of the tests ended, or the error.
    """

    name: str
    verdict: Literal["caught", "survived", "broken"]
    detail: str
    seconds: float


class Run(NamedTuple):
    """The outcome of a run of tests: pytest's exit code, None after a timeout, and the printed output."""

    exit_code: int | None
    output: str


def try_mutant(mutant: Mutant, code: Path, folder: Path) -> Outcome:
    """Make the mistake in a copy of the code, and run its tests until the first failure.

    Args:
        mutant: the mistake.
        code: a copy without the mistake, from `compiled_copy`.
        folder: the directory of the copy with the mistake; it must not exist.
    """
    began = time.monotonic()

    def outcome(verdict: Literal["caught", "survived", "broken"], detail: str) -> Outcome:
        return Outcome(mutant.name, verdict, detail, time.monotonic() - began)

    try:
        file, text = change(mutant)
    except NotMadeError as error:
        return outcome("broken", str(error))
    shutil.copytree(code / "src", folder / "src", copy_function=os.link)
    changed = folder / "src" / file
    for old in (changed, Path(importlib.util.cache_from_source(changed))):
        old.unlink()  # the copies share the file by a hard link
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
    """Copy the code to `folder/src`, compile the modules that are not compiled yet, and return `folder`."""
    # temporary files of other compilers
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc.*"))
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
    """Run pytest in this process, and end the process."""
    with (folder / "output").open("w") as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    code: int = 70
    try:
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = str(folder / "src")
        os.environ["FTFILE_THOROUGH"] = "1"  # a mistake must be caught with every seed
        sys.path.insert(0, str(folder / "src"))
        assert "ftfile" not in sys.modules
        found = importlib.util.find_spec("ftfile")
        assert found is not None
        assert Path(str(found.origin)).is_relative_to(folder), f"{found.origin} would be tested"
        import pytest

        # Imported modules cannot be rewritten for assertions. Each run has a separate directory, because parallel runs
        # would fail when they delete old directories of each other.
        how = ["-x", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]
        code = pytest.main([*how, *tests])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
