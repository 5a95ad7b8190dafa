"""Following large directories: a first snapshot of many parts, and offsets of the largest numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Origin, Record, StreamAuthor
from ftfile.log.format.record import encode_record
from ftfile.read.log_planner import BatchLimits, FollowSettings
from ftfile.read.log_positions import Beginning, InLog, InSnapshot, position_of
from ftfile.read.new_rows import FollowPlanner
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import spark_schema
from ftfile.testing.source_run import OFFSET_BYTES_MAX
from tests.crash.share import THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.read.log_positions import Position

# `make long` uses a million parts.
PARTS = 1_000_000 if THOROUGH else 100_000
RECORDS = BATCHES = 1_000


def write(path: Path) -> None:
    """Write a log of many parts, without the files of the parts."""
    fs = open_filesystem(str(path))
    CommitLog(fs).prepare_directory()
    previous = ""
    for version in range(RECORDS):
        origin = Origin("query", version, version)
        names = [f"part-{version:010}-{number:020}.txt" for number in range(PARTS // RECORDS)]
        adds = tuple(Add(name, "part", name, name, 6, 6, "crc32c:0", 1, "", "text", origin) for name in names)
        author = StreamAuthor("query", "run", version, f"{version}", None)
        record = Record(
            version,
            f"{version:032}",
            author,
            0,
            adds=adds,
            previous_nonce=previous,
            definitions={} if previous else {"text": {"format": {"name": "text"}}},
        )
        (path / layout.record_path(version)).write_bytes(encode_record(record).content)
        previous = record.nonce


@pytest.mark.slow
def test_a_first_snapshot_is_a_thousand_batches(tmp_path: Path) -> None:
    write(tmp_path)
    settings = FollowSettings(limits=BatchLimits(files=PARTS // BATCHES))
    columns = arrow_schema(spark_schema({"value": "string"}))
    planner = FollowPlanner(CommitLog(open_filesystem(str(tmp_path))), settings, columns, str(tmp_path))
    start: Position = Beginning()
    seen: set[str] = set()
    plans = 0
    while (end := planner.plan(start)) != start:
        assert len(json.dumps(end.to_offset())) <= OFFSET_BYTES_MAX
        read = [each.add.id for share in planner.shares(start, end) for each in share.ranges]
        assert len(read) == PARTS // BATCHES
        seen.update(read)
        start, plans = end, plans + 1
    assert plans == BATCHES
    assert len(seen) == PARTS


@pytest.mark.parametrize(
    "position",
    [
        InSnapshot(10**19, "f" * 32, 10**12),
        InLog(version=10**19, nonce="f" * 32, read=10**12, first=10**19),
    ],
    ids=["snapshot", "log"],
)
def test_offsets_of_the_largest_numbers(position: Position) -> None:
    """Names of records have 20 digits, and names of single-use files have 32 characters."""
    text = json.dumps(position.to_offset())
    assert len(text.encode()) <= OFFSET_BYTES_MAX
    assert position_of(json.loads(text)) == position
