"""Texts of other programs are cast as Spark casts them, or are errors."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ftfile.rows.cast_text import cast_text

UTC = datetime.timezone.utc
INSTANT, CLOCK = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
DECIMAL = pa.decimal128(10, 2)


# As Spark 4.3 reads directories with these names.
@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("TRUE", pa.bool_(), True),
        ("False", pa.bool_(), False),
        ("+007", pa.int32(), 7),
        (" 1.5", pa.float64(), 1.5),
        ("-Infinity", pa.float64(), float("-inf")),
        ("1e400", pa.float64(), float("inf")),
        ("-1.235", DECIMAL, Decimal("-1.24")),
        ("1e2", DECIMAL, Decimal("100.00")),
        ("x y", pa.string(), "x y"),
        ("2024-1-2", pa.date32(), datetime.date(2024, 1, 2)),
        ("2024-03", pa.date32(), datetime.date(2024, 3, 1)),
        (" 2024", pa.date32(), datetime.date(2024, 1, 1)),
        ("2024-01-02 10:00:00", pa.date32(), datetime.date(2024, 1, 2)),
        ("2024-01-02", INSTANT, datetime.datetime(2024, 1, 1, 23, tzinfo=UTC)),
        ("2024-1-2 1:2:3", INSTANT, datetime.datetime(2024, 1, 2, 0, 2, 3, tzinfo=UTC)),
        ("2024-01-02T10:00", INSTANT, datetime.datetime(2024, 1, 2, 9, tzinfo=UTC)),
        ("2024-01-02 10:00:00.1234567Z", INSTANT, datetime.datetime(2024, 1, 2, 10, 0, 0, 123456, tzinfo=UTC)),
        ("2024-01-02 10:00:00+18:00", INSTANT, datetime.datetime(2024, 1, 1, 16, tzinfo=UTC)),
        ("2024-03-31 02:30:00", INSTANT, datetime.datetime(2024, 3, 31, 1, 30, tzinfo=UTC)),
        ("2024-01-02T10:00:00+02:00", CLOCK, datetime.datetime(2024, 1, 2, 10, tzinfo=UTC).replace(tzinfo=None)),
    ],
)
def test_values(text: str, kind: pa.DataType, value: Any) -> None:
    assert cast_text(text, kind, "Europe/Berlin").as_py() == value


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (pa.bool_(), ["1", "t", "yes", " true"]),
        (pa.int32(), ["7.0", "1e3", " 7", "1_000", "0x1F", "2147483648", "\u0663"]),
        (pa.int64(), ["9007199254740993.0", "9223372036854775808"]),
        (pa.float64(), ["inf", "nan", "1_0", "-INF", "1d"]),
        (DECIMAL, [" 1.5", "1_0", "NaN", "123456789.1", "1e2147483648"]),
        (pa.date32(), ["20240102", "2024-02-30", "x", "epoch", "2024-01-02x"]),
        (INSTANT, ["1719835200", "10:00:00", "2024-01-01 25:00:00", "2024-01-01 10:00Z", "2024-01-01 10:00:00+19:00"]),
        (pa.string(), [""]),
        (pa.time64("us"), ["12:00:00"]),
    ],
    ids=str,
)
def test_errors(kind: pa.DataType, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=r"."):
            cast_text(text, kind, "UTC")
