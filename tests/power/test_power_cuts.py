"""Disks that a power cut leaves on ext4, built from recorded block writes, are checked and recovered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.power.disks import missing
from tests.power.mistakes import MISTAKES

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
STATES, AGAIN = 6, 2
# Of one workload with a mistake.
PLANTED_STATES = 60
WORKLOADS = ("plain", "partitioned", "rolled", "encrypted", "windows", "batches", "source", "migrations")
LACKING = missing()
LIMIT_S = 300

pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"no power cuts: this machine has no {LACKING}")


def replayed(folder: Path, seed: int, words: Sequence[str]) -> dict[str, Any]:
    """Return the result of a seed, which another process replays."""
    memory = Path("/dev/shm")
    place = memory / f"ftfile-power-test-{os.getpid()}" if os.access(memory, os.W_OK) else folder / "power"
    command = [sys.executable, "-m", "tests.power", f"--seed={seed}", "--file-system=ext4", f"--folder={place}", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_acknowledged_row_is_there_once_after_a_power_cut(tmp_path: Path, seed: int, workload: str) -> None:
    words = [f"--workload={workload}", f"--states={STATES}", f"--again={AGAIN}"]
    result = replayed(tmp_path, seed, words)
    assert not result["wrong"], "\n".join(result["wrong"])
    assert (result["states"], result["unmountable"]) == (STATES + AGAIN, 0)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(tmp_path: Path, mistake: str) -> None:
    result = replayed(tmp_path, 0, [f"--planted={mistake}", f"--states={PLANTED_STATES}", "--again=0"])
    assert result["wrong"], f"{mistake} was not found in {result['states']} states"
