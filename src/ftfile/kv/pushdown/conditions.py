"""Conditions on key columns, in stored values."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa

from ftfile.core.errors import ConfigError
from ftfile.kv.user_keys import UserKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_values import Key

__all__ = ("Comparison", "Condition", "behind", "condition_of")

Comparison: TypeAlias = Literal["in", ">", ">=", "<", "<="]

_DAYS_MAX = (date.max - date(1970, 1, 1)).days
_MICROSECONDS_MAX = int(datetime.max.replace(microsecond=0, tzinfo=timezone.utc).timestamp()) * 1_000_000 + 999_999


class Condition(NamedTuple):
    """Values that a key column may have.

    Attributes:
        column: of the key.
        values: the only ones; None for all that are within the bounds.
        start: the least value; None for any.
        end: greater than all values; None for any.
    """

    column: str
    values: frozenset[int | bytes] | None = None
    start: int | bytes | None = None
    end: int | bytes | None = None


def condition_of(
    definition: StoreDefinition, column: str, comparison: Comparison, values: Sequence[Any]
) -> Condition | None:
    """Return the condition that a key column is among values, or compares so to the only one.

    Args:
        definition: of the store.
        column: its name.
        comparison: how.
        values: as users have them; a null is equal to no value of a key.

    Returns:
        None if the values are not of the column's type.
    """
    to_stored = UserKeys(replace(definition, keys=(column,))).to_stored
    try:
        stored = [value for (value,) in (to_stored(value) for value in values if value is not None)]
    except (ConfigError, TypeError):
        return None
    if comparison == "in":
        return Condition(column, frozenset(stored))
    if len(stored) != 1:
        return None
    (value,) = stored
    following = _following(value, definition.schema.field(column).type)
    found = {
        ">=": Condition(column, start=value),
        "<": Condition(column, end=value),
        ">": Condition(column, frozenset()) if following is None else Condition(column, start=following),
        "<=": Condition(column, end=following),
    }
    return found[comparison]


def behind(prefix: Key, definition: StoreDefinition) -> Key | None:
    """Return the least prefix behind all keys that begin with one; None if nothing is."""
    for place in reversed(range(len(prefix))):
        following = _following(prefix[place], definition.schema.field(definition.keys[place]).type)
        if following is not None:
            return (*prefix[:place], following)
    return None


def _following(value: int | bytes, kind: pa.DataType) -> int | bytes | None:
    """Return the next value of a type; None behind the last one."""
    if isinstance(value, bytes):
        return value + b"\0"
    return None if value >= _greatest(kind) else value + 1


def _greatest(kind: pa.DataType) -> int:
    """Return the greatest stored value that Python can show."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_date32(kind):
        return _DAYS_MAX
    if pa.types.is_timestamp(kind):
        return _MICROSECONDS_MAX
    if pa.types.is_decimal128(kind):
        return int(10**kind.precision) - 1
    return int(1 << (kind.bit_width - 1)) - 1
