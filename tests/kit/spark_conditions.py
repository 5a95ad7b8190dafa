"""Random conditions in the words of Spark, with literals of any type: in many of them, Spark casts the column."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tests.kit.random_conditions import COLUMNS, NESTED

if TYPE_CHECKING:
    import random

ZONES = ("UTC", "Europe/Berlin", "America/New_York")
# Local times that exist twice, in Europe and in America, and others next to a gap.
TWICE = [*map(dt.datetime.fromisoformat, ["2024-10-27T02:30:00", "2024-11-03T01:30:00"])]
_CLOCKS = [*TWICE, *map(dt.datetime.fromisoformat, ["2024-03-31T01:30:00", "2024-03-10T03:30:00"])]
# The instants of these times.
_INSTANTS = ["2024-10-27T00:30", "2024-10-27T01:30", "2024-11-03T05:30", "2024-11-03T06:30"]
_INSTANTS += ["2024-03-31T00:30", "2024-03-31T01:30", "2024-03-10T06:30", "2024-03-10T07:30"]
MORE: dict[str, list[Any]] = {
    "at": [dt.datetime.fromisoformat(f"{text}:00+00:00") for text in _INSTANTS],
    "local": _CLOCKS,
    "date": [dt.date(2024, 11, 3), dt.date(2024, 3, 31)],
    "City": ["07", " 7 ", "7.0", "0", "-1", "2024-10-27", "2024-10-27 02:30:00", "true", "TRUE", "abc", "1.5"],
}
_NUMBERS = ["0", "7", "-1", "127", "300", "2147483648", "9007199254740992.0D", "9007199254740993", "7.0", "7.5", "7.05"]
_NUMBERS += ["0.5", "0.1D", "0.5F", "0.1F", "-0.0D", "1e300", "double('NaN')", "float('Infinity')", "999.990", "1.5D"]
_TEXTS = ["7", " 7 ", "07", "7.0", "-1", "0", "abc", "", "a", "A", " a ", "true", "TRUE", "t", "NaN", "Infinity", "1.5"]
_TEXTS += ["2024-07-01", "2024-7-1", " 2024-07-01 ", "2024-07-01 12:00:00.5", "2024-10-27T02:30:00", "2024-10-27"]
_TEXTS += ["2024-10-27 02:30:00+01:00", "2024-10-27 02:30:00", "2024-11-03 01:30:00", "2024-03-31 02:30:00"]
_TEXTS += ["2024-10-27 02:30", "2024-03-10 02:30:00", "2024", "1969-12-31 23:59:59"]
_TIMES = [f"{kind} '{clock}'" for kind in ("TIMESTAMP", "TIMESTAMP_NTZ") for clock in _CLOCKS]
_TIMES += [
    "TIMESTAMP '2024-03-31 02:30:00'",
    "TIMESTAMP '2024-10-27 01:30:00Z'",
    "DATE '2024-10-27'",
    "DATE '2024-7-1'",
]
_LITERALS = [*_NUMBERS, *[f"'{text}'" for text in _TEXTS], *_TIMES, "TRUE", "FALSE", "NULL", "X'61'", "X'FF00'"]
_SIGNS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]
_CASTS = ["CAST({} AS STRING)", "CAST({} AS DOUBLE)", "CAST({} AS DATE)", "CAST({} AS TIMESTAMP)", "CAST({} AS INT)"]
_LONG = 14  # values of a list that Spark compares as a set
_FAMILIARITY = 0.6  # share of the literals that are values of the column


class SparkConditions:
    """Draws conditions on these columns in a session whose time zone is `time_zone`."""

    def __init__(self, dice: random.Random, columns: list[str], time_zone: str) -> None:
        self._dice = dice
        self._zone = ZoneInfo(time_zone)
        self._columns = [name for name in columns if name not in NESTED]
        self._values = {name: [*COLUMNS[name][1], *MORE.get(name, [])] for name in self._columns}
        self._columns += [name for name in ["at"] * 5 if name in columns]

    def condition(self) -> str | dict[str, Any]:
        """Return a text, or values by column."""
        if self._dice.random() < 0.4:
            return self.mapping()
        return self.text(self._dice.choice([0, 0, 1, 2]))

    def mapping(self) -> dict[str, Any]:
        """Return values by column: values of its type, values of other types, and texts."""
        where = {}
        for name in self._dice.sample(self._columns, self._dice.choice([1, 1, 1, 2])):
            values = [self._value(name) for _ in range(self._dice.choice([1, 1, 1, 3]))]
            where[name] = values[0] if len(values) == 1 else values
        return where

    def text(self, depth: int) -> str:
        """Return a text in which at most `depth` conditions are nested."""
        if not depth:
            return self._comparison()
        one, two = self.text(depth - 1), self.text(depth - 1)
        form = self._dice.choice(["({}) AND ({})", "({}) OR ({})", "NOT ({})", "({}) AND NOT ({})"])
        return form.format(one, two)

    def _comparison(self) -> str:
        name = self._dice.choice(self._columns)
        column = f"`{name}`"
        if self._dice.random() < 0.1:
            column = self._dice.choice(_CASTS).format(column)
        no, sign = self._dice.choice(["", "NOT "]), self._dice.choice(_SIGNS)
        one, two, three = (self._literal(name) for _ in range(3))
        forms = [f"{column} {sign} {one}"] * 3 + [f"{one} {sign} {column}", f"{column} {no}BETWEEN {one} AND {two}"]
        forms += [f"{column} {no}IN ({one}, {two}, {three})", f"{column} IS {no}NULL", f"{column} {no}IN ({one})"]
        if name == "flag":
            forms.append(f"{no}`{name}`")
        if name == "City":
            forms += [f"{column} {no}LIKE '{self._dice.choice('a7 ')}%'", f"{column} {no}LIKE '%7'"]
        many = ", ".join(self._own(name) for _ in range(_LONG))
        forms.append(f"{column} {no}IN ({many})")
        return self._dice.choice(forms)

    def _literal(self, name: str) -> str:
        if self._dice.random() < _FAMILIARITY:
            return self._own(name)
        return self._dice.choice(_LITERALS)

    def _own(self, name: str) -> str:
        """Return a value of a column as a literal of its type."""
        return literal(self._dice.choice(self._values[name]))

    def _value(self, name: str) -> Any:
        value = self._dice.choice(self._values[name])
        if name == "at" and self._dice.random() < 0.6:
            return str(self._dice.choice(TWICE))
        form = self._dice.choice(["own", "own", "text", "text", "any text", "number", "null"])
        if form == "own":
            return value
        if form == "text":
            return self._as_text(value)
        if form == "any text":
            return self._dice.choice(_TEXTS)
        return self._dice.choice([0, 7, 7.0, 0.1, True, 2**53, float(2**53)]) if form == "number" else None

    def _as_text(self, value: Any) -> str:
        if isinstance(value, bytes):
            return value.decode("latin-1")
        if isinstance(value, dt.datetime):
            return f"{value.astimezone(self._zone) if value.tzinfo else value:%Y-%m-%d %H:%M:%S}"
        return str(value)


def literal(value: Any) -> str:
    """Return a value as a literal of Spark in the type of the value."""
    if isinstance(value, bool | bytes):
        return f"X'{value.hex()}'" if isinstance(value, bytes) else str(value).upper()
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, dt.datetime):
        kind = "TIMESTAMP" if value.tzinfo else "TIMESTAMP_NTZ"
        return f"{kind} '{value.isoformat(sep=' ')}'"
    if isinstance(value, int):
        return "(-9223372036854775807 - 1)" if value == -(2**63) else str(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"DATE '{text}'" if isinstance(value, dt.date) else f"'{text}'"


def _number(value: float | Decimal) -> str:
    if isinstance(value, Decimal):
        return f"{value}BD"
    return f"{value!r}D" if math.isfinite(value) else f"double('{value}')"
