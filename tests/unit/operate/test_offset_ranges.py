"""Ranges between the offsets of two batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.operate.details import OffsetRange, ranges_between
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pathlib import Path


def test_partitions_of_kafka() -> None:
    before = [{"events": {"0": 5, "1": 7}}]
    after = [{"events": {"0": 9, "1": 7, "2": 3}, "more": {"0": 1}}]
    assert ranges_between(before, after) == (
        OffsetRange(0, "events/0", 5, 9),
        OffsetRange(0, "events/1", 7, 7),
        OffsetRange(0, "events/2", None, 3),
        OffsetRange(0, "more/0", None, 1),
    )


def test_several_sources() -> None:
    """A source without an offset is omitted. The previous batch may have no offset for a source."""
    assert ranges_between([{"logOffset": 3}, "-", "-"], [{"logOffset": 4}, 12, "-"]) == (
        OffsetRange(0, None, {"logOffset": 3}, {"logOffset": 4}),
        OffsetRange(1, None, None, 12),
    )
    assert ranges_between([], [{}, None, {"0": 1}]) == (
        OffsetRange(0, None, None, {}),
        OffsetRange(2, None, None, {"0": 1}),
    )


def test_a_source_that_has_become_another() -> None:
    """Offsets of any shape are shown unchanged."""
    assert ranges_between([7], [{"events": {"0": 9}}]) == (OffsetRange(0, "events/0", None, 9),)
    assert ranges_between([{"events": 7}], [{"events": {"0": 9}}]) == (OffsetRange(0, "events/0", None, 9),)
    assert ranges_between([1, 2], [3]) == (OffsetRange(0, None, 1, 3),)


@pytest.mark.slow
def test_no_ranges_where_an_end_is_not_known(tmp_path: Path) -> None:
    """This batch or the previous batch was written without `checkpointLocation`."""
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"})
    query.run(0, [[{"id": 0}]])
    query.checkpoint = str(tmp_path / "checkpoint")
    for batch in (1, 2):
        query.run(batch, [[{"id": batch}]])
    directory = ftfile.open(query.path)
    found = [directory.version_details(version).offset_ranges for version in range(3)]
    assert found == [None, None, (OffsetRange(0, None, {"batch": 1}, {"batch": 2}),)]
    assert [directory.file_details(file.path).batches.offset_ranges for file in directory.files()] == found  # type: ignore[union-attr]
