"""One mistake on trial: a copy of the code with it, and the tests run against the copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 900

Verdict = Literal["caught", "survived", "broken", "sound"]


@dataclass(frozen=True)
class Outcome:
    """How a trial ended.

    Attributes:
        verdict: `broken` when the mistake could not be made, or the tests could not be run; `sound` when there was no
            mistake to be caught.
        told: the test that caught it, or what went wrong.
    """

    name: str
    verdict: Verdict
    told: str
    seconds: float

    @property
    def good(self) -> bool:
        """Say whether it is as it must be."""
        return self.verdict in {"caught", "sound"}


def try_mutant(mutant: Mutant, folder: Path) -> Outcome:
    """Make the mistake in a copy of the code below `folder` and run its tests until one fails."""
    began = time.monotonic()

    def outcome(verdict: Verdict, told: str) -> Outcome:
        return Outcome(mutant.name, verdict, told, time.monotonic() - began)

    copy_code(folder)
    patched = folder / "src/ftfile" / mutant.file
    text = patched.read_text()
    if text.count(mutant.old) != 1:
        return outcome("broken", f"{mutant.file} has the code to change {text.count(mutant.old)} times")
    patched.write_text(text.replace(mutant.old, mutant.new))
    try:
        run = run_tests(mutant.tests, folder)
    except subprocess.TimeoutExpired:
        return outcome("broken", f"the tests did not end in {TIMEOUT_S} s")
    caught = re.search(r"^FAILED (.*?)(?: - .*)?$", run.stdout, re.MULTILINE)
    if run.returncode == 1 and caught:
        return outcome("caught", caught[1])
    if run.returncode == 0:
        return outcome("survived", "all of its tests passed")
    return outcome("broken", (run.stdout + run.stderr)[-2000:])


def copy_code(folder: Path) -> None:
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))


def run_tests(tests: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run tests of this checkout against the code in `folder`, up to the first failure."""
    # Plain asserts: nobody reads why a test failed, and with CI set pytest compares long lists for minutes. A directory
    # of its own: runs side by side would fail at clearing away each other's old ones.
    how = ["-x", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]
    command = [sys.executable, "-m", "pytest", *how, *tests]
    environment = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["FTFILE_THOROUGH"] = "1"  # a mistake is caught under any seed
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def code_in_use(folder: Path) -> Path:
    """Return where a process that runs the tests takes ftfile from."""
    command = [sys.executable, "-c", "import ftfile; print(ftfile.__file__)"]
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return Path(run.stdout.strip())
