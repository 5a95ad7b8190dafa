"""Directories with forged records, and the outcomes of public calls on them in a watched process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.hostile.forging import forge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # The path to a field of records, and its forged value.
    Forgery = tuple[Sequence[str | int], object]
    Outcomes = dict[str, dict[str, dict[str, Any]]]

ROOT = Path(__file__).parents[2]
PLANTED = "planted_by_an_attacker"
_OPTIONS = {"rolling": "policy", "maxRecordsPerFile": "3", "fileFormat": "json"}


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Mapping[str, Sequence[Forgery]]], Outcomes]:
    """Return a function from forgeries by name to the outcomes of calls, by the names of forgery and call."""
    from ftfile.testing.micro_batch import MicroBatch

    home = tmp_path_factory.mktemp("hostile")
    whole, packages = home / "whole", home / "packages"
    query = MicroBatch(str(whole), {"id": "long", "word": "string"}, _OPTIONS, checkpoint=str(home / "checkpoint"))
    for batch_id in range(3):
        query.run(batch_id, [[{"id": number, "word": "a"} for number in range(batch_id + 1)]])
    packages.mkdir()
    (packages / f"{PLANTED}.py").write_text(f"open({str(home / 'mark')!r}, 'w')\n\ndef Hit(*_): ...\n")

    def play(forgeries: Mapping[str, Sequence[Forgery]]) -> Outcomes:
        copies = [home / f"copy-{number}" for number in range(len(forgeries))]
        for copy, changes in zip(copies, forgeries.values(), strict=True):
            shutil.copytree(whole, copy)
            for steps, value in changes:
                assert forge(copy, steps, value), f"no record contains {steps}"
        shutil.copytree(whole, home / "warm")
        done = subprocess.run(
            [sys.executable, "-m", "tests.hostile.watched", *map(str, [home / "checkpoint", home / "warm", *copies])],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*sys.path, ROOT, packages]))},
            cwd=home,
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        )
        for copy in [home / "warm", *copies]:
            shutil.rmtree(copy)
        assert not (home / "mark").exists(), "the planted module was imported"
        return dict(zip(forgeries, map(json.loads, done.stdout.splitlines()), strict=True))

    return play
