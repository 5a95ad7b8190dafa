"""Reads of a committed file that differs from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

import ftfile
from ftfile.core.checksum import checksum
from ftfile.core.errors import CorruptData, NotADirectory
from ftfile.formats.api import format_from_definition
from ftfile.formats.parts import read_add, read_part, recorded_names
from ftfile.formats.reading import memory_limit
from ftfile.log.format import layout
from ftfile.rows.spark_types import arrow_schema
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.hostile.inputs import one_text_again_and_again, parquet_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa


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


def test_a_file_in_the_place_of_dead_letters_is_an_error(tmp_path: Path) -> None:
    MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text"}).run(0, [[{"value": "a"}]])
    (tmp_path / layout.DEAD_LETTERS).write_text("")
    with pytest.raises(NotADirectory, match=layout.DEAD_LETTERS):
        ftfile.open(str(tmp_path)).dead_letters()


def test_rows_are_counted(tmp_path: Path) -> None:
    MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text"}).run(0, [[{"value": "a"}, {"value": "b"}]])
    snapshot = ftfile.open(str(tmp_path)).snapshot()
    (add,) = snapshot.adds.values()
    schema = arrow_schema(snapshot.definitions[snapshot.schema or ""])
    batches = read_add(
        open_filesystem(str(tmp_path)), structs.replace(add, rows=3), snapshot.definitions[add.encoding], schema
    )
    with pytest.raises(CorruptData, match="expected 3 rows, found 2 rows"):
        list(batches)


def test_of_a_longer_file_no_more_is_read_than_is_recorded(tmp_path: Path) -> None:
    MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text"}).run(0, [[{"value": "a"}]])
    (part,) = tmp_path.glob("part-*")
    part.write_bytes(bytes(1 << 20))
    snapshot = ftfile.open(str(tmp_path)).snapshot()
    (add,) = snapshot.adds.values()
    file_format = format_from_definition(snapshot.definitions[add.encoding]["format"])
    schema = arrow_schema(snapshot.definitions[snapshot.schema or ""])
    with pytest.raises(CorruptData, match=r"expected 2 bytes .*, found 3 bytes"):
        list(read_part(open_filesystem(str(tmp_path)), add, file_format, schema, None))


@pytest.mark.slow
def test_a_part_is_decoded_within_a_limit_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "is_worker", lambda: True)
    MicroBatch(str(tmp_path), {"a": "string"}, {"fileFormat": "parquet"}).run(0, [[{"a": "a"}]])
    snapshot = ftfile.open(str(tmp_path)).snapshot()
    (add,) = snapshot.adds.values()
    content = parquet_file(one_text_again_and_again(24 << 10), store_schema=False)
    (tmp_path / (add.final_path or add.path)).write_bytes(content)
    forged = structs.replace(
        add, rows=1 << 16, length=len(content), logical_length=len(content), checksum=checksum(content)
    )
    schema = arrow_schema(snapshot.definitions[snapshot.schema or ""])
    batches = read_add(open_filesystem(str(tmp_path)), forged, snapshot.definitions[add.encoding], schema)
    with pytest.raises(CorruptData, match="bytes of memory, found more"):
        list(batches)


def test_columns_have_the_names_that_were_recorded_whatever_their_case() -> None:
    assert recorded_names(["Id", "word"], ["id", "WORD", "Id", "Other"]) == ("Id", "word", "Id", "Other")
    assert recorded_names(["id", "ID"], ["ID", "id"]) == ("ID", "id")


def test_rows_of_a_segment_that_are_in_a_part_are_left_out_however_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text", "maxBatchesPerFile": "9"})
    query.run(0, [[{"value": letter} for letter in "abcdefg"]])
    snapshot = ftfile.open(str(tmp_path)).snapshot()
    (segment,) = snapshot.adds.values()
    assert segment.kind == "segment"
    encoding = snapshot.definitions[segment.encoding]
    schema = arrow_schema(encoding["schema"])
    codec = type(format_from_definition(encoding["format"]).segments(schema))
    decode = codec.decode

    def two_at_a_time(*arguments: Any) -> Iterator[pa.RecordBatch]:
        for batch in decode(*arguments):
            yield from (batch.slice(start, 2) for start in range(0, batch.num_rows, 2))

    monkeypatch.setattr(codec, "decode", two_at_a_time)
    for skipped in range(7):
        rest = structs.replace(segment, skip_rows=skipped, rows=segment.rows - skipped)
        batches = read_add(open_filesystem(str(tmp_path)), rest, encoding, schema)
        assert "".join(value for batch in batches for value in batch["value"].to_pylist()) == "abcdefg"[skipped:]
