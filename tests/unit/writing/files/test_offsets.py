"""Versions name Spark's offsets, in each of the forms in which Spark keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pathlib import Path

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"a":"b:c"}}'
KAFKA = {"flights": {"0": 12, "1": 5}}
KAFKA_TEXT = '{"flights":{"0":12,"1":5}}'


@pytest.mark.parametrize(
    ("lines", "offsets"),
    [
        (["v1", METADATA, KAFKA_TEXT], [KAFKA]),
        (["v1", METADATA, KAFKA_TEXT, "-", "7"], [KAFKA, "-", 7]),
        # With spark.sql.streaming.offsetLog.formatVersion=2: each behind the name of its source.
        (["v2", METADATA, f"0:{KAFKA_TEXT}"], [KAFKA]),
        (["v2", METADATA, f"orders:{KAFKA_TEXT}", "clicks:-", "times:a:b"], [KAFKA, "-", "a:b"]),
        (["v1", METADATA], []),
        ([], []),
    ],
)
def test_are_read_from_the_checkpoint(lines: list[str], offsets: list[Any], tmp_path: Path) -> None:
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    query = MicroBatch(str(out), {"value": "string"}, {"fileFormat": "text"}, checkpoint=str(checkpoint))
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets/0").write_text("\n".join(lines))
    planned, batch = query.pickled_plan(), query.identity(0)
    query.commit(0, [query.run_task(planned, batch, 0, [{"value": "a"}])])
    [version] = ftfile.open(str(out)).history()
    assert version.offsets == offsets
