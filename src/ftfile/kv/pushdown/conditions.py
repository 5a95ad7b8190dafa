"""Conditions on key columns, in stored values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ftfile.core.errors import ConfigError
from ftfile.kv.key_ranges import behind
from ftfile.kv.user_keys import UserKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.kv.definition import StoreDefinition

Comparison: TypeAlias = Literal["in", ">", ">=", "<", "<="]


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
    """Return the condition that a key column is among values of users, or compares so to the only one.

    A null is equal to no value of a key. None comes back if the values are not of the column's type.
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
    following = behind((value,), [definition.schema.field(column).type])
    found = {
        ">=": Condition(column, start=value),
        "<": Condition(column, end=value),
        ">": Condition(column, frozenset()) if following is None else Condition(column, start=following[0]),
        "<=": Condition(column, end=None if following is None else following[0]),
    }
    return found[comparison]
