"""One mistake on trial: a copy of the code with it, and the tests run against the copy."""

from __future__ import annotations

import compileall
import importlib.util
import os
import re
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.mutant import Mutant
    from tests.mutants.warm import Run, WarmPython

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


def try_mutant(mutant: Mutant, code: Path, folder: Path, python: WarmPython) -> Outcome:
    """Make the mistake in a copy of the code below `folder` and run its tests until one fails.

    Args:
        mutant: the mistake.
        code: a copy without it, as `compiled_copy` makes one.
        folder: where its own copy goes; must not exist.
        python: runs the tests.
    """
    began = time.monotonic()

    def outcome(verdict: Verdict, told: str) -> Outcome:
        return Outcome(mutant.name, verdict, told, time.monotonic() - began)

    text = (code / "src/ftfile" / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        return outcome("broken", f"{mutant.file} has the code to change {text.count(mutant.old)} times")
    changed_copy(code, folder, mutant.file, text.replace(mutant.old, mutant.new))
    run = run_tests(mutant.tests, folder, python)
    if run.exit_code == -signal.SIGALRM:
        return outcome("broken", f"the tests did not end in {TIMEOUT_S} s")
    if run.code is not None and not run.code.is_relative_to(folder):
        return outcome("broken", f"the tests run against {run.code} and not against the changed copy")
    caught = re.search(r"^FAILED (.*?)(?: - .*)?$", run.output, re.MULTILINE)
    if run.exit_code == 1 and caught:
        return outcome("caught", caught[1])
    if run.exit_code == 0:
        return outcome("survived", "all of its tests passed")
    return outcome("broken", run.output[-2000:])


def compiled_copy(folder: Path) -> Path:
    """Copy the code to `folder/src`, compile it, and return `folder`."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(folder / "src", quiet=1)
    return folder


def changed_copy(code: Path, folder: Path, file: str, text: str) -> None:
    """Make `folder/src` of the code, with another text in one file."""
    shutil.copytree(code / "src", folder / "src", copy_function=os.link)
    changed = folder / "src/ftfile" / file
    for old in (changed, Path(importlib.util.cache_from_source(changed))):
        old.unlink()  # not the file of all copies
    changed.write_text(text)


def run_tests(tests: Sequence[str], folder: Path, python: WarmPython) -> Run:
    """Run tests of this checkout against the code in `folder`, up to the first failure."""
    # A directory of its own: runs side by side would fail at clearing away each other's old ones.
    how = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}"]
    return python.run([*how, *tests], folder, TIMEOUT_S)
