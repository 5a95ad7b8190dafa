"""Columns whose bytes only the library that made them can interpret, such as addresses of Python objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ftfile.core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_EXTENSION = b"ARROW:extension:name"  # of a type that pyarrow does not know
_REMEDIES = {
    "arrow.opaque": "only the library that made them can read the values. Cast the column in a query of the library, "
    "such as to VARCHAR",
    "pandas.period": "the values are numbers of periods, without their frequency. Convert the column, such as with "
    '`df["column"].dt.to_timestamp()` or `.astype(str)`',
}
_OBJECTS = (
    "the values are memory addresses of Python objects, as which Polars exports a column of type Object. Convert the "
    "column in Polars before, such as with `pl.col(name).map_elements(str, return_dtype=pl.String)`"
)
_WIDE = (
    "it has integers of 128 bits, which Polars exports in its own form, and Spark does not have. Cast the column in "
    "Polars before, such as to `pl.Decimal(38, 0)` or `pl.String`"
)
_OF_POLARS = {"Object": _OBJECTS, "Int128": _WIDE, "UInt128": _WIDE}
# Types of DuckDB that Arrow does not have, or whose values become other values in Arrow, which does not show it, as in
# duckdb/duckdb-python#568 and duckdb/duckdb#11906.
_OF_DUCKDB = {
    "bit": "exports values of its type BIT as bytes that only DuckDB can read. Cast the column in the query, such as "
    "to VARCHAR",
    "uhugeint": "exports values of its type UHUGEINT as decimals with 38 digits, and larger values as other numbers. "
    "Cast the column in the query to DECIMAL(38, 0), which refuses them, or to VARCHAR",
    "time with time zone": "exports values of its type TIME WITH TIME ZONE without their offset. Cast the column in "
    "the query, such as to VARCHAR",
    "variant": "does not export values of its type VARIANT. Cast the column in the query, such as to JSON or VARCHAR",
    "type": "does not export values of its type TYPE. Cast the column in the query, such as to VARCHAR",
}
_ADDRESS_BYTES = 8
_ADDRESSES = 1 << 32, 1 << 48  # of objects of a process
_ALIGNED = 7  # low bits that are 0 in addresses


def refuse_library_columns(data: Any) -> None:  # noqa: ANN401 - of any library
    """Raise a SchemaError for columns that their library does not export, or exports as bytes without a meaning."""
    library = type(data).__module__.partition(".")[0]
    if library == "polars":
        # A Series is a column, but a Series of structs is a table.
        columns = {data.name: data.dtype} if hasattr(data, "dtype") else getattr(data, "schema", {})
        for name, kind in columns.items():
            for inner in _types_of_polars(kind):
                if inner in _OF_POLARS:
                    raise SchemaError(f"column `{name}`: {_OF_POLARS[inner]}")
    if library in {"duckdb", "_duckdb"}:
        for name, kind in zip(data.columns, data.types, strict=True):
            for inner in _types_of_duckdb(kind):
                if inner in _OF_DUCKDB:
                    raise SchemaError(f"column `{name}`: DuckDB {_OF_DUCKDB[inner]}")


def _types_of_polars(kind: Any) -> Iterator[str]:  # noqa: ANN401 - a type of Polars
    """Yield the name of a type and of all types within it."""
    yield str(kind)
    for field in getattr(kind, "fields", ()):
        yield from _types_of_polars(field.dtype)
    for name in ("inner", "key", "value"):  # of lists, arrays and maps
        if getattr(kind, name, None) is not None:
            yield from _types_of_polars(getattr(kind, name))


def _types_of_duckdb(kind: Any) -> Iterator[str]:  # noqa: ANN401 - a type of DuckDB
    """Yield the name of a type and of all types within it, in lower case."""
    yield str(kind.id).lower()
    if kind.id in {"list", "array", "struct", "map", "union"}:
        for _, inner in kind.children:
            if hasattr(inner, "id"):
                yield from _types_of_duckdb(inner)


def refuse_opaque(schema: pa.Schema) -> None:
    """Raise a SchemaError for columns of a type that marks values as opaque, also within other columns."""
    for path, field in _fields(schema, ""):
        name = _extension_name(field)
        if name in _REMEDIES:
            raise SchemaError(f"column `{path}` is of type {_type_text(field, name)}: {_REMEDIES[name]}")


def _fields(fields: Iterable[pa.Field], parent: str) -> Iterator[tuple[str, pa.Field]]:
    for field in fields:
        path = f"{parent}{field.name}"
        yield path, field
        kind = field.type
        while isinstance(kind, pa.BaseExtensionType) or pa.types.is_dictionary(kind):
            kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind.value_type
            yield path, field.with_type(kind).remove_metadata()
        yield from _fields((kind.field(number) for number in range(kind.num_fields)), f"{path}.")


def _extension_name(field: pa.Field) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    name: bytes = (field.metadata or {}).get(_EXTENSION, b"")
    return name.decode(errors="replace")


def _type_text(field: pa.Field, name: str) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type)
    return name


def refuse_addresses(array: pa.Array, path: str) -> None:
    """Raise a SchemaError if all values of an array of 8-byte values are addresses of Python objects.

    Polars exports Objects as such values, and the type does not show it. Other values, such as hashes, are never all
    aligned numbers below the end of a process's memory.
    """
    kind = array.type
    if not pa.types.is_fixed_size_binary(kind) or kind.byte_width != _ADDRESS_BYTES or array.null_count == len(array):
        return
    numbers = array.view(pa.uint64())
    bounds = pc.min_max(numbers).as_py()
    first, end = _ADDRESSES
    if bounds["min"] < first or bounds["max"] >= end:
        return
    if pc.max(pc.bit_wise_and(numbers, pa.scalar(_ALIGNED, pa.uint64()))).as_py() == 0:
        raise SchemaError(f"column `{path}`: {_OBJECTS}")
