"""Public calls on directories with random changes return or raise errors of ftfile, and have no other effects.

`FTFILE_MUTATIONS` is the number of directories, drawn by the seed of the run. By default some are tried, the same ones
each time. A failure contains the seed and the number of the mutation: `FTFILE_MUTATION=<number>` and `--seed=<seed>`
repeat only that mutation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.hostile.bases import BASES
from tests.hostile.mutations import PLANTED

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
DRAWN = os.environ.get("FTFILE_MUTATIONS")
COUNT = int(DRAWN or "250")
ONE = os.environ.get("FTFILE_MUTATION")
# Mutations in one process: this bounds the growth of its memory and caches, and xdist distributes the work.
PART = 125
PARTS = [int(ONE)] if ONE else range(0, -(-COUNT // len(BASES)), PART)
# For all calls on one directory, and for making the base.
DIRECTORY_S, BASE_S = 120, 60


def play(home: Path, base: str, seed: int, first: int, count: int) -> list[dict[str, Any]]:
    """Return the lines that a process printed for mutations of a base, and the mutation during which it ended."""
    return play_on(home, base, [seed, first, count], count)


def play_on(home: Path, base: str, arguments: Sequence[object], count: int) -> list[dict[str, Any]]:
    """Return the lines that a process printed for `count` mutations; for the arguments see `tests.hostile.mutated`."""
    packages, mark = home / "packages", home / "mark"
    packages.mkdir()
    (packages / f"{PLANTED}.py").write_text(f"open({str(mark)!r}, 'w')\n\ndef Hit(*_): ...\n")
    place = home / "home"
    place.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    paths = os.pathsep.join(map(str, [*sys.path, ROOT, packages]))
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.mutated", str(place), base, *map(str, arguments)],
        # With an empty PATH, `doctor` finds no programs to start.
        env=environment | {"PYTHONPATH": paths, "PATH": "", "HOME": str(home)},
        cwd=home,
        capture_output=True,
        check=False,
        timeout=BASE_S + DIRECTORY_S * count,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    results = [line for line in lines if "number" in line]
    if done.returncode:
        last = lines[-1].get("begins") if lines else None
        results.append({"number": last, "wrong": f"ended by {done.returncode}: {done.stderr.decode()[-3000:]}"})
    assert not mark.exists(), "the planted module was imported"
    return results


@pytest.mark.slow
@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("base", BASES)
def test_calls_on_mutated_directories_return_or_raise_errors_of_ftfile(
    tmp_path: Path, seed: int, base: str, first: int
) -> None:
    seed = seed if DRAWN or ONE else 1
    count = 1 if ONE else min(PART, -(-COUNT // len(BASES)) - first)
    results = play(tmp_path, base, seed, first, count)
    assert [result for result in results if result["wrong"]] == [], f"seed {seed}, {base}"
    assert len(results) == count


@pytest.mark.slow
def test_a_mutation_is_drawn_by_its_seed(tmp_path: Path) -> None:
    """The same seed makes the same changes to the same files, and another seed makes others."""
    places = [tmp_path / name for name in ("first", "second", "third")]
    for place in places:
        place.mkdir()
    first, second, third = (
        [result["mutation"] for result in play(place, "stream", seed, 3, 2)]
        for place, seed in zip(places, (1, 1, 2), strict=True)
    )
    assert [[line[:60] for line in lines] for lines in first] == [[line[:60] for line in lines] for lines in second]
    assert first != third
