"""Random rows of every type that a condition compares, and random conditions on them with their DuckDB equivalents.

A condition is drawn piece by piece in both dialects. A literal that means the same in both dialects has the same text.
Times are written out for DuckDB, which has neither the time zone of a directory nor ftfile's forms of a timestamp.
"""

from __future__ import annotations

import datetime
import functools
import math
import operator
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow.compute as pc

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

NAN, INFINITY = math.nan, math.inf
UTC = datetime.timezone.utc
SIGNS = ["=", "==", "!=", "<>", "<", "<=", ">", ">="]
_OPERATORS = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, ">=": operator.ge}
_NULLS = 0.15  # share of the values

_DAYS = [datetime.date(1969, 12, 31), datetime.date(2024, 7, 1), datetime.date(2024, 7, 2), datetime.date(2024, 10, 27)]
# whole seconds before 1970, because of ORC
_TIMES = ["1969-12-31T23:59:59", "2024-07-01T00:00:00", "2024-07-01T12:00:00.500000"]
_TIMES += ["2024-10-27T01:30:00.000001", "2024-10-27T02:30:00"]
_CLOCKS = [*map(datetime.datetime.fromisoformat, _TIMES)]
_TEXTS = ["", "a", "A", "b'c", 'say "hi", ok', "back\\slash", "%_", "ß", "e\u0301", "\u00e9", "\uffff", "😀", " a "]
_TEXTS += ["line\nend", "NULL", "null", "\\N", "7", "NaN", "__HIVE_DEFAULT_PARTITION__"]

PAIR = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": "long", "nullable": True, "metadata": {}},
        {"name": "b", "type": "string", "nullable": True, "metadata": {}},
    ],
}
ITEMS = {"type": "array", "elementType": "long", "containsNull": True}
# By column: its type in Spark's JSON, and the values drawn.
COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "small": ("byte", [-128, -1, 0, 1, 7, 127]),
    "Number": ("long", [-(2**31), -7, 0, 7, 99, 2**31 - 1]),
    "in": ("long", [-(2**63), -(2**53) - 1, 0, 2**53, 2**53 + 1, 2**63 - 1]),
    "real": ("double", [-0.0, 0.0, 0.1, 1.5, -1.5, 5e-324, 1e300, NAN, INFINITY, -INFINITY]),
    "ratio": ("float", [-0.0, 0.0, 0.5, 0.10000000149011612, NAN, INFINITY, -INFINITY]),
    "price": ("decimal(5,2)", [Decimal("-7.50"), Decimal("0.00"), Decimal("7.05"), Decimal("999.99")]),
    "amount": ("decimal(38,3)", [Decimal("-0.001"), Decimal("0.000"), Decimal("9" * 35 + ".999")]),
    "City": ("string", _TEXTS),
    "raw": ("binary", [b"", b"a", b"b'c", b"\xff\x00", b"\x00"]),
    "date": ("date", _DAYS),
    "at": ("timestamp", [clock.replace(tzinfo=UTC) for clock in _CLOCKS]),
    "local": ("timestamp_ntz", _CLOCKS),
    "flag": ("boolean", [True, False]),
    "pair": (PAIR, [{"a": 7, "b": None}, {"a": None, "b": "x"}, {"a": 8, "b": "y"}, {"a": None, "b": None}]),
    "items": (ITEMS, [[], [7], [None]]),
}
NESTED = frozenset({"pair", "items"})
# Types of rows that were written before a column was widened.
NARROW = {"Number": "integer", "ratio": "float", "price": "decimal(5,2)"}
WIDE = {"ratio": "double", "price": "decimal(9,4)"}
# Literals with the same meaning in both dialects.
_LITERALS = {
    "small": ["0", "-1", "7", "127", "1.0", "'7'"],
    "Number": ["0", "-7", "7", "07", "99", "7.0", "2147483647", "'99'"],
    "in": ["0", "9007199254740993", "-9007199254740993", "9223372036854775807", "'9007199254740992'"],
    "real": ["0", "-0.0", "0.1", "1.5", "-1.5e0", ".5", "1e300", "'NaN'", "'Infinity'", "'-Infinity'"],
    "ratio": ["0", "-0.0", "0.5", "0.1", "-1.", "'NaN'", "'Infinity'", "'-Infinity'"],
    "price": ["7.05", "7", "-7.5", "0", "999.99", "'7.05'"],
    "amount": ["0", "-0.001", "0.5", f"{'9' * 35}.999"],
    "City": [f"""'{text.replace("'", "''")}'""" for text in _TEXTS],
    "raw": ["'a'", "'b''c'", "''"],
    "date": ["DATE '2024-07-01'", "date '1969-12-31'", "'2024-07-02'", "TIMESTAMP '2024-07-02 00:00:00'"],
    "at": [],
    "local": [],
    "flag": ["TRUE", "false", "'true'"],
}
_LITERALS["date"] += ["DATE '2024-07-02' - INTERVAL 1 DAY", "DATE '2024-07-01' + 1"]


class Condition(NamedTuple):
    """A condition in the form of ftfile and in the form of DuckDB."""

    where: Any
    sql: str


class RandomConditions:
    """Draws rows, and conditions on columns with these names in a directory whose time zone is `time_zone`.

    `more` contains additional values by column.
    """

    def __init__(
        self,
        dice: random.Random,
        columns: list[str],
        time_zone: str,
        more: Mapping[str, list[Any]] = MappingProxyType({}),
    ) -> None:
        self._dice = dice
        self._columns = columns
        self._compared = [name for name in columns if name not in NESTED]
        self._zone = ZoneInfo(time_zone)
        self._values = {name: [*COLUMNS[name][1], *more.get(name, [])] for name in columns}
        self._texts = [sql_literal(text) for text in more.get("City", [])]

    def rows(self, first: int, count: int) -> list[dict[str, Any]]:
        """Return rows with the numbers from `first` on as `id`."""
        return [{"id": first + place} | {name: self._value(name) for name in self._columns} for place in range(count)]

    def condition(self) -> Condition:
        """Return a condition: mostly a text, otherwise values by column or an expression."""
        chance = self._dice.random()
        if chance < 0.1:
            return self._mapping()
        if chance < 0.2 and "pair" in self._columns:
            return self._expression()
        return self._text(self._dice.randrange(5))

    def _value(self, name: str) -> Any:
        return None if self._dice.random() < _NULLS else self._dice.choice(self._values[name])

    def _text(self, depth: int) -> Condition:
        if not depth or self._dice.random() < 0.2:
            return self._comparison()
        one, two = self._text(depth - 1), self._text(depth - 1)
        form = self._dice.choice(["{} AND {}", "{} or {}", "not ({})", "NOT {}", "({} OR {})", "({}) AND NOT ({})"])
        return Condition(form.format(one.where, two.where), form.format(one.sql, two.sql))

    def _comparison(self) -> Condition:
        if self._dice.random() < 0.05:
            return self._both(self._dice.choice(["TRUE", "FALSE", "NULL", "null"]))
        name = self._dice.choice(self._columns)
        spelling = self._dice.choice([name, name.upper(), f"`{name}`"])
        column = Condition(f"`{spelling}`" if spelling.lower() == "in" else spelling, f'"{name}"')
        no = self._dice.choice(["", "NOT "])
        if name in NESTED or self._dice.random() < 0.1:
            return _filled("{} IS " + no + "NULL", column)
        one, two, three = (self._literal(name) for _ in range(3))
        forms = [f"{{}} {sign} {{}}" for sign in SIGNS] + [f"{{}} {no}BETWEEN {{}} AND {{}}"] * 3
        forms += [f"{{}} {no}IN ({{}}, {{}}, {{}})", f"{{}} {no}IN ({{}})"] * 2 + ["{}"] * (2 * (name == "flag"))
        form = self._dice.choice(forms)
        if form.count("{}") == 2 and "IN" not in form and self._dice.random() < 0.3:
            return _filled(form, one, column)
        return _filled(form, column, one, two, three)

    def _literal(self, name: str) -> Condition:
        if self._dice.random() < 0.07:
            return self._both("NULL")
        if name in ("at", "local"):
            return self._time(is_instant=name == "at")
        texts = _LITERALS[name]
        if name == "City":
            texts = [*texts, *self._texts]
        text = self._dice.choice(texts)
        if name == "City" and self._dice.random() < 0.2 and '"' not in text:
            return Condition('"' + text[1:-1].replace("''", "'") + '"', text)
        return self._both(text)

    def _time(self, *, is_instant: bool) -> Condition:
        """Return a time in one of its forms: in the time zone of the directory, or with an offset."""
        clock = self._dice.choice(_CLOCKS)
        form = self._dice.choice(["day", "clock", "offset", "later"])
        if form == "day":
            clock = datetime.datetime.combine(clock.date(), datetime.time())
            text = f"DATE '{clock.date()}'"
        elif form == "offset":
            hours = self._dice.choice([0, -5, 2])
            zone = datetime.timezone(datetime.timedelta(hours=hours))
            text = f"'{clock.isoformat()}" + (f"{hours:+03}:00'" if hours else "Z'")
            clock = clock.replace(tzinfo=zone).astimezone(self._zone)
        else:
            text = f"'{clock.isoformat(sep=self._dice.choice(' T'))}'"
            if form == "later":
                text, clock = f"TIMESTAMP {text} + INTERVAL 1 DAY", clock + datetime.timedelta(days=1)
        if form not in ("day", "later") and self._dice.random() < 0.5:
            text = f"TIMESTAMP {text}"
        if is_instant:
            clock = clock if clock.tzinfo else clock.replace(tzinfo=self._zone)
            return Condition(text, sql_literal(clock.astimezone(UTC)))
        return Condition(text, sql_literal(clock.replace(tzinfo=None)))

    def _mapping(self) -> Condition:
        names = self._dice.sample(self._compared, self._dice.choice([1, 1, 2]))
        values = {name: self._dice.choices([None, *self._values[name]], k=self._dice.choice([1, 4])) for name in names}
        sql = []
        for name, members in values.items():
            literals = [sql_literal(value) for value in members if value is not None] or ["NULL"]
            sql.append(f'("{name}" IN ({", ".join(literals)})' + f' OR "{name}" IS NULL' * (None in members) + ")")
        where = {name: members[0] if len(members) == 1 else members for name, members in values.items()}
        return Condition(where, " AND ".join(sql))

    def _expression(self) -> Condition:
        sign, number = self._dice.choice([*_OPERATORS]), self._dice.choice([7, 8])
        of_field = Condition(_OPERATORS[sign](pc.field("pair", "a"), number), f"pair.a {sign} {number}")
        text = Condition(pc.field("pair", "b").is_null(), "pair.b IS NULL")
        of_column = Condition(_OPERATORS[sign](pc.field("Number"), number), f'"Number" {sign} {number}')
        one, two = self._dice.sample([of_field, text, of_column], 2)
        joined = [Condition(one.where & ~two.where, f"{one.sql} AND NOT ({two.sql})")]
        joined += [Condition(one.where | two.where, f"{one.sql} OR {two.sql}"), Condition(~one.where, f"NOT {one.sql}")]
        return self._dice.choice(joined)

    @staticmethod
    @functools.cache
    def _both(text: str) -> Condition:
        return Condition(text, text)


def _filled(form: str, *pieces: Condition) -> Condition:
    return Condition(form.format(*(piece.where for piece in pieces)), form.format(*(piece.sql for piece in pieces)))


def sql_literal(value: object) -> str:
    """Return a value as a literal of DuckDB, which casts it to the type of the compared column."""
    if value is None or isinstance(value, bool | int | Decimal):
        return "NULL" if value is None else str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"'{value}'"
    if isinstance(value, bytes):
        return "'" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB"
    if isinstance(value, datetime.datetime):
        return f"TIMESTAMP{'TZ' * (value.tzinfo is not None)} '{value.isoformat(sep=' ')}'"
    quoted = "'" + str(value).replace("'", "''") + "'"
    return f"DATE {quoted}" if isinstance(value, datetime.date) else quoted
