"""A directory that has every type, each with its extreme values, and whose columns change by `onSchemaChange=any`."""

from __future__ import annotations

import datetime
import json
import math
import re
import shutil
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import SchemaError
from ftfile.formats.api import format_from_options
from ftfile.rows.spark_types import spark_schema_json
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence
    from pathlib import Path

UTC = datetime.timezone.utc
INT, LONG, FLOAT, DOUBLE, STRING = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()

# How a directory is written; in `paths`, every column is a partition column.
CASES = {
    "parquet": {"fileFormat": "parquet"},
    "orc": {"fileFormat": "orc"},
    "avro": {"fileFormat": "avro"},
    "json": {"fileFormat": "json"},
    "json without nulls": {"fileFormat": "json", "ignoreNullFields": "true"},
    "csv": {"fileFormat": "csv"},
    "arrow": {"fileFormat": "arrow"},
    "open parquet": {"fileFormat": "parquet", "maxBatchesPerFile": "9"},
    "open json": {"fileFormat": "json", "maxBatchesPerFile": "9"},
    "text": {"fileFormat": "text"},
    "binary": {"fileFormat": "binary", "lengthPrefix": "varint"},
    "paths": {"fileFormat": "parquet"},
}
VARIANTS = ("json without nulls", "open parquet", "open json")
ONE_COLUMN = ("text", "binary")
BATCH_ROWS = 1000  # at most


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct([*fields.items()])


def listed(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind))


def integers(bits: int) -> list[int]:
    near = [sign * 2**power + by for sign in (1, -1) for power in (24, 53) for by in (0, 1, -1)]
    found = [0, 1, -1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, *near, *(sign * 10**9 for sign in (1, -1))]
    return [number for number in dict.fromkeys(found) if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)]


def decimals(digits: int, scale: int) -> list[Decimal]:
    most = 10**digits - 1
    unscaled = dict.fromkeys([0, 1, most, most // 3, most * 10 // 29, most * 299 // 1000, 10 ** (digits - 1) + 1])
    return [Decimal((sign, tuple(map(int, str(each))), -scale)) for each in unscaled if each <= most for sign in (0, 1)]


FLOATS = [0.0, -0.0, 1.5, 0.1, -0.1, 1 / 3, math.nan, math.inf, -math.inf]
STRINGS = ["", " a b ", "1", "null", "NaN", "é🙂", "\0", 'a"b\\c', "x,y;z\ttab", "line\nline\rline", "k" * 300_000]
DATES = [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1582, 10, 15), datetime.date(2024, 2, 29)]
MOMENTS = [
    datetime.datetime(1, 1, 1),  # noqa: DTZ001 - as clocks show it
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    datetime.datetime(1969, 12, 31, 23, 59, 59),  # noqa: DTZ001
    datetime.datetime(2024, 2, 29, 1, 2, 3, 456789),  # noqa: DTZ001
]
# Digits, and those behind the point.
SHAPES = """
    1,1 2,0 3,0 4,0 5,0 6,0 6,3 6,6 7,2 9,0 10,0 10,1 11,1 12,2 15,0 15,5 15,15 16,0 18,0 18,9 19,0 20,1 21,2 28,9 38,0
    38,10 38,38
"""
DECIMALS = [(int(digits), int(scale)) for digits, scale in (shape.split(",") for shape in SHAPES.split())]
if THOROUGH:
    DECIMALS = [(digits, scale) for digits in range(1, 39) for scale in sorted({0, 1, digits // 2, digits})]

LEAVES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    **{kind: integers(kind.bit_width) for kind in (pa.int8(), pa.int16(), INT, LONG)},
    FLOAT: [*FLOATS, 3.4028234663852886e38, 1e-45, 16777217.0],
    DOUBLE: [*FLOATS, 1.7976931348623157e308, 5e-324, 9007199254740993.0],
    **{pa.decimal128(*shape): decimals(*shape) for shape in DECIMALS},
    STRING: STRINGS,
    pa.binary(): [b"", bytes(range(256)), b"\xff\xfe" * 100_000],
    pa.date32(): DATES,
    pa.timestamp("us", "UTC"): [moment.replace(tzinfo=UTC) for moment in MOMENTS],
    pa.timestamp("us"): MOMENTS,
}


def nested() -> Iterator[tuple[pa.DataType, list[Any]]]:
    """Yield types with nulls at every depth; keys of maps are in the order in which Spark returns them from ORC."""
    for kind in (INT, LONG, FLOAT, DOUBLE, pa.decimal128(6, 3), pa.decimal128(15, 5), pa.decimal128(21, 2), STRING):
        values = LEAVES[kind][:12]
        yield listed(kind), [[*values, None], [], [None]]
        yield pa.map_(STRING, kind), [[(chr(97 + place), value) for place, value in enumerate([*values, None])], []]
        yield struct(a=kind), [{"a": value} for value in [*values, None]]
    for kind in (INT, LONG, pa.decimal128(19, 0)):
        yield pa.map_(kind, STRING), [[(-1, None), (1, "x")], []]
    yield struct(b=STRING, a=INT), [{"b": "x", "a": 1}, {"b": None, "a": None}]
    yield struct(a=LONG, c=struct(d=INT)), [{"a": 2**53 + 1, "c": {"d": 1}}, {"a": 1, "c": None}]
    yield struct(c=struct(e=STRING, d=LONG), b=STRING), [{"c": {"e": "x", "d": 1}, "b": "y"}, {"c": None, "b": None}]
    yield listed(struct(a=INT)), [[{"a": 1}, None, {"a": None}], []]
    yield listed(struct(b=INT, a=LONG)), [[{"b": 1, "a": 2**53 + 1}], [None]]
    yield listed(listed(INT)), [[[1], [], None]]
    yield listed(listed(DOUBLE)), [[[0.1, None]]]
    yield pa.map_(STRING, struct(a=FLOAT)), [[("k", {"a": 0.1}), ("n", None)]]
    yield pa.map_(STRING, struct(b=STRING, a=DOUBLE)), [[("k", {"b": "x", "a": 0.1})]]


VALUES = LEAVES | dict(nested())


def is_in(case: str, value: Any) -> bool:
    """Return False for values that a directory refuses, or does not distinguish from null, as documented."""
    name = CASES[case]["fileFormat"]
    if name == "orc" and isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.year in range(1678, 2262)
    if case == "paths":
        return value != "" and len(str(value)) < 200
    return name != "text" or (b"\n" if isinstance(value, bytes) else "\n") not in value


@cache
def held(case: str) -> tuple[pa.DataType, ...]:
    """Return the types that a directory can have."""
    if case == "paths":
        return tuple(kind for kind in LEAVES if not pa.types.is_binary(kind))
    file_format = format_from_options(CASES[case]["fileFormat"], {"nullValue": "-"})

    def holds(kind: pa.DataType) -> bool:
        try:
            file_format.check_schema(pa.schema([("v", kind)]))
        except SchemaError:
            return False
        return True

    return tuple(filter(holds, VALUES))


def tables_of(case: str) -> list[tuple[pa.DataType, ...]]:
    """Return the types of columns that are written together: of all that can be, every type is in one table."""
    return [(kind,) for kind in held(case)] if CASES[case]["fileFormat"] in ONE_COLUMN else [held(case)]


@cache
def values_of(case: str, kind: pa.DataType) -> list[Any]:
    """Return values as a column of the type has them."""
    found: list[Any] = pa.array([value for value in VALUES[kind] if is_in(case, value)], kind).to_pylist()
    return found


class Changing:
    """A directory whose columns change, each from the type that it has to another one."""

    def __init__(self, path: Path, case: str, kinds: Sequence[pa.DataType]) -> None:
        self.path, self.case = path, case
        self.written: list[tuple[pa.DataType, ...]] = []  # the types of each batch
        self.write(kinds)

    def copy(self, path: Path) -> Changing:
        """Return a copy of the directory, which changes in another way."""
        shutil.copytree(self.path, path)
        found = object.__new__(Changing)
        found.path, found.case, found.written = path, self.case, [*self.written]
        return found

    def write(self, kinds: Sequence[pa.DataType]) -> None:
        """Write all values of types, one for each column, and nulls to the length of the longest column."""
        columns = [values_of(self.case, kind) for kind in kinds]
        first = BATCH_ROWS * len(self.written)
        rows = [
            {
                "n": first + row,
                **{f"c{place}": values[row] for place, values in enumerate(columns) if row < len(values)},
            }
            for row in range(self.rows_of(kinds))
        ]
        self.query(kinds).run(len(self.written), [rows])
        self.written.append(tuple(kinds))

    def rows_of(self, kinds: Sequence[pa.DataType]) -> int:
        """Return the number of rows of a batch."""
        return max(len(values_of(self.case, kind)) for kind in kinds)

    def query(self, kinds: Sequence[pa.DataType]) -> MicroBatch:
        """Return a query that writes columns of types."""
        columns = {f"c{place}": spark_type(kind) for place, kind in enumerate(kinds)}
        options = {**CASES[self.case], "onSchemaChange": "any"}
        if self.case == "paths":
            options["partitionBy"] = ",".join(columns)
        if options["fileFormat"] not in ONE_COLUMN:
            columns["n"] = "integer"
        return MicroBatch(str(self.path), columns, options)

    def refused(self, kinds: Sequence[pa.DataType]) -> set[int]:
        """Return the columns whose change to these types is refused, before a task begins."""
        try:
            self.query(kinds).pickled_plan()
        except SchemaError as error:
            return {int(place) for place in re.findall(r"[:;] c(\d+) was ", str(error))}
        return set()

    def changes(self) -> list[list[pa.DataType]]:
        """Return the types to which each column may change, according to the directory's answer for each type."""
        known, kinds = held(self.case), self.written[-1]
        found: list[list[pa.DataType]] = [[] for _ in kinds]
        for step in range(1, len(known)):
            others = [known[(known.index(kind) + step) % len(known)] for kind in kinds]
            for place in {*range(len(kinds))} - self.refused(others):
                found[place].append(others[place])
        return found

    def random_change(self, rng: random.Random) -> list[pa.DataType]:
        """Return a type for each column to which it may change, after all that was written."""
        kinds = self.written[-1]
        found = [rng.choice(each or [kind]) for each, kind in zip(self.changes(), kinds, strict=True)]
        for place in self.refused(found):  # for older rows, which are compared once the newest ones fit
            found[place] = kinds[place]
        return found

    def check(self, table: pa.Table) -> None:
        """Compare rows that were read, in any order if they are numbered, with all that were written."""
        start, order = 0, [*range(len(table))]
        if "n" in table.column_names:  # Arrow 19 ends the process where it sorts some of these types
            order.sort(key=table["n"].to_pylist().__getitem__)
        columns = table.to_pydict()
        for kinds in self.written:
            batch = order[start : start + self.rows_of(kinds)]
            start += len(batch)
            for place, (old, new) in enumerate(zip(kinds, self.written[-1], strict=True)):
                name = f"c{place}"
                assert table[name].type.equals(new)
                values = values_of(self.case, old)
                expected = [*values, *[None] * (len(batch) - len(values))]
                read = [columns[name][row] for row in batch]
                if self.case == "paths" and (old, new) == (FLOAT, DOUBLE):  # of the text in the path
                    read = [value if value is None else float(np.float32(value)) for value in read]
                pairs = zip(expected, read, strict=True)
                wrong = [pair for pair in pairs if not is_same(*pair, new)]
                assert not wrong, (old, new, wrong[:3])
        assert start == table.num_rows


def spark_type(kind: pa.DataType) -> Any:
    return json.loads(spark_schema_json(pa.schema([("v", kind)])))["fields"][0]["type"]


def is_same(old: Any, new: Any, kind: pa.DataType) -> bool:
    """Return True if a value of a type is an older value: equal, or of fractions in decimal digits the nearest one."""
    if old is None or new is None:
        return old is new
    if pa.types.is_nested(kind):
        return is_same_nested(old, new, kind)
    if not pa.types.is_floating(kind):
        expected = Decimal if pa.types.is_decimal(kind) else int if pa.types.is_integer(kind) else type(old)
        return type(new) is expected and bool(old == new)
    if isinstance(old, Decimal):
        return is_nearest(old, new, kind)
    return (math.isnan(old) and math.isnan(new)) or (old == new and math.copysign(1, old) == math.copysign(1, new))


def is_same_nested(old: Any, new: Any, kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(is_same(old.get(field.name), new[field.name], field.type) for field in kind)
    if pa.types.is_map(kind):
        kind = pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        old, new = ([dict(zip(("key", "value"), entry, strict=True)) for entry in each] for each in (old, new))
    return len(old) == len(new) and all(is_same(*pair, kind.value_type) for pair in zip(old, new, strict=True))


def is_nearest(old: Decimal, new: float, kind: pa.DataType) -> bool:
    """Return True if no number of the type is nearer to a decimal, which is the nearest one of its digits to it."""
    number = np.float32(new) if kind == FLOAT else np.float64(new)
    near = [Fraction(float(np.nextafter(number, type(number)(end)))) for end in (-math.inf, math.inf)]
    power = 10 ** len(f"{old:f}".partition(".")[2])
    return round(Fraction(new) * power) == Fraction(old) * power and all(
        abs(Fraction(new) - Fraction(old)) < abs(each - Fraction(old)) for each in near
    )
