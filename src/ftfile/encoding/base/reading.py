"""Reading files back: rows in the schema wanted, and errors that name the file; refusing schemas."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from ftfile.arrays.nested import rebuild
from ftfile.core.errors import CorruptData, SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    Cast: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]

__all__ = ("batch_as", "batch_of", "columns_within", "corrupt", "reading_errors", "refuse", "refuse_all_but_one_text")


def corrupt(file: BinaryIO, expected: str, found: object) -> CorruptData:
    """Return the error for a file that is not what a format writes."""
    return CorruptData(str(getattr(file, "name", "")), expected, str(found))


@contextmanager
def reading_errors(file: BinaryIO, expected: str) -> Iterator[None]:
    """Raise Arrow's errors within the block as `CorruptData`; those about bytes are OSErrors."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise corrupt(file, expected, error) from error


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch that knows its number of rows even if it has no columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"]).select([])


def batch_as(batch: pa.RecordBatch, schema: pa.Schema, cast: Cast | None = None) -> pa.RecordBatch:
    """Return the rows of a batch as `schema`: columns matched by name and cast, missing ones null.

    Values are cast by `cast`, by default without a loss.

    Raises:
        pyarrow.ArrowException: a value does not fit its type.
    """
    present = set(batch.schema.names)
    columns = [
        rebuild(batch.column(column.name), column.type, cast or _cast)
        if column.name in present
        else pa.nulls(batch.num_rows, column.type)
        for column in schema
    ]
    return batch_of(columns, schema, batch.num_rows)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        # Arrow's own cast errs in the last digit; of text it takes the nearest number.
        array = array.cast(pa.string())
    return array.cast(kind)


def columns_within(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield path and type of every column and of every part of nested ones, as in `a` and `a.element.b`."""
    for field in fields:
        path, kind = prefix + field.name, field.type
        yield path, kind
        if pa.types.is_struct(kind):
            yield from columns_within(kind, f"{path}.")
        elif pa.types.is_list(kind):
            yield from columns_within([pa.field("element", kind.value_type)], f"{path}.")
        elif pa.types.is_map(kind):
            yield from columns_within([pa.field("key", kind.key_type), pa.field("value", kind.item_type)], f"{path}.")


def refuse_all_but_one_text(format_name: str, schema: pa.Schema, advice: str, cast: str) -> None:
    """Raise `SchemaError` unless a schema is one column of strings or binary values."""
    if len(schema) != 1:
        refuse(format_name, [f"columns {', '.join(schema.names)}: {format_name} has exactly one column; {advice}"])
    name, kind = schema.names[0], schema.types[0]
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        refuse(format_name, [f"column `{name}`: {kind}; use cast(`{name}` AS {cast})"])


def refuse(format_name: str, problems: Iterable[str]) -> None:
    """Raise `SchemaError` with the reasons why a format cannot hold a schema, if there are any."""
    if lines := list(problems):
        raise SchemaError(f"fileFormat={format_name} cannot hold this schema:\n  " + "\n  ".join(lines))
