"""The contract of a file format as tests, which a format's tests inherit with a fixture `file_format`."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile.core.errors import CorruptData, EncodingError, SchemaError, UnencodableRows
from ftfile.formats.api import LineFormat
from ftfile.testing.contracts.segments import GARBAGE, SegmentContract, Target, listed, named, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.formats.api import Format


__all__ = ("FormatContract", "sample_rows")


_TEXTS = (
    "plain",
    "",
    'say "hi", ok',
    "back\\slash",
    "two\nlines",
    "grüße 日本語 🙂",
    None,
    "null",
    " blanks ",
    "\ttab",
)


_SAMPLE_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "small": pa.int32(),
        "ratio": pa.float64(),
        "flag": pa.bool_(),
        "text": pa.string(),
        "raw": pa.binary(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "price": pa.decimal128(10, 2),
        "tags": pa.list_(pa.field("element", pa.string())),
    }
)


def sample_rows(count: int = 60) -> pa.RecordBatch:
    """Return rows with a column for each kind of type that Spark sends, including nulls and unusual values."""
    rows = [_sample_row(number) for number in range(count)]
    return pa.RecordBatch.from_pylist(rows, _SAMPLE_SCHEMA)


def _sample_row(number: int) -> dict[str, Any]:
    ratio = None
    if number % 7:
        ratio = number / 8
    tags = None
    if number % 5 != 4:
        tags = ["a", None, 'q"'][: number % 4]
    return {
        "id": number,
        "small": number - 30,
        "ratio": ratio,
        "flag": (True, False, None)[number % 3],
        "text": _TEXTS[number % len(_TEXTS)],
        "raw": bytes([number % 256, 0, 10, 255]),
        "day": dt.date(2024, 2, 1 + number % 29),
        "at": 1_709_208_001_000_000 + number,
        "price": Decimal(number * 37) / 100,
        "tags": tags,
    }


class FormatContract(SegmentContract):
    """All tests of a format."""

    least_bytes = 4_096  # approximate length of a file of one row
    unfit: Sequence[pa.Schema] = ()  # schemas that the format does not support, because of the first column

    def rows(self, file_format: Format) -> pa.RecordBatch:
        """Return at least twenty different rows to write; by default the sample's columns that the format supports."""
        sample = sample_rows()
        supported = []
        for name in sample.schema.names:
            if self._fits(file_format, sample.select([name])):
                supported.append(name)
        return sample.select(supported)

    def unencodable(self, file_format: Format) -> pa.RecordBatch | None:
        """Return a row with the schema of `rows` that no file can contain; by default a row whose text is not UTF-8."""
        row = self.rows(file_format).slice(0, 1)
        bad = pa.array([b"\xff"], pa.binary()).view(pa.string())
        for place, column in enumerate(row.schema):
            if pa.types.is_string(column.type):
                return row.set_column(place, column, bad)
        return None

    def test_formats_are_values(self, file_format: Format) -> None:
        copy = pickle.loads(pickle.dumps(file_format))  # noqa: S301 - pickled here
        assert copy == file_format
        assert hash(copy) == hash(file_format)
        assert type(file_format).from_options({}) == type(file_format).from_options({})
        with pytest.raises((AttributeError, TypeError)):
            file_format.name = "other"  # type: ignore[misc]

    def test_names(self, file_format: Format) -> None:
        assert file_format.name == type(file_format).name
        assert file_format.extension.startswith(".")
        assert not set(file_format.extension) & {"/", " ", "\0"}
        assert file_format.open_files_max >= 1

    def test_the_definition_is_json_that_makes_the_same_files(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        definition = file_format.definition(rows.schema)
        assert json.loads(json.dumps(definition)) == definition
        again = self.reader(file_format, rows.schema)
        assert again.definition(rows.schema) == definition
        assert again.extension == file_format.extension
        assert self.read(file_format, written(again, rows), rows.schema) == rows.to_pylist()

    def test_the_schema_is_checked(self, file_format: Format) -> None:
        file_format.check_schema(self.rows(file_format).schema)
        for schema in self.unfit:
            with pytest.raises(SchemaError, match=schema.names[0]):
                file_format.check_schema(schema)

    def test_rows_come_back(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        single_rows = [rows.slice(number, 1) for number in range(20)]
        for batches in ([rows], [rows.slice(0, 7), rows.slice(7)], single_rows):
            assert self.read(file_format, written(file_format, *batches), rows.schema) == listed(batches)

    def test_a_file_without_rows(self, file_format: Format) -> None:
        schema, target = self.rows(file_format).schema, Target()
        encoder = file_format.encoder(schema, target)
        assert encoder.write(self.rows(file_format).slice(0, 0)) == 0
        encoder.finish()
        assert self.read(file_format, bytes(target.data), schema) == []

    def test_columns_are_matched_by_name(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        data, fields = written(file_format, rows), list(rows.schema)[::-1]
        wider_schema = pa.schema([pa.field("not there", pa.int64()), *fields])
        for schema in (wider_schema, pa.schema(fields[:1])):
            for read_row, row in zip(self.read(file_format, data, schema, rows.schema), rows.to_pylist(), strict=True):
                assert read_row == {name: row.get(name) for name in schema.names}

    def test_a_file_is_read_for_its_number_of_rows_alone(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        reader = self.reader(file_format, rows.schema)
        count = 0
        for batch in reader.decode(named(written(file_format, rows)), pa.schema([])):
            count += batch.num_rows
        assert count == rows.num_rows

    def test_types_are_widened(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        if "small" not in rows.schema.names:
            pytest.skip("no column to widen")
        wide = pa.schema([("small", pa.int64())])
        read_rows = self.read(file_format, written(file_format, rows), wide, rows.schema)
        assert read_rows == rows.select(["small"]).to_pylist()

    def test_without_a_limit_all_rows_are_taken(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        assert file_format.encoder(rows.schema, Target()).write(rows) == rows.num_rows

    def test_with_a_limit_a_file_ends_about_there(self, file_format: Format) -> None:
        rows = self._many(file_format)
        for limit_bytes in (1, 3_000, 20_000):
            target = Target()
            encoder = file_format.encoder(rows.schema, target)
            taken = encoder.write(rows, limit_bytes)
            assert 1 <= taken <= rows.num_rows
            assert taken == rows.num_rows or encoder.size_bytes >= limit_bytes
            encoder.finish()
            data = bytes(target.data)
            assert self.read(file_format, data, rows.schema) == rows.slice(0, taken).to_pylist()
            if isinstance(file_format, LineFormat):
                assert encoder.size_bytes == len(data)
                before = b""
                if taken > 1:
                    before = written(file_format, rows.slice(0, taken - 1))
                assert len(before) < limit_bytes, "the file should have ended a row before"
            else:
                assert len(data) <= 2 * limit_bytes + self.least_bytes
                assert taken == rows.num_rows or len(data) >= limit_bytes / 4

    def test_the_size_is_that_of_the_file(self, file_format: Format) -> None:
        rows, before = self._many(file_format), b"something else"
        target = Target(before)
        encoder = file_format.encoder(rows.schema, target)
        encoder.write(rows)
        size_bytes = encoder.size_bytes
        encoder.finish()
        written_bytes = target.position - len(before)
        if isinstance(file_format, LineFormat):
            assert size_bytes == encoder.size_bytes == written_bytes
        else:
            assert size_bytes > 0

    def test_a_flush_empties_the_buffer(self, file_format: Format) -> None:
        rows, target = self.rows(file_format), Target()
        encoder = file_format.encoder(rows.schema, target)
        encoder.write(rows.slice(0, 5))
        assert encoder.buffered_bytes >= 0
        encoder.flush()
        encoder.flush()
        assert encoder.buffered_bytes == 0
        encoder.write(rows.slice(5))
        encoder.finish()
        assert self.read(file_format, bytes(target.data), rows.schema) == rows.to_pylist()

    def test_two_files_at_a_time(self, file_format: Format) -> None:
        rows, targets = self.rows(file_format), [Target(), Target()]
        encoders = [file_format.encoder(rows.schema, target) for target in targets]
        for number in range(rows.num_rows):
            encoders[number % 2].write(rows.slice(number, 1))
        for part, (encoder, target) in enumerate(zip(encoders, targets, strict=True)):
            encoder.finish()
            assert self.read(file_format, bytes(target.data), rows.schema) == rows.to_pylist()[part::2]

    def test_rows_that_cannot_be_encoded_are_not_taken(self, file_format: Format) -> None:
        rows, bad = self.rows(file_format), self.unencodable(file_format)
        if bad is None:
            pytest.skip("the format holds all rows")
        target = Target()
        encoder = file_format.encoder(rows.schema, target)
        encoder.write(rows.slice(0, 5))
        with pytest.raises(UnencodableRows, match="column"):
            encoder.write(bad)
        try:
            taken = encoder.write(_together([rows.slice(5, 5), bad]), 1 << 40)
        except UnencodableRows:
            taken = 0
        assert taken <= 5
        encoder.write(rows.slice(5 + taken))
        encoder.finish()
        assert self.read(file_format, bytes(target.data), rows.schema) == rows.to_pylist()
        with pytest.raises(EncodingError, match="column"):
            list(file_format.segments(rows.schema).encode(bad, [1]))

    def test_damage_is_corrupt_data_or_other_rows_never_another_error(self, file_format: Format) -> None:
        rows = self.rows(file_format)
        data = written(file_format, rows)
        reader = self.reader(file_format, rows.schema)
        step = max(1, len(data) // 60)
        truncated = [data[:end] for end in range(0, len(data), step)]
        for damaged in (*GARBAGE, *truncated):
            try:
                read_rows = listed(reader.decode(named(damaged), rows.schema))
            except CorruptData as error:
                assert error.path == "a file"  # noqa: PT017 - or it is read
                continue
            assert read_rows != rows.to_pylist()

    def _fits(self, file_format: Format, rows: pa.RecordBatch) -> bool:
        try:
            more = rows.append_column("other", pa.nulls(rows.num_rows, pa.int64()))
            file_format.check_schema(more.schema)
        except SchemaError:
            return False
        return True

    def _many(self, file_format: Format) -> pa.RecordBatch:
        rows = self.rows(file_format)
        return _together([rows] * 20)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
