"""Reading a committed file that is not what the log says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.arrays.spark_types import arrow_schema
from ftfile.core.errors import CorruptData
from ftfile.parts.reader import read_add
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("content", "found"),
    [("c\ndd\n", "expected 4 bytes, found 5 bytes"), ("c\nd\n", "expected 4 bytes in a file with crc32:")],
    ids=["another length", "other bytes"],
)
def test_a_file_that_was_changed_is_an_error(tmp_path: Path, content: str, found: str) -> None:
    MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text"}).run(0, [[{"value": "a"}, {"value": "b"}]])
    (part,) = tmp_path.glob("part-*")
    part.write_text(content)
    with pytest.raises(CorruptData, match=found):
        ftfile.open(str(tmp_path)).to_arrow()


def test_rows_are_counted(tmp_path: Path) -> None:
    MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text"}).run(0, [[{"value": "a"}, {"value": "b"}]])
    snapshot = ftfile.open(str(tmp_path)).snapshot()
    (add,) = snapshot.adds.values()
    schema = arrow_schema(snapshot.definitions[snapshot.schema or ""])
    batches = read_add(open_filesystem(str(tmp_path)), replace(add, rows=3), snapshot.definitions[add.encoding], schema)
    with pytest.raises(CorruptData, match="expected 3 rows, found 2 rows"):
        list(batches)
