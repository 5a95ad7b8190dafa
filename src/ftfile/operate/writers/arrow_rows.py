"""Rows of any library that exports Arrow data, in the types that ftfile stores."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.errors import ArgumentError, SchemaError
from ftfile.operate.writers.infinite_times import has_times, refuse_infinite
from ftfile.operate.writers.opaque_columns import refuse_library_columns, refuse_opaque
from ftfile.operate.writers.pandas_index import columns_without_labels
from ftfile.operate.writers.row_pieces import pieces
from ftfile.operate.writers.stored_values import stored_values
from ftfile.operate.writers.untyped_columns import has_untyped, with_types_of
from ftfile.rows.spark_types import check_depth
from ftfile.source.decoding.meanings import refuse_other_times
from ftfile.source.decoding.unread_types import may_be_unread, refuse_unread_types

if TYPE_CHECKING:
    from collections.abc import Callable

# Larger batches are divided, so that files can end near their limits, and memory is bounded.
BATCH_ROWS = 65_536
# Far below the 2 GiB of a column of texts, since formats such as JSON write a row as one text, and escape characters.
BATCH_BYTES = 128 << 20

_TAKEN = (
    "it takes a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, an iterable of record batches, or an object "
    "with __arrow_c_stream__, such as a DataFrame of Polars or pandas 3, or a relation of DuckDB. Call `collect()` of "
    "a LazyFrame"
)
_ONE_COLUMN = "non-struct type"  # Arrow's error for a column that is not a table
_WIDE_DECIMAL = "does not fit in precision of decimal128(38, 0)"
# Arrow's error for the end of a day, in each unit of a TIME.
_END_OF_DAY = re.compile(r"\] 864000* is not within the acceptable range")
_DECIMAL_DIGITS_MAX = 38  # of a decimal of Spark


class StorableRows(NamedTuple):
    """Rows in types of Spark.

    Attributes:
        schema: of the batches.
        batches: of at most `BATCH_ROWS` rows, and of `BATCH_BYTES` bytes or one row; can be iterated once.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


def arrow_rows(
    data: Any,  # noqa: ANN401 - many types of many libraries
    earlier_columns: Callable[[], pa.Schema | None] | None = None,
) -> StorableRows:
    """Return the rows of a value.

    Args:
        data: the value.
        earlier_columns: returns the columns of earlier rows. It is called for types of columns without values.

    Raises:
        ArgumentError: the value is of another type, or contains no batch that describes the columns.
        SchemaError: a column has a type without an equivalent in Spark. Values that do not fit raise it later.
    """
    exported, batches = _batches_of(data)
    check_depth(exported)
    refuse_opaque(exported)
    source = _without_labels(exported)
    typed = source
    if earlier_columns is not None and has_untyped(source):
        typed = with_types_of(source, earlier_columns() or source)
    schema = _stored_schema(typed)
    return StorableRows(schema, _convert_batches(batches, source, schema))


def _without_labels(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(place) for place in columns_without_labels(schema)])


@lru_cache(16)
def _stored_schema(source: pa.Schema) -> pa.Schema:
    return pa.schema([_stored_field(field, field.name) for field in source])


def _batches_of(data: Any) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:  # noqa: ANN401 - as above
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, data
    if hasattr(data, "__arrow_c_stream__"):
        reader = _reader_of(data)
        return reader.schema, reader
    if hasattr(data, "scanner"):  # a dataset or a fragment
        reader = data.scanner().to_reader()
        _refuse_other_meanings(data, reader.schema)
        return reader.schema, reader
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        rest = iter(data)
        first = next(rest, None)
        if first is None:
            raise ArgumentError("data: it is an iterable without batches, so the columns are unknown: give a Table")
        if isinstance(first, pa.RecordBatch):
            return first.schema, _check_batches(itertools.chain([first], rest))
    raise ArgumentError(f"data={type(data).__name__}: {_TAKEN}")


def _refuse_other_meanings(data: Any, schema: pa.Schema) -> None:  # noqa: ANN401 - a dataset or a fragment
    """Raise a SchemaError for columns of Parquet files that Arrow reads with another meaning than Spark.

    Files are only opened if the types of the columns allow this.
    """
    names = [field.name for field in schema if may_be_unread(field.type) or has_times(field.type)]
    if not names:
        return
    for fragment in _fragments(data):
        if hasattr(fragment, "row_groups"):  # of Parquet
            metadata = fragment.metadata
            refuse_unread_types(metadata.schema)
            try:
                refuse_other_times(metadata, names)
            except SchemaError as error:
                raise SchemaError(f"{fragment.path!r}: {error}") from error


def _fragments(data: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """Yield a fragment, or the fragments of a dataset."""
    if not hasattr(data, "get_fragments"):
        yield data
        return
    try:
        fragments = list(data.get_fragments())
    except ValueError:  # no fragments of a filtered dataset: apache/arrow#36127
        for child in getattr(data, "children", ()):
            yield from _fragments(child)
        for path in getattr(data, "files", ()):
            yield data.format.make_fragment(path, data.filesystem)
    else:
        yield from fragments


def _reader_of(data: Any) -> pa.RecordBatchReader:  # noqa: ANN401 - as above
    refuse_library_columns(data)
    try:
        return pa.RecordBatchReader.from_stream(data)
    except MemoryError:
        raise
    # Such as a single column, a type that only its library has, or Python objects or large integers in a column.
    except (ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError, pa.ArrowException) as error:
        name, reason = type(data).__name__, ". ".join(map(str, error.args))
        if _ONE_COLUMN in reason:
            raise ArgumentError(
                f"data={name}: it is one column, and not a table of named columns. Give a table, such as "
                "`series.to_frame()`"
            ) from error
        if isinstance(error, OverflowError):
            raise ArgumentError(
                f"data={name}: {_column_of_overflow(data)}an integer has more than 64 bits, and Arrow cannot read it "
                f"({reason}). Convert the column before, to decimal.Decimal with at most 38 digits, to float or to str"
            ) from error
        raise ArgumentError(
            f"data={name}: Arrow cannot read it as a table: {reason}. Convert such columns before, for example to texts"
        ) from error


def _column_of_overflow(data: Any) -> str:  # noqa: ANN401 - as above
    """Return the first column of a DataFrame of pandas with integers that are too large; empty for other libraries."""
    if type(data).__module__.partition(".")[0] != "pandas":
        return ""
    for place, name in enumerate(data.columns):
        try:
            pa.RecordBatchReader.from_stream(data.iloc[:, [place]])
        except OverflowError:
            return f"column `{name}`: "
        except (ValueError, TypeError):  # another column, of which Arrow would have raised the error
            continue
    return ""


def _check_batches(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise ArgumentError(f"data: it contains a {type(batch).__name__} between record batches")
        yield batch


def stored_type(kind: pa.DataType, path: str) -> pa.DataType:
    """Return the type of Spark for a type of Arrow; a SchemaError if there is none.

    Args:
        kind: any type.
        path: of the column, for errors.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return stored_type(kind.storage_type, path)
    for is_kind, stored in _FIXED:
        if is_kind(kind):
            return stored
    for is_kind, convert in _CONVERTED:
        if is_kind(kind):
            return convert(kind, path)
    return kind


def _stored_values(kind: pa.DictionaryType, path: str) -> pa.DataType:
    return stored_type(kind.value_type, path)


def _stored_timestamp(kind: pa.TimestampType, _path: str) -> pa.DataType:
    return pa.timestamp("us", None if kind.tz is None else "UTC")


def _stored_decimal(kind: pa.DataType, path: str) -> pa.DataType:
    if not 0 <= kind.scale <= kind.precision <= _DECIMAL_DIGITS_MAX:
        raise SchemaError(
            f"column `{path}`: {kind} has no equivalent: decimals have at most {_DECIMAL_DIGITS_MAX} digits, and "
            "a scale between 0 and their digits"
        )
    return pa.decimal128(kind.precision, kind.scale)


def _refuse_null(_kind: pa.DataType, path: str) -> pa.DataType:
    raise SchemaError(
        f"column `{path}`: it has no type, because it has no values, and earlier rows do not have this column. Give "
        "the rows a schema, such as pa.Table.from_pylist(rows, schema=schema), or cast the column"
    )


def _stored_struct(kind: pa.StructType, path: str) -> pa.DataType:
    return pa.struct([_stored_field(field, f"{path}.{field.name}") for field in kind])


def _stored_map(kind: pa.MapType, path: str) -> pa.DataType:
    value = _stored_field(kind.item_field, f"{path}.value")
    return pa.map_(stored_type(kind.key_type, f"{path}.key"), value)


def _stored_list(kind: pa.DataType, path: str) -> pa.DataType:
    return pa.list_(_stored_field(kind.value_field.with_name("element"), f"{path}.element"))


def _stored_field(field: pa.Field, path: str) -> pa.Field:
    return field.with_type(stored_type(field.type, path)).remove_metadata()


def _is_string_view(kind: pa.DataType) -> bool:
    # pyarrow has functions for views from 19 on.
    return str(kind) == "string_view"


def _is_binary_view(kind: pa.DataType) -> bool:
    return str(kind) == "binary_view"


_FIXED: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (_is_string_view, pa.string()),
    (_is_binary_view, pa.binary()),
    (pa.types.is_uint8, pa.int16()),
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_uint64, pa.decimal128(20, 0)),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_date64, pa.date32()),
    (pa.types.is_time, pa.time64("us")),
)
_CONVERTED: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, str], pa.DataType]], ...] = (
    (pa.types.is_dictionary, _stored_values),
    (pa.types.is_timestamp, _stored_timestamp),
    (pa.types.is_decimal, _stored_decimal),
    (pa.types.is_null, _refuse_null),
    (pa.types.is_struct, _stored_struct),
    (pa.types.is_map, _stored_map),
    (pa.types.is_list, _stored_list),
    (pa.types.is_large_list, _stored_list),
    (pa.types.is_fixed_size_list, _stored_list),
    (pa.types.is_list_view, _stored_list),
    (pa.types.is_large_list_view, _stored_list),
)


def _convert_batches(
    batches: Iterable[pa.RecordBatch], source: pa.Schema, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield batches in a schema; a SchemaError for values that do not fit, and for batches with other columns."""
    for exported in batches:
        batch = exported.select(columns_without_labels(exported.schema))
        if not batch.schema.equals(source):
            raise SchemaError(
                f"data: a later batch has other columns than the first one: {difference(batch.schema, source)}"
            )
        _check_values(batch)
        for piece in pieces(batch, BATCH_ROWS, BATCH_BYTES):
            yield _copy_rows(_in_schema(piece, schema))
        del exported, batch  # their memory can be used for the next one


def _check_values(rows: pa.RecordBatch) -> None:
    """Raise a SchemaError for values that their type does not have, such as invalid UTF-8: few formats check them."""
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            advice = "Correct the program that made them"
            if _WIDE_DECIMAL in str(error):
                advice = (
                    "DuckDB exports a HUGEINT as a decimal of 38 digits: cast the column in the query, to DECIMAL(38, "
                    "0), which refuses larger values, or to VARCHAR. Correct other programs that made such values"
                )
            elif _END_OF_DAY.search(str(error)):
                advice = (
                    "This is 24:00:00, a time of DuckDB that Spark does not have: replace it in the query, such as "
                    "with `CASE WHEN column < '24:00:00' THEN column END`, or cast the column to VARCHAR"
                )
            raise SchemaError(f"column `{name}`: the values are not valid: {error}. {advice}") from error


def _in_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(rows.columns, schema, strict=True):
        stored = stored_values(column, field.type, field.name)
        refuse_infinite(stored, field.name)
        columns.append(stored)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _copy_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy: rows are encoded later, and a program may fill the same NumPy array with its next rows.

    Other threads free the copies. Arrow's default pool keeps such memory, so its peak would be 25 MiB higher.
    """
    return pa.concat_batches([rows, rows.slice(0, 0)], memory_pool=pa.system_memory_pool())


def difference(schema: pa.Schema, earlier: pa.Schema) -> str:
    """Return the first difference of a schema to the schema of earlier rows."""
    for field in earlier:
        position = schema.get_field_index(field.name)
        if position < 0:
            return f"there is no column `{field.name}`"
        if not schema.field(position).equals(field):
            return f"column `{field.name}` is {schema.field(position).type}, and was {field.type}"
    for field in schema:
        if earlier.get_field_index(field.name) < 0:
            return f"column `{field.name}` is new"
    return "the columns are in another order"
