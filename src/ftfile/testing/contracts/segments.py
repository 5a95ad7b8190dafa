"""The contract of a format's segments and of the parts that are assembled from them."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.core.errors import CorruptData
from ftfile.formats.api import Limits, LineFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.formats.api import Format, SegmentCodec


__all__ = ("GARBAGE", "SegmentContract", "Target", "listed", "named", "written")


GARBAGE = (b"", b"\0", b"garbage\n", b"{}\n[", bytes(range(256)) * 40)


class Target:
    """A file that a format writes; a format must neither close nor read it."""

    def __init__(self, before: bytes = b"") -> None:
        self.data = bytearray(before)

    @property
    def position(self) -> int:
        return len(self.data)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        self.data += data
        return len(memoryview(data).cast("B"))

    def close(self) -> None:
        """Fail, because a format must not call it."""
        pytest.fail("the format closes its target")


class SegmentContract(ABC):
    """Tests of a format's segments until a part is assembled from them."""

    @abstractmethod
    def rows(self, file_format: Format) -> pa.RecordBatch:
        """Return rows to write."""

    def test_segments_come_back(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        counts = [1, rows.num_rows - 4, 3]
        segments, start = self._segments(file_format, rows, counts), 0
        codec = self._codec(file_format, rows.schema)
        wider_schema = pa.schema([*list(rows.schema)[::-1], pa.field("not there", pa.string())])
        for data, count in zip(segments, counts, strict=True):
            expected = rows.slice(start, count).to_pylist()
            assert listed(codec.decode(data, "spool", rows.schema)) == expected
            for row in expected:
                row["not there"] = None
            assert listed(codec.decode(data, "spool", wider_schema)) == expected
            start += count

    def test_damaged_segments_are_corrupt_data(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        (data,) = self._segments(file_format, rows, [rows.num_rows])
        codec = self._codec(file_format, rows.schema)
        for damaged in (data[:-1], data[: len(data) // 2], *GARBAGE[1:]):
            try:
                read_rows = listed(codec.decode(damaged, "spool", rows.schema))
            except CorruptData as error:
                assert error.path == "spool"  # noqa: PT017
                continue
            assert read_rows != rows.to_pylist()

    def test_line_segments_are_the_file_without_its_head(self, file_format: Format) -> None:
        if not isinstance(file_format, LineFormat):
            pytest.skip("segments are encoded again")
        rows = self.rows(file_format)
        counts = [5, rows.num_rows - 5]
        segments, head = self._segments(file_format, rows, counts), written(file_format, rows.slice(0, 0))
        assert head + b"".join(segments) == written(file_format, rows)
        for data, count in zip(segments, counts, strict=True):
            ends = list(map(int, file_format.row_ends(data)))
            assert (len(ends), ends[-1]) == (count, len(data))
            assert ends == sorted(set(ends))

    @pytest.mark.parametrize(
        "limits",
        [Limits(), Limits(max_rows=7), Limits(max_bytes=900), Limits(900, strict=True), Limits(2_000, 9, strict=True)],
    )
    def test_parts_are_made_of_segments(self, file_format: Format, limits: Limits) -> None:
        rows = self.rows(file_format)
        counts = [1, 3, rows.num_rows - 6, 2]
        parts = self._joined(file_format, rows, counts, limits)
        start = 0
        for number, data in enumerate(parts):
            part_rows = self.read(file_format, data, rows.schema)
            assert part_rows == rows.slice(start, len(part_rows)).to_pylist()
            start += len(part_rows)
            if number == len(parts) - 1:
                break
            assert limits != Limits(), "a part without limits has ended"
            assert limits.max_rows is None or len(part_rows) <= limits.max_rows
            if limits.max_bytes is None:
                assert len(part_rows) == limits.max_rows
            elif isinstance(file_format, LineFormat):
                assert len(data) <= limits.max_bytes or len(part_rows) == 1 or not limits.strict
                assert len(data) >= limits.max_bytes or len(part_rows) == limits.max_rows or limits.strict
        assert start == rows.num_rows

    def test_a_whole_segment_is_copied_or_not_touched(self, file_format: Format) -> None:
        rows, target = self.rows(file_format), Target()
        counts = [4, rows.num_rows - 4]
        joiner = file_format.joiner(rows.schema, target, Limits(max_rows=rows.num_rows))
        for data, count in zip(self._segments(file_format, rows, counts), counts, strict=True):
            before = target.position
            is_copied = joiner.try_copy_segment(len(data), count, partial(target.write, data))
            assert target.position == before + (len(data) if is_copied else 0)
            if not is_copied:
                joiner.take(data, count, 0)
        assert joiner.rows == rows.num_rows
        assert joiner.is_full()
        joiner.finish()
        assert self.read(file_format, bytes(target.data), rows.schema) == rows.to_pylist()

    def reader(self, file_format: Format, schema: pa.Schema) -> Format:
        """Return the format that the log returns to readers of files with this schema."""
        definition = json.loads(json.dumps(file_format.definition(schema)))
        return type(file_format).from_definition({"name": file_format.name, **definition})

    def read(
        self, file_format: Format, data: bytes, schema: pa.Schema, in_file: pa.Schema | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of a file, and check that they have the requested schema."""
        batches = list(self.reader(file_format, in_file or schema).decode(named(data), schema))
        for batch in batches:
            assert batch.schema.names == schema.names
            assert batch.schema.types == schema.types
        return listed(batches)

    def _codec(self, file_format: Format, schema: pa.Schema) -> SegmentCodec:
        return self.reader(file_format, schema).segments(schema)

    def _segments(self, file_format: Format, rows: pa.RecordBatch, counts: Sequence[int]) -> list[bytes]:
        segments, last = [b""] * len(counts), 0
        for number, piece in file_format.segments(rows.schema).encode(rows, counts):
            assert number >= last, "segments come in their order"
            last = number
            segments[number] += piece
        return segments

    def _joined(self, file_format: Format, rows: pa.RecordBatch, counts: Sequence[int], limits: Limits) -> list[bytes]:
        parts, joiner, target = [], None, Target()
        for data, count in zip(self._segments(file_format, rows, counts), counts, strict=True):
            remaining, rest, skip = count, data, 0
            while remaining:
                if joiner is None:
                    target = Target()
                    joiner = file_format.joiner(rows.schema, target, limits)
                taken = joiner.take(rest, remaining, skip)
                assert taken.rows or joiner.rows, "a part takes at least one row"
                assert taken.rows == remaining or joiner.is_full(), "a part that is not full takes all rows"
                remaining -= taken.rows
                rest, skip = rest[taken.data_start :], 0 if taken.data_start else skip + taken.rows
                if joiner.is_full():
                    joiner.finish()
                    parts.append(bytes(target.data))
                    joiner = None
        if joiner is not None:
            joiner.finish()
            parts.append(bytes(target.data))
        return parts


def written(file_format: Format, *batches: pa.RecordBatch) -> bytes:
    """Return the content of a file with these rows."""
    target = Target()
    encoder = file_format.encoder(batches[0].schema, target)
    for batch in batches:
        encoder.write(batch)
    encoder.finish()
    return bytes(target.data)


def named(data: bytes) -> io.BytesIO:
    """Return data as a file with a name, which error messages contain."""
    file = io.BytesIO(data)
    file.name = "a file"
    return file


def listed(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return rows as Python values."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        rows += batch.to_pylist()
    return rows
