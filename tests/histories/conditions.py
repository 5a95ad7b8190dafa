"""Random conditions on the rows of a history, with the same condition on the rows of the oracle."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from tests.histories.oracle import Oracle

    Truth = Callable[[bytes], bool | None]  # of a row; None for null

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
_SIGNS = [*_OPERATORS]
_NO_ROW = b"0|none"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as the product accepts it, and its truth for the rows of the oracle."""

    where: str | Mapping[str, object] | pc.Expression
    truth: Truth

    def matches(self, row: bytes) -> bool:
        """Return True if the condition is true for a row, neither false nor null."""
        return self.truth(row) is True


class Conditions:
    """Draws conditions on the partition column, the value and the time of rows that exist."""

    def __init__(self, draw: random.Random, oracle: Oracle, columns: Mapping[str, Any], directories: int) -> None:
        self._draw = draw
        self._rows = sorted(oracle.expected) or [_NO_ROW]
        self._times_us = oracle.event_us
        self._directories = directories
        self._has_time = "t" in columns

    def condition(self) -> Condition:
        """Return a text, which can join two comparisons, values by column, or an expression."""
        form = self._draw.randrange(6)
        if form == 0:
            return self._mapping()
        if form == 1:
            return self._expression()
        one, text = self._comparison()
        if form < 4:
            return Condition(text, one)
        two, second_text = self._comparison()
        if form == 4:
            return Condition(f"{text} AND NOT ({second_text})", lambda row: one(row) is True and two(row) is False)
        return Condition(f"{text} OR {second_text}", lambda row: one(row) is True or two(row) is True)

    def ending(self) -> Condition:
        """Return a condition that no statistics can decide: the rows that end in a digit."""
        digit = str(self._draw.randrange(10))
        return Condition(pc.ends_with(pc.field("value"), digit), lambda row: row.endswith(digit.encode()))

    def _some_rows(self, count: int) -> list[bytes]:
        return [self._draw.choice(self._rows) for _ in range(count)]

    def _some_range(self) -> tuple[bytes, bytes]:
        """Return two rows, mostly with few rows between them, so that few files contain a match."""
        begin = self._draw.randrange(len(self._rows))
        end = begin + self._draw.choice((0, 2, 5, len(self._rows)))
        return self._rows[begin], self._rows[min(end, len(self._rows) - 1)]

    def _some_directories(self) -> set[bytes]:
        return {str(self._draw.randrange(self._directories)).encode() for _ in range(2)}

    def _mapping(self) -> Condition:
        rows, directories = self._some_rows(3), self._some_directories()
        if self._draw.random() < 0.5:
            return Condition({"value": [row.decode() for row in rows]}, lambda row: row in rows)
        where = {"m": [name.decode() for name in sorted(directories)], "value": [row.decode() for row in rows]}
        return Condition(where, lambda row: row in rows and _directory(row) in directories)

    def _expression(self) -> Condition:
        if self._has_time and self._draw.random() < 0.3:
            time_us = self._time_us()
            begin = pa.scalar(time_us, pa.timestamp("us", "UTC"))
            return Condition(pc.field("t") >= begin, lambda row: self._compares(row, ">=", time_us))
        low, high = self._some_range()
        if self._draw.random() < 0.3:
            return self.ending()
        value = pc.field("value")
        return Condition((value >= low.decode()) & (value <= high.decode()), lambda row: low <= row <= high)

    def _comparison(self) -> tuple[Truth, str]:
        """Return a comparison of one column as a function and as a text."""
        subject = self._draw.choice(
            ("m", "value", "value", "value", "t") if self._has_time else ("m", "value", "value")
        )
        if subject == "m":
            directories = self._some_directories()
            return lambda row: _directory(row) in directories, f"m IN ({_texts(sorted(directories))})"
        if subject == "t":
            return self._comparison_of_time()
        form = self._draw.choice(("range", "range", "members", "sign"))
        if form == "range":
            low, high = self._some_range()
            return lambda row: low <= row <= high, f"value BETWEEN {_texts([low])} AND {_texts([high])}"
        if form == "members":
            rows = self._some_rows(3)
            return lambda row: row in rows, f"value IN ({_texts(rows)})"
        sign, (pivot,) = self._draw.choice(_SIGNS), self._some_rows(1)
        return lambda row: _is_true(row, sign, pivot), f"value {sign} {_texts([pivot])}"

    def _comparison_of_time(self) -> tuple[Truth, str]:
        if self._draw.random() < 0.3:
            return lambda row: row not in self._times_us, "t IS NULL"
        sign, time_us = self._draw.choice(_SIGNS[:4]), self._time_us()
        time = (_UNIX_EPOCH + timedelta(microseconds=time_us)).replace(tzinfo=None)
        return lambda row: self._compares(row, sign, time_us), f"t {sign} TIMESTAMP '{time.isoformat()}Z'"

    def _time_us(self) -> int:
        return self._times_us.get(self._draw.choice(self._rows), 1_704_067_200_000_000)

    def _compares(self, row: bytes, sign: str, time_us: int) -> bool | None:
        """Return the result of a comparison of the time of a row; None if the row has no time."""
        return _is_true(self._times_us[row], sign, time_us) if row in self._times_us else None


def _directory(row: bytes) -> bytes:
    return row.partition(b"|")[0]


def _texts(values: Sequence[bytes]) -> str:
    return ", ".join(f"'{value.decode()}'" for value in values)


def _is_true(one: Any, sign: str, two: Any) -> bool:
    return bool(_OPERATORS[sign](one, two))
