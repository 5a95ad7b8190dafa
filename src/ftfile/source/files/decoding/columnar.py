"""Files that hold columns, or records with a schema of their own: Parquet, ORC, Arrow and Avro."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc

from ftfile.arrays.nested import rebuild
from ftfile.core.errors import CorruptData, SchemaError
from ftfile.encoding.avro.container import import_fastavro
from ftfile.encoding.base.reading import batch_of
from ftfile.parts.reader import recorded_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.source.files.decoding.opened import OpenedFile
    from ftfile.source.files.decoding.settings import FileDecoding
    from ftfile.source.files.decoding.split import Cut

_BATCH_ROWS = 65_536


def parquet_rows(opened: OpenedFile, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file; columns are found by name, case aside."""
    del cut, decoding
    path = opened.planned.path
    with opened.as_file() as file, _Damage(path, "a Parquet file"):
        parquet = pq.ParquetFile(file, page_checksum_verification=True, coerce_int96_timestamp_unit="us")
        spelled = _spelled(schema, parquet.schema_arrow, path)
        names = [name for name in spelled.names if name in parquet.schema_arrow.names]
        groups = range(parquet.num_row_groups if names else 0)
        for batch in parquet.iter_batches(_BATCH_ROWS, groups, names, use_threads=False) if groups else ():
            yield _as_requested(batch, spelled, schema)
        if not names:
            yield from _nulls(schema, parquet.metadata.num_rows)


def orc_rows(opened: OpenedFile, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an ORC file; columns are found by name, case aside."""
    del cut, decoding
    with opened.as_file() as file, _Damage(opened.planned.path, "an ORC file"):
        found = orc.ORCFile(file)
        present = found.schema.names
        spelled = _spelled(schema, found.schema, opened.planned.path)
        wanted = [name for name in spelled.names if name in present]
        # pyarrow takes a name with a dot for a field of a struct.
        names = None if any("." in name for name in present) else wanted
        for number in range(found.nstripes if wanted else 0):
            stripe = found.read_stripe(number, columns=names)
            for start in range(0, stripe.num_rows, _BATCH_ROWS):
                yield _as_requested(stripe.slice(start, _BATCH_ROWS), spelled, schema)
        if not wanted:
            yield from _nulls(schema, found.nrows)


def arrow_rows(opened: OpenedFile, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Arrow IPC file; columns are found by name, case aside."""
    del cut, decoding
    with opened.as_file() as file, _Damage(opened.planned.path, "an Arrow file"):
        in_file = pa.ipc.open_file(file).schema
        spelled = _spelled(schema, in_file, opened.planned.path)
        wanted = [place for place, name in enumerate(in_file.names) if name in spelled.names] or [0]
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        found = pa.ipc.open_file(file, options=options)
        for number in range(found.num_record_batches):
            batch = found.get_batch(number)
            batch.validate(full=True)  # it has no checksums
            yield _as_requested(batch, spelled, schema)


def avro_rows(opened: OpenedFile, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Avro file; fields are found by name, case aside."""
    del cut, decoding
    path = opened.planned.path
    with opened.as_file() as file:
        held: list[dict[str, Any]] = []
        damage = None
        blocks = _avro_blocks(file, path)
        while damage is None:
            try:
                # Only behind its end is a block known to be whole.
                held += list(next(blocks))
            except StopIteration:
                break
            except Exception as error:  # fastavro raises what bad bytes lead to
                damage = CorruptData(path, "whole blocks of an Avro file", repr(error))
            if len(held) >= _BATCH_ROWS:
                yield _avro_batch(held, schema, path)
                held = []
        yield _avro_batch(held, schema, path)
        if damage is not None:
            raise damage


def _avro_blocks(file: BinaryIO, path: str) -> Iterator[Any]:
    fastavro = import_fastavro()
    try:
        reader = fastavro.block_reader(file)
        described: Any = reader.writer_schema
        is_record = described["type"] == "record"
    except Exception as error:  # fastavro raises what bad bytes lead to
        raise CorruptData(path, "an Avro file", repr(error)) from error
    if not is_record:
        raise SchemaError(f"{path!r} has no records: its schema is {str(described)[:200]}")
    return iter(reader)  # each block yields its records


def _avro_batch(records: list[dict[str, Any]], schema: pa.Schema, path: str) -> pa.RecordBatch:
    names = recorded_names(list(records[0]) if records else [], schema.names)
    columns = []
    for name, field in zip(names, schema, strict=True):
        try:
            columns.append(pa.array([_from_avro(record.get(name), field.type) for record in records], field.type))
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


def _as_requested(batch: pa.RecordBatch, spelled: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    present = set(batch.schema.names)
    columns = [
        rebuild(batch.column(field.name), field.type, _cast)
        if field.name in present
        else pa.nulls(batch.num_rows, field.type)
        for field in spelled
    ]
    return batch_of(columns, schema, batch.num_rows)


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    # Spark has microseconds: what is finer is cut off.
    return array.cast(options=pc.CastOptions(target, allow_time_truncate=True))


def _is_text(kind: pa.DataType) -> bool:
    return any(
        is_kind(kind)
        for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def _nulls(schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, _BATCH_ROWS):
        count = min(_BATCH_ROWS, rows - start)
        yield batch_of([pa.nulls(count, kind) for kind in schema.types], schema, count)


class _Damage:
    """Turns errors of pyarrow about bytes into `CorruptData`."""

    def __init__(self, path: str, expected: str) -> None:
        self._path = path
        self._expected = expected

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, (pa.ArrowException, OSError)):  # pyarrow's errors about bytes are OSErrors
            raise CorruptData(self._path, self._expected, str(error)) from error
