"""Statistics of rows: directed values of each type, and the columns that have statistics."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError
from ftfile.rows.buffers import from_numpy, strings_from
from ftfile.rows.spark_types import arrow_schema
from ftfile.rows.statistics.collector import KERNEL_ROWS, Collector
from ftfile.rows.statistics.columns import first_columns, key_of, named_columns
from tests.kit.file_statistics import as_lists

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN, INFINITY = float("nan"), float("inf")
LAST = "\U0010ffff"
TEXT, BYTES, DOUBLE = pa.string(), pa.binary(), pa.float64()
INSTANT, CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


def statistics(kind: pa.DataType, *batches: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the statistics of a column `x`, or of its fields."""
    schema = pa.schema({"x": kind})
    collector = Collector(schema, first_columns(schema, keeps_all))
    for values in batches:
        collector.update(pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema))
    return as_lists(collector.entries())


def keeps_all(field: pa.Field) -> bool:
    return field is not None


def base64_of(*numbers: int) -> str:
    return base64.b64encode(bytes(numbers)).decode()


DIRECTED: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.int8(), [-128, None, 127], [-128, 127, 1]),
    (pa.int16(), [5], [5, 5, 0]),
    (pa.int32(), [-(2**31), 2**31 - 1], [-(2**31), 2**31 - 1, 0]),
    (pa.int64(), [-(2**63), None, 2**63 - 1, None], [-(2**63), 2**63 - 1, 2]),
    (pa.int64(), [None, None], [None, None, 2]),
    (pa.bool_(), [True, None, True], [True, True, 1]),
    (pa.bool_(), [False, True], [False, True, 0]),
    (pa.date32(), [-719_162, None, 3], [-719_162, 3, 1]),
    (INSTANT, [1_767_225_600_000_001, -1], [-1, 1_767_225_600_000_001, 0]),
    (CLOCK, [None, 253_402_300_799_999_999], [253_402_300_799_999_999, 253_402_300_799_999_999, 1]),
    (pa.decimal128(38, 2), [Decimal("9" * 36 + ".99"), Decimal("-0.01")], ["-0.01", "9" * 36 + ".99", 0]),
    (pa.float32(), [0.1, None], [float(np.float32(0.1)), float(np.float32(0.1)), 1]),
    (DOUBLE, [1.5, -2.5], [-2.5, 1.5, 0]),
    (DOUBLE, [0.0], [-0.0, 0.0, 0]),
    (DOUBLE, [-0.0], [-0.0, 0.0, 0]),
    (DOUBLE, [-0.0, 0.0, 1.0], [-0.0, 1.0, 0]),
    (DOUBLE, [INFINITY], [None, None, 0]),
    (DOUBLE, [-INFINITY, 1.0], [None, 1.0, 0]),
    (DOUBLE, [-1.0, INFINITY], [-1.0, None, 0]),
    (DOUBLE, [NAN], [None, None, 0]),
    (DOUBLE, [NAN, None], [None, None, 1]),
    (DOUBLE, [1.0, NAN, 2.0], [1.0, None, 0]),
    (DOUBLE, [NAN, -1.0, None], [-1.0, None, 1]),
    (TEXT, ["b", None, "", "a"], ["", "b", 1]),
    (TEXT, ["x" * 32], ["x" * 32, "x" * 32, 0]),
    (TEXT, ["x" * 33], ["x" * 32, "x" * 31 + "y", 0]),
    (TEXT, ["x" * 31 + LAST], ["x" * 31 + LAST, "x" * 31 + LAST, 0]),
    (TEXT, ["x" * 31 + LAST * 3], ["x" * 31 + LAST, "x" * 30 + "y", 0]),
    (TEXT, [LAST * 32], [LAST * 32, LAST * 32, 0]),
    (TEXT, [LAST * 40], [LAST * 32, None, 0]),
    (TEXT, ["\ud7ff" * 33], ["\ud7ff" * 32, "\ud7ff" * 31 + "\ue000", 0]),
    (TEXT, ["\ud7ff" * 99], ["\ud7ff" * 32, "\ud7ff" * 31 + "\ue000", 0]),  # kept without the end of a code point
    (TEXT, ["é" * 33, "z"], ["z", "é" * 31 + "ê", 0]),
    (TEXT, ["\U0001f600" * 3_000], ["\U0001f600" * 32, "\U0001f600" * 31 + "\U0001f601", 0]),
    (TEXT, ["a", "a\0"], ["a", "a\0", 0]),
    (BYTES, [b"a", b"\0", None], [base64_of(0), base64_of(97), 1]),
    (BYTES, [b"a" * 33], [base64_of(*b"a" * 32), base64_of(*b"a" * 31 + b"b"), 0]),
    (BYTES, [b"\xff" * 32], [base64_of(*b"\xff" * 32), base64_of(*b"\xff" * 32), 0]),
    (BYTES, [b"\xff" * 31 + b"a" * 9], [base64_of(*b"\xff" * 31 + b"a"), base64_of(*b"\xff" * 31 + b"b"), 0]),
    (BYTES, [b"a" + b"\xff" * 39], [base64_of(*b"a" + b"\xff" * 31), base64_of(98), 0]),
    (BYTES, [b"\xff" * 40], [base64_of(*b"\xff" * 32), None, 0]),
]


@pytest.mark.parametrize("copies", [1, KERNEL_ROWS], ids=["few rows", "many rows"])
@pytest.mark.parametrize(("kind", "values", "entry"), DIRECTED)
def test_directed_values(kind: pa.DataType, values: list[Any], entry: list[Any], copies: int) -> None:
    low, high, nulls = entry
    expected = {"x": [low, high, nulls * copies]}
    assert repr(statistics(kind, values * copies)) == repr(expected)
    assert repr(statistics(kind, *([value] for value in values), values * (copies - 1))) == repr(expected)


def test_a_null_struct_has_null_fields() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", TEXT)]))])
    rows = [{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}, {"a": 3, "b": {"c": None}}]
    assert statistics(kind, rows, rows[:2]) == {"x.a": [1, 3, 3], "x.b.c": ["x", "x", 4]}


def test_a_value_under_a_null_struct_does_not_count() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([1, 9, 3])], ["a"], mask=pa.array([False, True, False]))
    batch = pa.RecordBatch.from_arrays([hidden], names=["x"])
    collector = Collector(batch.schema, ["x.a"])
    collector.update(batch)
    assert as_lists(collector.entries()) == {"x.a": [1, 3, 1]}


def test_a_slice_is_its_rows() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.bool_()), ("c", TEXT), ("d", DOUBLE)])
    schema = pa.schema({"x": kind})
    rows = [None, *({"a": n, "b": n > 4, "c": str(n), "d": float(n)} for n in (1, 5, 6)), {"a": 9}, None]
    collector = Collector(schema, first_columns(schema, keeps_all))
    collector.update(pa.RecordBatch.from_arrays([pa.array(rows, kind)], schema=schema).slice(2, 2))
    assert as_lists(collector.entries()) == {
        "x.a": [5, 6, 0],
        "x.b": [True, True, 0],
        "x.c": ["5", "6", 0],
        "x.d": [5.0, 6.0, 0],
    }


@pytest.mark.parametrize("value", [b"\xff", b"a" * 40 + b"\xff", b"\xf0\x9f\x98\x80" * 33 + b"\xf0"])
def test_text_that_is_not_utf_8_has_no_wrong_bound(value: bytes) -> None:
    schema = pa.schema({"x": TEXT})
    collector = Collector(schema, ["x"])
    values = strings_from(np.array([0, len(value)]), np.frombuffer(value, np.uint8), TEXT)
    collector.update(pa.RecordBatch.from_arrays([values], schema=schema))
    low, high, nulls = collector.entries().get("x", ("", None, 0))
    assert low.encode() <= value
    assert high is None or value <= high.encode()
    assert nulls == 0


def test_rows_without_columns_or_values() -> None:
    assert statistics(pa.list_(pa.int64()), [[1]]) == {}
    assert statistics(pa.int64(), []) == {"x": [None, None, 0]}


def test_types_without_an_order_have_no_statistics() -> None:
    fields = ["variant", "time(6)", {"type": "array", "elementType": "long", "containsNull": True}, "long"]
    columns = [{"name": f"c{n}", "type": kind, "nullable": True, "metadata": {}} for n, kind in enumerate(fields)]
    schema = arrow_schema(json.dumps({"type": "struct", "fields": columns}))
    assert first_columns(schema, keeps_all) == ("c3",)


def test_keys_escape_dots_and_backslashes() -> None:
    assert key_of(("a", "b")) == "a.b"
    assert key_of(("a.b", "c\\")) == "a\\.b.c\\\\"
    assert key_of(("a\\", "b")) == "a\\\\.b"


SCHEMA = pa.schema(
    {"id": pa.int64(), "a.b": TEXT, "s": pa.struct([("x", pa.date32()), ("Y", TEXT)]), "l": pa.list_(TEXT)}
)


def test_the_first_32_columns_are_counted_without_those_that_the_format_changes() -> None:
    assert first_columns(SCHEMA, keeps_all) == ("id", "a\\.b", "s.x", "s.Y")
    assert first_columns(SCHEMA, lambda field: not pa.types.is_date(field.type)) == ("id", "a\\.b", "s.Y")
    many = pa.schema([(f"c{number}", TEXT) for number in range(40)])
    assert first_columns(many, lambda field: field.name != "c0") == tuple(f"c{number}" for number in range(1, 33))


def test_named_columns() -> None:
    assert named_columns([("S", "y"), ("ID",)], SCHEMA, keeps_all) == ("id", "s.Y")
    assert named_columns([("s",), ("a.b",)], SCHEMA, keeps_all) == ("a\\.b", "s.x", "s.Y")


@pytest.mark.parametrize("name", [("a", "b"), ("l",), ("s", "z"), ("id", "x")])
def test_a_name_without_a_column_is_refused(name: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"statisticsColumns names .* available are: id, a\\\.b, s\.x, s\.Y"):
        named_columns([name], SCHEMA, keeps_all)


def test_a_column_that_the_format_changes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"statisticsColumns names 's\.x', but .* timestampFormat"):
        named_columns([("s",)], SCHEMA, lambda field: not pa.types.is_date(field.type))


def test_few_rows_import_neither_compute_nor_pandas() -> None:
    code = (
        "import sys\n"
        "from tests.unit.rows.test_statistics import Collector, few_rows\n"
        "assert 'pyarrow.compute' not in sys.modules\n"
        "batch = few_rows()\n"
        "collector = Collector(batch.schema, batch.schema.names)\n"
        "collector.update(batch)\n"
        "assert len(collector.entries()) == 5\n"
        "print([name for name in ('pyarrow.compute', 'pandas') if name in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_few_rows_have_no_value_under_a_null() -> None:
    batch = few_rows()
    collector = Collector(batch.schema, batch.schema.names)
    collector.update(batch)
    assert collector.entries()["id"] == (5, 9, 1)
    assert collector.entries()["t"] == ("b", "c", 1)


def few_rows() -> pa.RecordBatch:
    """Return rows with nulls; `pyarrow.array` would import pandas."""
    numbers, valid = np.array([5, -1, 9]), np.array([True, False, True])
    columns = {
        "id": from_numpy(numbers, pa.int64(), valid),
        "at": from_numpy(numbers, INSTANT, valid),
        "f": from_numpy(numbers.astype(np.float64), DOUBLE, valid),
        "d": from_numpy(np.zeros((3, 2), np.int64), pa.decimal128(20, 2), valid),
        "t": strings_from(np.arange(4), np.frombuffer(b"bac", np.uint8), TEXT, valid),
    }
    return pa.RecordBatch.from_arrays([*columns.values()], names=[*columns])
