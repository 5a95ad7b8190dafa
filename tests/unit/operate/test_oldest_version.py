"""The oldest version that can be read: after the newest removal whose files a vacuum may have deleted."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.arguments import Access
from ftfile.log.format import layout
from ftfile.log.opening import open_log
from ftfile.log.read.snapshot import oldest_readable, read_records
from ftfile.log.read.times import created_ms
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from ftfile.log.commit_log import CommitLog

pytestmark = pytest.mark.slow

DAY_S = 86_400


def told_by_records(log: CommitLog) -> int:
    """Return the newest version up to the horizon that removed files, or the oldest kept version if none did."""
    head = log.refresh()
    removals = [record.version for record in read_records(log) if record.removes]
    return max([head.log_start, *(each for each in removals if (created_ms(log, each) or 0) <= head.horizon_ms)])


@pytest.mark.parametrize("every", [1, 3, 64])
@pytest.mark.parametrize("removals", [(), (3,), (3, 7), (3, 4, 11)])
def test_it_is_what_the_records_tell(
    every: int, removals: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compacted logs of any size: their removals remove files of the same log and of older ones."""
    monkeypatch.setattr("ftfile.log.publish.COMPACTED_EVERY", every)
    query = MicroBatch(str(tmp_path / "out"), {"id": "long", "m": "long"}, {"fileFormat": "json", "partitionBy": "m"})
    for batch in range(12):
        query.run(batch, [[{"id": batch, "m": batch // 2}]])
        if batch in removals:
            ftfile.drop(query.path, f"m = {batch // 2}" if batch % 2 else "m = 0")
    log = open_log(query.path, Access())
    newest = log.refresh().version
    for version in range(newest + 1):
        at_s = time.time() - DAY_S * (newest + 2 - version)
        os.utime(Path(query.path, layout.record_path(version)), (at_s, at_s))
    lost = Path(query.path, layout.STAGED, "lost")
    for days in (newest, 9, 5, 2):
        lost.touch()
        os.utime(lost, (0, 0))  # if there are no files to delete, no version is recorded
        ftfile.vacuum(query.path, retention=f"{days * 24 + 12}h", dry_run=False)
        head = log.refresh()
        assert head.horizon_ms > 0
        assert oldest_readable(log, head) == told_by_records(log)
        oldest = ftfile.open(query.path).oldest_version()
        for version in range(oldest, newest + 1):
            ftfile.open(query.path).to_arrow(version)
