"""Refusing schemas: every column that a format cannot hold, in one error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("columns_within", "refuse")


def columns_within(schema: pa.Schema) -> Iterator[tuple[str, pa.DataType]]:
    """Yield path and type of every column and of every part of nested ones, as in `a` and `a.element.b`."""
    for column in schema:
        yield from _within(column.name, column.type)


def _within(path: str, arrow: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    yield path, arrow
    if pa.types.is_struct(arrow):
        for child in arrow:
            yield from _within(f"{path}.{child.name}", child.type)
    elif pa.types.is_list(arrow):
        yield from _within(f"{path}.element", arrow.value_type)
    elif pa.types.is_map(arrow):
        yield from _within(f"{path}.key", arrow.key_type)
        yield from _within(f"{path}.value", arrow.item_type)


def refuse(format_name: str, problems: Iterable[str]) -> None:
    """Raise if there are any.

    Raises:
        SchemaError: lists them.
    """
    lines = list(problems)
    if lines:
        raise SchemaError(f"fileFormat={format_name} cannot hold this schema:\n  " + "\n  ".join(lines))
