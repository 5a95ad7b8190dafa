"""A process that has imported what the tests need, but for the code under test, and forks for each run of them.

To start Python and pytest and to import pyarrow takes longer than most tests that catch a mistake.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
# What is missing here is imported by the tests that need it.
IMPORTED = (
    *("_pytest.config", "_pytest.junitxml", "_pytest.python", "pytest", "pytest_timeout", "xdist", "hypothesis"),
    *("hypothesis.strategies", "concurrent.futures", "logging", "unittest.mock", "urllib.request"),
    *("arro3.io", "cryptography.hazmat.primitives.ciphers.aead", "fsspec", "isal.isal_zlib", "lz4.frame", "numpy"),
    *("pyarrow.dataset", "pyarrow.ipc", "pyarrow.orc", "pyarrow.parquet", "pyspark.sql.datasource", "requests"),
)


@dataclass(frozen=True)
class Run:
    """How a run of tests ended.

    Attributes:
        exit_code: of pytest; negative after a signal.
        output: what was printed.
        code: where ftfile was taken from; None when pytest did not come to its end.
    """

    exit_code: int
    output: str
    code: Path | None


class WarmPython:
    """Runs pytest against a copy of the code, one run at a time; `close` it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        """Wait for the process to end."""
        self._process.communicate()

    def run(self, arguments: Sequence[str], folder: Path, timeout_s: int) -> Run:
        """Run pytest with `folder/src` before everything else on the path; SIGALRM ends what takes longer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), str(folder), timeout_s]) + "\n")
        self._process.stdin.flush()
        exit_code = int(self._process.stdout.readline())
        code = folder / "code"
        return Run(exit_code, (folder / "output").read_text(), Path(code.read_text()) if code.exists() else None)


def serve() -> None:
    """Read requests, one a line, and answer each with an exit code."""
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert "ftfile" not in sys.modules, "it would be tested without the mistake"
    for line in sys.stdin:
        arguments, folder, timeout_s = json.loads(line)
        child = os.fork()
        if child == 0:
            run_here(arguments, Path(folder), timeout_s)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run_here(arguments: list[str], folder: Path, timeout_s: int) -> NoReturn:
    """Run pytest in this process and end it."""
    with (folder / "output").open("w") as output, Path(os.devnull).open() as nothing:
        for number, file in enumerate((nothing, output, output)):
            os.dup2(file.fileno(), number)
    code: int = 1
    try:
        signal.alarm(timeout_s)
        random.seed()
        os.environ["PYTHONPATH"] = str(folder / "src")
        os.environ["FTFILE_THOROUGH"] = "1"  # a mistake is caught under any seed
        sys.path.insert(0, str(folder / "src"))
        import pytest

        # What is imported already cannot be rewritten. Nobody reads why a test failed, and with CI set pytest compares
        # long lists for minutes.
        code = pytest.main(["--assert=plain", *arguments])
        found = sys.modules.get("ftfile") or importlib.import_module("ftfile")
        (folder / "code").write_text(str(found.__file__))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
