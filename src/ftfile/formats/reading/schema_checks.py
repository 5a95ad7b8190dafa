"""Checks that a format can store a schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import SchemaError
from ftfile.rows.spark_types import is_variant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


__all__ = ("check_one_text_column", "check_problems", "check_variants", "list_columns_within")


def list_columns_within(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[tuple[str, pa.DataType]]:
    """Yield path and type of every column, also of nested ones, such as `a` and `a.element.b`."""
    for field in fields:
        path, kind = prefix + field.name, field.type
        yield path, kind
        if pa.types.is_struct(kind):
            yield from list_columns_within(kind, f"{path}.")
        elif pa.types.is_list(kind):
            yield from list_columns_within([pa.field("element", kind.value_type)], f"{path}.")
        elif pa.types.is_map(kind):
            yield from list_columns_within(
                [pa.field("key", kind.key_type), pa.field("value", kind.item_type)], f"{path}."
            )


def check_one_text_column(format_name: str, schema: pa.Schema, advice: str, cast: str) -> None:
    """Raise `SchemaError` unless a schema is one column of strings or binary values."""
    if len(schema) != 1:
        check_problems(
            format_name, [f"columns {', '.join(schema.names)}: {format_name} has exactly one column; {advice}"]
        )
    name, kind = schema.names[0], schema.types[0]
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
        check_problems(format_name, [f"column `{name}`: {kind}; use cast(`{name}` AS {cast})"])


def check_variants(format_name: str, schema: pa.Schema, fault: str = "") -> None:
    """Raise `SchemaError` for columns of VARIANT, by default because the format does not support the type."""
    what = fault or f"VARIANT, which {format_name} does not support; use to_json(column)"
    check_problems(
        format_name,
        (f"column `{path}`: {what}, or parquet" for path, kind in list_columns_within(schema) if is_variant(kind)),
    )


def check_problems(format_name: str, problems: Iterable[str]) -> None:
    """Raise `SchemaError` with the reasons why a format cannot store a schema, if there are any."""
    if lines := list(problems):
        raise SchemaError(f"fileFormat={format_name} cannot hold this schema:\n  " + "\n  ".join(lines))
