"""The syncs of a batch on a local disk, in their order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Callable

QUERY = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the paths that are synced."""
    paths: list[str] = []

    def recorded(sync: Callable[[int], None]) -> Callable[[int], None]:
        def run(descriptor: int) -> None:
            paths.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            sync(descriptor)

        return run

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, recorded(getattr(os, name)))
    return paths


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["staged file", f"_ftfile/staged/{QUERY}", "record", "_ftfile/log", ""]),
        ({"rolling": "policy"}, ["staged file", f"_ftfile/staged/{QUERY}", "record", "_ftfile/log"]),
    ],
)
def test_the_syncs_of_a_batch(tmp_path: Path, synced: list[str], options: dict[str, str], names: list[str]) -> None:
    out = tmp_path / "out"
    query = MicroBatch(str(out), {"value": "string"}, {"fileFormat": "text"} | options)
    for batch in range(4):
        synced.clear()
        query.run(batch, [[{"value": "a"}]])
    kinds = {".staged": "staged file", ".spool": "staged file", ".tmp": "record"}
    paths = [Path(path) for path in synced]
    assert [kinds.get(path.suffix, str(path.relative_to(out)).removeprefix(".")) for path in paths] == names


def test_the_stage_of_a_job_is_synced_each_time(tmp_path: Path, synced: list[str]) -> None:
    """Vacuum removes the empty stage of a job, and a repeated job creates it again."""
    out = tmp_path / "out"
    query = MicroBatch(str(out), {"value": "string"}, {"fileFormat": "text"})
    for _ in range(3):
        synced.clear()
        query.run_batch_write("job", [[{"value": "a"}]])
        assert str(out / "_ftfile/staged") in synced
