"""The invariants of streams that follow a directory, checked against its log: S2 and S6; `SourceRun` checks S1, S8."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.read.snapshot import read_records, take_snapshot
from ftfile.read.log_positions import Beginning, InLog, InSnapshot, position_of
from ftfile.testing.log_check import require

if TYPE_CHECKING:
    from ftfile.log.format.model import Record
    from ftfile.read.log_positions import Position
    from ftfile.storage.api import FileSystem
    from ftfile.testing.source_run import SourceRun


__all__ = ("check_followed",)


def check_followed(fs: FileSystem, run: SourceRun) -> bool:
    """Check the batches of a stream that has read everything; return False if vacuum has deleted what tells.

    - **S2** each offset names a version of the log
    - **S6** each add that brings new rows was read in one batch, and no other add

    Raises:
        InvariantViolation: one does not hold.
    """
    positions = [position_of(json.loads(offset)) for offset in run.offsets]
    log = CommitLog(fs)
    head = log.refresh()
    for position in positions:
        _check_named(log, head.log_start, position)
    counts = Counter(add for adds in run.adds.values() for add in adds)
    twice = [add for add, times in counts.items() if times > 1]
    require(not twice, "S6", f"{twice} were read twice")
    began = next((position for position in positions if not isinstance(position, Beginning)), None)
    # Records that are gone may have brought the segments whose rest a kept one has.
    if began is None or head.log_start > 0:
        return False
    expected: set[str] = set()
    first = began.first if isinstance(began, InLog) else None
    if first is None:
        expected = set(take_snapshot(log, began.version).adds)
        first = began.version + 1
    spools: set[str] = set()
    for record in read_records(log):
        brought = {add.path for add in record.adds}
        if record.version >= first:
            expected |= _original(record, spools)
        spools |= brought
    require(counts.keys() == expected, "S6", f"{expected ^ counts.keys()} were not read, or had no new rows")
    return True


def _check_named(log: CommitLog, log_start: int, position: Position) -> None:
    if isinstance(position, Beginning) or position.version < 0:
        return
    version = position.version if isinstance(position, InSnapshot) else position.version + (position.read > 0)
    record = log.read_record(version)
    if version >= log_start:
        require(record is not None and record.nonce == position.nonce, "S2", f"an offset names version {version}")


def _original(record: Record, spools: set[str]) -> set[str]:
    """Return the adds whose rows no earlier record has: made of no segments, and not the rest of one."""
    if isinstance(record.author, MaintenanceAuthor) or (
        (record.overwrite or record.replaces is not None) and record.removes
    ):
        return set()
    return {add.id for add in record.adds if not add.ranges and add.path not in spools}
