"""The rows of foreign files in columns: Parquet, ORC and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.core.errors import CorruptData, SchemaError
from ftfile.formats.api import format_from_options
from ftfile.formats.arrow_files import decode_foreign
from ftfile.formats.parts import recorded_names
from ftfile.read.foreign.decoding.casts import ColumnCast
from ftfile.read.foreign.decoding.misfits import ColumnsReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.read.foreign.decoding.lines import RangeContent
    from ftfile.read.foreign.plan import Cut
    from ftfile.read.foreign.settings import FileDecoding


# How errors call a file, and the function to its schema.
_FILES: dict[str, tuple[str, Callable[[BinaryIO], pa.Schema]]] = {
    "arrow": ("an Arrow file", lambda file: pa.ipc.open_file(file).schema),
    "orc": ("an ORC file", lambda file: orc.ORCFile(file).schema),
    "parquet": ("a Parquet file", lambda file: pq.ParquetFile(file, coerce_int96_timestamp_unit="us").schema_arrow),
}


def column_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in columns, as its format reads them; columns are found by name, case aside."""
    del cut
    name, path = decoding.file_format, content.planned.path
    expected, schema_of = _FILES[name]
    with content.as_file() as file:
        try:
            in_file = schema_of(file)
        except MemoryError:
            raise
        except (pa.ArrowException, OSError) as error:  # pyarrow's errors about bytes are OSErrors
            raise CorruptData(path, expected, str(error)) from error
        casts = _casts(name, in_file, schema, path)
        names = [spelled for spelled, cast in casts if cast is not None]
        reader = ColumnsReader(path, schema, casts, decoding)
        file.seek(0)
        decode = decode_foreign if name == "arrow" else format_from_options(name, {}).decode
        for batch in decode(file, pa.schema([in_file.field(column) for column in names])):
            yield from reader.rows(batch)


def _casts(file_format: str, in_file: pa.Schema, schema: pa.Schema, path: str) -> list[tuple[str, ColumnCast | None]]:
    """Return the name in a file and the conversion of each column; None for a column that the file does not have."""
    casts: list[tuple[str, ColumnCast | None]] = []
    for name, field in zip(recorded_names(in_file.names, schema.names), schema, strict=True):
        if name not in in_file.names:
            casts.append((name, None))
            continue
        try:
            casts.append((name, ColumnCast.between(file_format, name, in_file.field(name).type, field.type)))
        except SchemaError as error:
            raise SchemaError(f"{path!r}: {error}") from error
    return casts
