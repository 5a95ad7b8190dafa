"""The rows of files of other programs in the columnar formats Parquet, ORC and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import pyarrow as pa
from pyarrow import orc

from ftfile.core.errors import CorruptData, SchemaError
from ftfile.formats.api import format_from_options
from ftfile.formats.arrow_files import decode_lenient
from ftfile.formats.parts import recorded_names
from ftfile.source.decoding.casts import ColumnCast, present_columns
from ftfile.source.decoding.file_times import orc_times
from ftfile.source.decoding.meanings import opened_parquet, parquet_meanings
from ftfile.source.decoding.misfits import ColumnsReader
from ftfile.source.decoding.orc_far_times import far_rows, schema_with_far_times
from ftfile.source.decoding.orc_tails import OrcTail
from ftfile.source.decoding.stored_times import StoredTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.source.decoding.lines import RangeContent
    from ftfile.source.plan import Cut
    from ftfile.source.settings import FileDecoding


_EXPECTED = {"arrow": "an Arrow file", "orc": "an ORC file", "parquet": "a Parquet file"}


class Described(NamedTuple):
    """The columns of a file, and how each column stores dates and times."""

    schema: pa.Schema
    times: Mapping[str, StoredTimes]
    far: OrcTail | None = None  # for a file with times that Arrow cannot read


def column_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a columnar file with the reader of its format. Columns are found by name, ignoring case."""
    del cut
    name, path = decoding.file_format, content.planned.path
    with content.as_file() as file:
        try:
            described = _described(file, schema, decoding)
            casts = _casts(name, described, schema)
        except SchemaError as error:
            raise SchemaError(f"{path!r}: {error}") from error
        except MemoryError:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:  # pyarrow raises an OSError for damaged bytes
            raise CorruptData(path, _EXPECTED[name], str(error)) from error
        stored = pa.schema([described.schema.field(name) for name, _ in present_columns(casts)])
        reader = ColumnsReader(path, schema, casts, decoding)
        for batch in _stored_rows(file, described, stored, decoding):
            yield from reader.rows(batch)


def _stored_rows(
    file: BinaryIO, described: Described, schema: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    file.seek(0)
    if described.far is not None:
        return far_rows(file, described.far, schema, decoding.times.zone)
    if decoding.file_format == "arrow":
        return decode_lenient(file, schema)
    return format_from_options(decoding.file_format, {}).decode(file, schema)


def _described(file: BinaryIO, schema: pa.Schema, decoding: FileDecoding) -> Described:
    if decoding.file_format == "parquet":
        parquet = opened_parquet(file)
        return Described(parquet.schema_arrow, parquet_meanings(parquet).times)
    if decoding.file_format == "orc":
        return _described_orc(file, schema, decoding.times.zone)
    in_file = pa.ipc.open_file(file).schema
    return Described(in_file, dict.fromkeys(in_file.names, StoredTimes()))


def _described_orc(file: BinaryIO, schema: pa.Schema, zone: str) -> Described:
    opened = orc.ORCFile(file)
    tail = OrcTail.of(opened)
    times = dict.fromkeys(opened.schema.names, orc_times(tail, file, zone))
    far = schema_with_far_times(tail, opened.schema, {name.lower() for name in schema.names})
    if far is None:
        return Described(opened.schema, times)
    return Described(far, times, tail)


def _casts(file_format: str, described: Described, schema: pa.Schema) -> list[tuple[str, ColumnCast | None]]:
    """Return the name in the file and the conversion of each column; None for a column that is missing in the file."""
    in_file = described.schema
    casts: list[tuple[str, ColumnCast | None]] = []
    for name, field in zip(recorded_names(in_file.names, schema.names), schema, strict=True):
        cast = None
        if name in in_file.names:
            cast = ColumnCast.between(
                file_format=file_format,
                column=name,
                stored=in_file.field(name).type,
                target=field.type,
                times=described.times[name],
            )
        casts.append((name, cast))
    return casts
