"""Random filters as Spark passes them to a reader, and the rows that meet them."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as ds

from tests.kit.random_conditions import COLUMNS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

_OPERATORS: dict[type[ds.Filter], Any] = {
    ds.EqualTo: operator.eq,
    ds.EqualNullSafe: operator.eq,
    ds.GreaterThan: operator.gt,
    ds.GreaterThanOrEqual: operator.ge,
    ds.LessThan: operator.lt,
    ds.LessThanOrEqual: operator.le,
}
_TEXTS = [ds.StringStartsWith, ds.StringEndsWith, ds.StringContains]
_LAST = "\U0010ffff"


class RandomFilters:
    """Draws filters on columns and on fields of structs with these values."""

    def __init__(self, dice: random.Random, values: Mapping[tuple[str, ...], Sequence[Any]]) -> None:
        self._dice = dice
        self._values = values

    def draw(self, depth: int) -> ds.Filter:
        """Return a filter with at most `depth` negations."""
        if depth and self._dice.random() < 0.5:
            return ds.Not(self.draw(depth - 1))
        return self._leaf()

    def _leaf(self) -> ds.Filter:
        path = self._dice.choice([*self._values])
        values = self._values[path]
        spelling = tuple(self._dice.choice([name, name.upper()]) for name in path)
        value = self._dice.choice(values)
        kind = self._dice.choice(["null", "in", "text", "comparison", "comparison"])
        if kind == "null" or COLUMNS[path[0]][0] == COLUMNS["items"][0]:
            return self._dice.choice([ds.IsNull, ds.IsNotNull])(spelling)
        if kind == "in":
            count = self._dice.choice([0, 1, 2, 3, 100])
            return ds.In(spelling, tuple(self._dice.choices([*values, None], k=count)))
        if kind == "text" and isinstance(value, str):
            end = self._dice.randrange(len(value) + 1)
            return self._dice.choice(_TEXTS)(spelling, value[:end] + self._dice.choice(["", "", "a", _LAST]))
        if kind == "comparison" and self._dice.random() < 0.05:
            value = None
        comparison: Any = self._dice.choice([*_OPERATORS])
        pushed: ds.Filter = comparison(spelling, value)
        return pushed


def is_met(pushed: ds.Filter, row: Mapping[str, Any]) -> bool | None:
    """Return True, False or, as in SQL, None for null."""
    if isinstance(pushed, ds.Not):
        answer = is_met(pushed.child, row)
        return None if answer is None else not answer
    return _is_leaf_met(pushed, _value_at(row, getattr(pushed, "attribute")))  # noqa: B009 - the class has no attribute


def _is_leaf_met(pushed: ds.Filter, value: Any) -> bool | None:
    if isinstance(pushed, ds.IsNull | ds.IsNotNull):
        return (value is None) == isinstance(pushed, ds.IsNull)
    literal = getattr(pushed, "value")  # noqa: B009 - the class has no value
    if isinstance(pushed, ds.In):
        return _is_in(value, literal)
    if isinstance(pushed, ds.EqualNullSafe) and (value is None or literal is None):
        return value is None and literal is None
    if value is None or literal is None:
        return None
    if isinstance(pushed, ds.StringStartsWith | ds.StringEndsWith | ds.StringContains):
        return _is_part(pushed, value)
    return bool(_OPERATORS[type(pushed)](_order(value), _order(literal)))


def _is_in(value: Any, literals: Sequence[Any]) -> bool | None:
    if not literals:
        return False
    if value is None:
        return None
    if _order(value) in [_order(literal) for literal in literals if literal is not None]:
        return True
    return None if None in literals else False


def _is_part(pushed: ds.StringStartsWith | ds.StringEndsWith | ds.StringContains, value: str) -> bool:
    if isinstance(pushed, ds.StringStartsWith):
        return value.startswith(pushed.value)
    if isinstance(pushed, ds.StringEndsWith):
        return value.endswith(pushed.value)
    return pushed.value in value


def _order(value: Any) -> Any:
    """Return a key of Spark's order: NaN is equal to itself and greater than all other numbers."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value


def _value_at(row: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = row
    for name in path:
        if value is None:
            return None
        value = next(value[key] for key in value if key.lower() == name.lower())
    return value
