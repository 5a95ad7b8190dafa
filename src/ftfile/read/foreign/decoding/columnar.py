"""The rows of foreign files in columns: Parquet, ORC and Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.core.errors import CorruptData, SchemaError
from ftfile.formats.api import format_from_options
from ftfile.formats.parts import recorded_names
from ftfile.formats.reading import batch_as
from ftfile.rows.buffers import rebuild

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
            spelled = _spelled(schema, in_file, path)
            stored = pa.schema([in_file.field(each) for each in spelled.names if each in in_file.names])
            file.seek(0)
            for batch in format_from_options(name, {}).decode(file, stored):
                yield batch_as(batch, spelled, _cast).rename_columns(schema.names)
        except MemoryError:
            raise
        except (pa.ArrowException, OSError) as error:  # pyarrow's errors about bytes are OSErrors
            raise CorruptData(path, expected, str(error)) from error


def _spelled(schema: pa.Schema, in_file: pa.Schema, path: str) -> pa.Schema:
    """Return a schema with its columns spelled as a file has them; `SchemaError` where types are too different."""
    names = recorded_names(in_file.names, schema.names)
    spelled = pa.schema([field.with_name(name) for name, field in zip(names, schema, strict=True)])
    for field in spelled:
        if field.name not in in_file.names:
            continue
        found = in_file.field(field.name).type
        detail = f"{path!r}: column `{field.name}` is {found} there, and cannot be read as {field.type}"
        if _is_text(found) and not _is_text(field.type):
            raise SchemaError(detail)
        try:
            rebuild(pa.nulls(0, found), field.type, _cast)
        except (pa.ArrowException, AttributeError, TypeError) as error:
            raise SchemaError(f"{detail}: {error}") from error
    return spelled


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Spark has microseconds: what is finer is cut off.
    return array.cast(options=pc.CastOptions(target, allow_time_truncate=True))


def _is_text(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )
