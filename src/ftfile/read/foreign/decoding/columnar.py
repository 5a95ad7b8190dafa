"""The rows of foreign files in columns: Parquet, ORC and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.core.errors import CorruptData, SchemaError
from ftfile.formats.api import format_from_options
from ftfile.formats.arrow_files import decode_foreign
from ftfile.formats.parts import recorded_names
from ftfile.read.foreign.decoding.casts import ColumnCast
from ftfile.read.foreign.decoding.file_times import orc_times, parquet_times
from ftfile.read.foreign.decoding.misfits import ColumnsReader
from ftfile.read.foreign.decoding.stored_times import StoredTimes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.read.foreign.decoding.lines import RangeContent
    from ftfile.read.foreign.plan import Cut
    from ftfile.read.foreign.settings import FileDecoding


_EXPECTED = {"arrow": "an Arrow file", "orc": "an ORC file", "parquet": "a Parquet file"}


class Described(NamedTuple):
    """The columns of a file, and how each one has dates and times."""

    schema: pa.Schema
    times: dict[str, StoredTimes]


def column_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in columns, as its format reads them; columns are found by name, case aside."""
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
        except (pa.ArrowException, OSError) as error:  # pyarrow's errors about bytes are OSErrors
            raise CorruptData(path, _EXPECTED[name], str(error)) from error
        stored = pa.schema([described.schema.field(column) for column, cast in casts if cast is not None])
        reader = ColumnsReader(path, schema, casts, decoding)
        decode = decode_foreign if name == "arrow" else format_from_options(name, {}).decode
        file.seek(0)
        for batch in decode(file, stored):
            yield from reader.rows(batch)


def _described(file: BinaryIO, schema: pa.Schema, decoding: FileDecoding) -> Described:
    if decoding.file_format == "parquet":
        parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        return Described(parquet.schema_arrow, parquet_times(parquet))
    times = StoredTimes()
    if decoding.file_format == "orc":
        opened = orc.ORCFile(file)
        in_file = opened.schema
        times = orc_times(opened, file, {name.lower() for name in schema.names}, decoding.times.zone)
    else:
        in_file = pa.ipc.open_file(file).schema
    return Described(in_file, dict.fromkeys(in_file.names, times))


def _casts(file_format: str, described: Described, schema: pa.Schema) -> list[tuple[str, ColumnCast | None]]:
    """Return the name in a file and the conversion of each column; None for a column that the file does not have."""
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
