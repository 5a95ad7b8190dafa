"""The rows of foreign Avro files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ftfile.core.errors import ConfigError, CorruptData, SchemaError
from ftfile.formats.avro_bounds import BLOCK_MEMORY_BYTES_MAX, cost_of
from ftfile.formats.avro_container import PlainBlocks, blocks, import_fastavro, read_header
from ftfile.formats.parts import recorded_names
from ftfile.formats.reading import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.read.foreign.decoding.lines import RangeContent
    from ftfile.read.foreign.plan import Cut
    from ftfile.read.foreign.settings import FileDecoding


_BATCH_ROWS = 65_536


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
