"""Files of the log, deleted, emptied, and with a wrong bit: what verify finds, and what a repair mends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.log.checkpoints import list_checkpoints
from ftfile.log.format import layout
from ftfile.log.format.record import to_checked_text
from ftfile.log.read.compacted_records import list_compacted
from ftfile.operate.verify.findings import KINDS
from ftfile.operate.verify.verify_directory import verify
from tests.unit.operate.test_verify import World, _often, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import FileSystem

__all__ = ("_often", "world")

PATHS: dict[str, Callable[[FileSystem], str]] = {
    "format": lambda _: layout.FORMAT_FILE,
    "marker": lambda _: layout.MARKER,
    "record": lambda _: layout.record_path(5),
    "newest record": lambda _: layout.record_path(9),
    "checkpoint": lambda fs: layout.log_checkpoint_path(max(list_checkpoints(fs))),
    "range": lambda fs: layout.compacted_path(max(list_compacted(fs))),
    "hint": lambda _: layout.PUBLISHED_HINT,
    "clock": lambda _: layout.CLOCK_HINT,
}
# The worst finding of a file that is deleted, and of one that is damaged; empty where there is nothing to find.
CODES = {
    "format": ("missing-format", "bad-format"),
    "marker": ("", "bad-marker"),
    "record": ("missing-record", "missing-record"),
    "newest record": ("lost-records", "damaged-record"),
    "checkpoint": ("", "bad-checkpoint"),
    "range": ("", "bad-range"),
    "hint": ("", "bad-hint"),
    "clock": ("", ""),
}


@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize("harm", ["deleted", "emptied", "a wrong bit"])
@pytest.mark.parametrize("kind", PATHS)
def test_verify_finds_it_and_a_repair_mends_what_loses_nothing(world: World, kind: str, harm: str) -> None:
    for batch in range(10):
        world.driver.commit_new(batch)
    world.write(layout.MARKER, to_checked_text([b"0" * 32]))
    world.write(layout.CLOCK_HINT, b"now\n")
    assert world.codes() == []
    path = PATHS[kind](world.fs)
    content = world.fs.read(path)
    world.fs.delete(path)
    if harm != "deleted":
        world.write(path, b"" if harm == "emptied" else bytes([content[0] ^ 1]) + content[1:])
    code = CODES[kind][harm != "deleted"]
    findings = verify(world.fs).findings
    assert [finding.code for finding in findings][:1] == [code] * bool(code)
    repaired = ftfile.repair(world.url, dry_run=False)
    assert repaired.ok == (not code or KINDS[code].repair == "yes")
    if repaired.ok:
        assert world.codes() == []
