"""The rows of files of other programs in the columnar formats Parquet, ORC and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from ftfile.core.errors import CorruptData, SchemaError
from ftfile.formats.api import format_from_options
from ftfile.formats.arrow_files import decode_lenient
from ftfile.formats.parts import recorded_names
from ftfile.source.decoding.casts import ColumnCast, present_columns
from ftfile.source.decoding.meanings import arrow_meanings, opened_parquet, parquet_meanings
from ftfile.source.decoding.misfits import ColumnsReader
from ftfile.source.decoding.orc_far_times import far_rows
from ftfile.source.decoding.orc_meanings import orc_meanings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.source.decoding.lines import RangeContent
    from ftfile.source.decoding.meanings import Meanings
    from ftfile.source.plan import Cut
    from ftfile.source.settings import FileDecoding


_EXPECTED = {"arrow": "an Arrow file", "orc": "an ORC file", "parquet": "a Parquet file"}


def column_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a columnar file with the reader of its format. Columns are found by name, ignoring case."""
    del cut
    with content.as_file() as file:
        yield from rows_of_columnar_file(file, content.planned.path, schema, decoding)


def rows_of_columnar_file(
    file: BinaryIO, path: str, schema: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an open columnar file; `path` is its name in errors.

    Raises:
        SchemaError: a column cannot be read as its type in `schema`.
        CorruptData: the file does not have the format of `decoding`, or is damaged.
        SourceError: a value does not fit its column, with `badRecords=fail`.
    """
    name = decoding.file_format
    try:
        meanings = _meanings(file, schema, decoding)
        casts = _casts(name, meanings, schema)
    except SchemaError as error:
        raise SchemaError(f"{path!r}: {error}") from error
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:  # pyarrow raises an OSError for damaged bytes
        raise CorruptData(path, _EXPECTED[name], str(error)) from error
    stored = pa.schema([meanings.stored.field(name) for name, _ in present_columns(casts)])
    reader = ColumnsReader(path, schema, casts, decoding)
    for batch in _stored_rows(file, meanings, stored, decoding):
        yield from reader.rows(batch)


def _stored_rows(
    file: BinaryIO, meanings: Meanings, schema: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    file.seek(0)
    if meanings.far is not None:
        return far_rows(file, meanings.far, schema, decoding.times.zone)
    if decoding.file_format == "arrow":
        return decode_lenient(file, schema)
    return format_from_options(decoding.file_format, {}).decode(file, schema)


def _meanings(file: BinaryIO, schema: pa.Schema, decoding: FileDecoding) -> Meanings:
    if decoding.file_format == "parquet":
        return parquet_meanings(opened_parquet(file))
    if decoding.file_format == "orc":
        return orc_meanings(file, decoding.times.zone, {name.lower() for name in schema.names})
    return arrow_meanings(pa.ipc.open_file(file))


def _casts(file_format: str, meanings: Meanings, schema: pa.Schema) -> list[tuple[str, ColumnCast | None]]:
    """Return the name in the file and the conversion of each column; None for a column that is missing in the file."""
    in_file = meanings.stored
    casts: list[tuple[str, ColumnCast | None]] = []
    for name, field in zip(recorded_names(in_file.names, schema.names), schema, strict=True):
        cast = None
        if name in in_file.names:
            cast = ColumnCast.from_types(
                file_format=file_format,
                column=name,
                stored=in_file.field(name).type,
                target=field.type,
                times=meanings.times[name],
            )
        casts.append((name, cast))
    return casts
