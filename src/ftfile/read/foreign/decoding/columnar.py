"""Files that hold columns, or records with a schema of their own: Parquet, ORC, Arrow and Avro."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.core.errors import ConfigError, CorruptData, SchemaError
from ftfile.formats.api import format_from_options
from ftfile.formats.avro_bounds import BLOCK_MEMORY_BYTES_MAX, cost_of
from ftfile.formats.avro_container import PlainBlocks, blocks, import_fastavro, read_header
from ftfile.formats.parts import recorded_names
from ftfile.formats.reading import batch_as, batch_of
from ftfile.rows.buffers import rebuild

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.read.foreign.decoding.lines import RangeContent
    from ftfile.read.foreign.plan import Cut
    from ftfile.read.foreign.settings import FileDecoding


_BATCH_ROWS = 65_536
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


def avro_rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Avro file; fields are found by name, case aside."""
    del cut, decoding
    path = content.planned.path
    with content.as_file() as file:
        described, codec, marker = read_header(file)
        try:
            row = cost_of(described)
            is_record = described["type"] == "record"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptData(path, "an Avro file whose schema bounds its memory", repr(error)) from error
        if not is_record:
            raise SchemaError(f"{path!r} has no records: its schema is {str(described)[:200]}")
        held: list[dict[str, Any]] = []
        held_bytes, damage = 0.0, None
        plain = PlainBlocks(described, blocks(file, codec, marker, row))
        records_of_blocks = None
        while damage is None:
            try:
                records_of_blocks = records_of_blocks or iter(import_fastavro().block_reader(plain))
                # Only behind its end is a block known to be whole.
                held += list(next(records_of_blocks))
            except StopIteration:
                break
            except (ConfigError, CorruptData) as error:
                damage = error
            except Exception as error:  # fastavro raises what bad bytes lead to
                damage = CorruptData(path, "whole blocks of an Avro file", repr(error))
            held_bytes += row.block_bytes(plain.rows, plain.size_bytes)
            if len(held) >= _BATCH_ROWS or held_bytes >= BLOCK_MEMORY_BYTES_MAX // 2:
                yield _avro_batch(held, schema, path)
                held, held_bytes = [], 0.0
        yield _avro_batch(held, schema, path)
        if damage is not None:
            raise damage


def _avro_batch(records: list[dict[str, Any]], schema: pa.Schema, path: str) -> pa.RecordBatch:
    names = recorded_names(list(records[0]) if records else [], schema.names)
    columns = []
    for name, field in zip(names, schema, strict=True):
        try:
            columns.append(pa.array([_from_avro(record.get(name), field.type) for record in records], field.type))
        except MemoryError:
            raise
        except (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError) as error:
            raise SchemaError(f"{path!r}: field `{name}` cannot be read as {field.type}: {error}") from error
    return batch_of(columns, schema, len(records))


def _from_avro(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - as many types as Avro has
    """Return a value of fastavro's as one that pyarrow takes for a type."""
    if value is None or not (pa.types.is_nested(kind) or pa.types.is_string(kind)):
        return value
    if pa.types.is_struct(kind):
        return {field.name: _from_avro(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(key, _from_avro(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_list(kind):
        return [_from_avro(each, kind.value_type) for each in value]
    return value if isinstance(value, str) else str(value)  # a UUID


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
