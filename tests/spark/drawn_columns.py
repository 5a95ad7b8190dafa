"""Values of columnar files at the limits of their types, and the types with which Spark and ftfile read them."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ("AVRO", "COLUMNS", "Draw", "drawn")

if TYPE_CHECKING:
    from typing import TypeAlias

    Draw: TypeAlias = Callable[[Random], Any]

_DAY_US = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_FIRST_ORC_DAY, _LAST_ORC_DAY = -106_000, 106_000
_TEXTS = ("", "a", "é😀", "\0", "a\nb", " x ", "\ufeff", "1", "-5.5", "true", "2024-01-01 10:00:00", '"', "\\")
_FLOATS = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 1.5, 0.1, 1e-45, 5e-324, 16777217.0, 3.4e38)


def _integers(bits: int, *, signed: bool = True) -> Draw:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)

    def draw(random: Random) -> int:
        bound = 1 << random.choice((7, 8, 15, 16, 24, 31, 32, 53, 63))
        near = random.choice((-1, 1)) * bound + random.randint(-1, 1)
        size = 1 << random.choice((6, 15, 30, 50))
        value = random.choice((low, high, low + 1, high - 1, 0, near, near, random.randint(-size, size)))
        return min(max(value, low), high)

    return draw


def _float(random: Random) -> float:
    value: float = struct.unpack("<f", random.randbytes(4))[0]
    return random.choice((value, value, random.choice(_FLOATS)))


def _double(random: Random) -> float:
    value: float = struct.unpack("<d", random.randbytes(8))[0]
    return random.choice((value, value, random.choice(_FLOATS)))


def _decimals(precision: int, scale: int) -> Draw:
    def draw(random: Random) -> Decimal:
        most = 10**precision - 1
        few = 10 ** min(precision, 4) - 1
        rounded = random.randint(-9, 9) * 10 ** min(scale, precision - 1)
        digits = random.choice((random.randint(-most, most), random.randint(-few, few), rounded, most, -most))
        return Decimal(f"{digits}e-{scale}")

    return draw


def _boolean(random: Random) -> bool:
    return random.random() < 0.5


def _text(random: Random) -> str:
    return random.choice(_TEXTS) + random.choice(_TEXTS)


def _bytes(random: Random) -> bytes:
    return random.choice((random.randbytes(random.randint(0, 6)), _text(random).encode()))


def _four_bytes(random: Random) -> bytes:
    return random.randbytes(4)


def _day(random: Random) -> int:
    days = (_FIRST_DAY, -141_428, -141_427, -25_567, 0, -1, 19_782, _LAST_DAY)
    return random.choice((random.randint(_FIRST_DAY, _LAST_DAY), random.randint(-25_567, 60_000), random.choice(days)))


def _times(first_day: int, last_day: int, *, per_micro: int = 1, micros: int = 1) -> Draw:
    """Return times in units of `per_micro` per microsecond, or of this many microseconds each."""

    def draw(random: Random) -> int:
        far = random.randint(first_day * _DAY_US, last_day * _DAY_US)
        near = random.randint(max(first_day, -25_567) * _DAY_US, min(last_day, 30_000) * _DAY_US)
        changes = (1_729_990_800, 1_711_846_800, 1_730_613_600, 1_710_054_000, -1, 0)
        change = random.choice(changes) * 1_000_000 + random.randint(-3, 3) * 1_800_000_000
        return random.choice((far, near, change)) // micros * per_micro + random.randrange(per_micro)

    return draw


def _list(random: Random) -> list[int | None]:
    return [random.choice((None, _integers(32)(random))) for _ in range(random.randint(0, 3))]


def _map(random: Random) -> list[tuple[str, int]]:
    return [(key, _integers(64)(random)) for key in random.sample("abcd", random.randint(0, 3))]


def _struct(random: Random) -> dict[str, Any]:
    return {"a": _integers(32)(random), "B": _text(random)}


_DECIMALS = ("decimal(20,0)", "decimal(22,2)", "decimal(38,10)", "decimal(38,18)")
_ALL_TIMES = _times(_FIRST_DAY, _LAST_DAY)
_ORC_TIMES = _times(_FIRST_ORC_DAY, _LAST_ORC_DAY)


def _since_1970(draw: Draw) -> Draw:
    """Return times whose fractions of a second Spark reads as the ORC library in C++ writes them."""

    def draw_late(random: Random) -> int:
        time: int = draw(random)
        return abs(time)

    return draw_late


_LTZ, _NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")
_BOTH = {
    pa.bool_(): (_boolean, ("boolean",)),
    pa.int8(): (_integers(8), ("tinyint", "smallint", "int", "bigint", "double", *_DECIMALS)),
    pa.int16(): (_integers(16), ("tinyint", "smallint", "int", "bigint", "double", *_DECIMALS)),
    pa.int32(): (_integers(32), ("tinyint", "smallint", "int", "bigint", "double", *_DECIMALS)),
    pa.int64(): (_integers(64), ("bigint", *_DECIMALS)),
    pa.float32(): (_float, ("float", "double")),
    pa.float64(): (_double, ("double",)),
    pa.decimal128(5, 2): (_decimals(5, 2), ("decimal(5,2)", "decimal(18,4)", "decimal(38,18)")),
    pa.decimal128(9, 0): (_decimals(9, 0), ("decimal(9,0)", "decimal(10,0)", *_DECIMALS)),
    pa.decimal128(20, 0): (_decimals(20, 0), _DECIMALS),
    pa.decimal128(38, 10): (_decimals(38, 10), ("decimal(38,10)",)),
    pa.string(): (_text, ("string", "binary")),
    pa.date32(): (_day, ("date",)),
    pa.list_(pa.int32()): (_list, ("array<int>", "array<bigint>", "array<double>")),
    pa.map_(pa.string(), pa.int64()): (_map, ("map<string,bigint>",)),
    pa.struct([("a", pa.int32()), ("B", pa.string())]): (
        _struct,
        ("struct<a:int,b:string>", "struct<b:string>", "struct<A:bigint,z:int>", "struct<a:int,B:binary>"),
    ),
}
_BY_SPARK_PARQUET = {
    **_BOTH,
    pa.binary(): (_bytes, ("binary", "string")),
    _LTZ: (_ALL_TIMES, ("timestamp", "timestamp_ntz")),
    _NTZ: (_ALL_TIMES, ("timestamp", "timestamp_ntz")),
}
_BY_SPARK_ORC = {
    **_BOTH,
    pa.int64(): (
        _integers(64),
        ("tinyint", "smallint", "int", "bigint", "float", "double", "timestamp_ntz", *_DECIMALS),
    ),
    pa.float64(): (_double, ("float", "double")),
    pa.decimal128(38, 10): (_decimals(38, 10), ("decimal(5,2)", "decimal(20,0)", "decimal(38,10)", "decimal(38,18)")),
    pa.map_(pa.string(), pa.int64()): (_map, ("map<string,bigint>", "map<string,int>")),
    pa.binary(): (_bytes, ("binary",)),
    _LTZ: (_ORC_TIMES, ("timestamp",)),
    _NTZ: (_ORC_TIMES, ("timestamp_ntz",)),
}
# By format and writer: types in the file, values, and the types with which they are read.
COLUMNS: dict[tuple[str, str], dict[pa.DataType, tuple[Draw, tuple[str, ...]]]] = {
    ("parquet", "spark"): _BY_SPARK_PARQUET,
    ("parquet", "pyarrow"): {
        **_BY_SPARK_PARQUET,
        pa.uint8(): (_integers(8, signed=False), ("tinyint", "smallint", "int", "bigint", "double")),
        pa.uint16(): (_integers(16, signed=False), ("tinyint", "smallint", "int", "bigint", "double")),
        pa.uint32(): (_integers(32, signed=False), ("bigint",)),
        pa.uint64(): (_integers(64, signed=False), ("decimal(20,0)",)),
        pa.binary(4): (_four_bytes, ("binary",)),
        pa.date32(): (_day, ("date", "timestamp_ntz")),
        pa.timestamp("ms", "UTC"): (_times(_FIRST_DAY, _LAST_DAY, micros=1000), ("timestamp", "timestamp_ntz")),
        pa.timestamp("ms"): (_times(_FIRST_DAY, _LAST_DAY, micros=1000), ("timestamp", "timestamp_ntz")),
    },
    ("orc", "spark"): {
        **_BY_SPARK_ORC,
        _LTZ: (_ALL_TIMES, ("timestamp",)),
        # Arrow reads all times of this type.
        pa.timestamp("ms", tz="UTC"): (_times(_FIRST_ORC_DAY, _LAST_ORC_DAY, micros=1000), ("timestamp",)),
    },
    ("orc", "pyarrow"): {
        **_BY_SPARK_ORC,
        _LTZ: (_since_1970(_ORC_TIMES), ("timestamp",)),
        _NTZ: (_since_1970(_ORC_TIMES), ("timestamp",)),  # Spark's type of an ORC TIMESTAMP
        pa.timestamp("ns"): (
            _since_1970(_times(_FIRST_ORC_DAY, _LAST_ORC_DAY, per_micro=1000)),
            ("timestamp",),
        ),
    },
}


def drawn(kind: pa.DataType, draw: Draw, count: int, random: Random) -> pa.Array:
    """Return values of a type, some of them null."""
    values = [None if random.random() < 0.05 else draw(random) for _ in range(count)]
    if pa.types.is_temporal(kind):  # Python's range of times is smaller
        storage = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.array(values, storage).cast(kind)
    return pa.array(values, kind)


def _logical(kind: str, logical: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


def _decimal_bytes(random: Random) -> bytes:
    return random.randint(-(10**6) + 1, 10**6 - 1).to_bytes(4, "big", signed=True)


def _symbol(random: Random) -> str:
    return random.choice("AB")


def _record(random: Random) -> dict[str, Any]:
    return {"x": _integers(32)(random), "s": _text(random)}


def _entries(random: Random) -> dict[str, float]:
    return {key: _float(random) for key in random.sample("abcd", random.randint(0, 3))}


def _int_or_text(random: Random) -> int | str:
    return random.choice((_integers(32)(random), _text(random)))


_MILLIS = _times(_FIRST_DAY, _LAST_DAY, micros=1000)
_RECORD = {"name": "inner", "type": "record", "fields": [{"name": "x", "type": "int"}, {"name": "s", "type": "string"}]}
# Types of Avro, values in the form of fastavro, and the types with which they are read.
AVRO: list[tuple[Any, Draw, tuple[str, ...]]] = [
    ("boolean", _boolean, ("boolean",)),
    ("int", _integers(32), ("int", "bigint", "double")),
    ("long", _integers(64), ("bigint",)),
    ("long", _MILLIS, ("timestamp", "timestamp_ntz", "date")),
    ("float", _float, ("float", "double")),
    ("double", _double, ("double",)),
    ("string", _text, ("string",)),
    ("bytes", _bytes, ("binary",)),
    ({"type": "fixed", "name": "four", "size": 4}, _four_bytes, ("binary",)),
    ({"type": "enum", "name": "letter", "symbols": ["A", "B"]}, _symbol, ("string",)),
    (_logical("int", "date"), _day, ("date", "timestamp_ntz", "int", "bigint")),
    (_logical("long", "timestamp-millis"), _MILLIS, ("timestamp", "bigint")),
    (_logical("long", "timestamp-micros"), _ALL_TIMES, ("timestamp", "bigint")),
    (_logical("long", "local-timestamp-millis"), _MILLIS, ("timestamp_ntz", "bigint")),
    (_logical("long", "local-timestamp-micros"), _ALL_TIMES, ("timestamp_ntz", "bigint")),
    (
        _logical("bytes", "decimal", precision=6, scale=2),
        _decimal_bytes,
        ("decimal(6,2)", "decimal(5,1)", "decimal(20,4)", "decimal(4,0)", "binary"),
    ),
    (["null", "int", "long"], _integers(64), ("bigint",)),
    (["int", "string"], _int_or_text, ("struct<member0:int,member1:string>",)),
    (_RECORD, _record, ("struct<x:int,s:string>", "struct<S:string,z:int>")),
    ({"type": "array", "items": ["null", "int"]}, _list, ("array<int>", "array<bigint>")),
    ({"type": "map", "values": "float"}, _entries, ("map<string,float>", "map<string,double>")),
]
