"""Merged statistics of groups of rows, compared with the values."""

from __future__ import annotations

import base64
import datetime
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ftfile.rows.statistics.merging import CountedEntries, entries_of_some, merge_all_entries
from tests.kit.reference_statistics import entry_of

LAST = "\U0010ffff"
DAY = datetime.date(1969, 12, 31)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-5, 0, 7, 1 << 40],
    pa.float64(): [-0.0, 0.0, 1.5, -2.5, math.nan, math.inf, -math.inf],
    pa.string(): ["", "a", "é", "x" * 31, "x" * 33, LAST, LAST * 40, "\ud7ff" * 40],
    pa.binary(): [b"", b"\x00", b"a" * 40, b"\xff" * 40, b"\xfb\xef", b"A", b"~"],
    pa.decimal128(5, 2): [Decimal("9.00"), Decimal("10.00"), Decimal("-9.50"), Decimal("-10.00")],
    pa.bool_(): [False, True],
    pa.date32(): [DAY, DAY.replace(year=2030)],
}


def counted(values: list[Any], kind: pa.DataType) -> CountedEntries:
    return CountedEntries(len(values), {"x": tuple(entry_of(values, kind))})


def merged_of(groups: list[CountedEntries], kind: pa.DataType) -> CountedEntries:
    schema = pa.schema([("x", kind)])
    return CountedEntries(sum(group.rows for group in groups), merge_all_entries(groups, schema))


def contains(entry: tuple[Any, ...], values: list[Any], kind: pa.DataType) -> bool:
    """Return True if no value contradicts an entry."""
    low, high, nulls = entry
    present = [value for value in values if value is not None]
    for value in present:
        if isinstance(value, float) and math.isnan(value):  # greater than all bounds
            if high is not None:
                return False
        elif not ((low is None or limit(low, kind) <= value) and (high is None or value <= limit(high, kind))):
            return False
    return nulls is None or nulls == len(values) - len(present)


def limit(bound: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return Decimal(bound)
    if pa.types.is_binary(kind):
        return base64.b64decode(bound)
    if pa.types.is_date(kind):
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=bound)
    return bound


@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_random_groups_have_the_bounds_of_all_rows(seed: int, kind: pa.DataType) -> None:
    dice = random.Random(f"{seed} {kind}")
    for _ in range(200):
        groups = [dice.choices([None, *VALUES[kind]], k=dice.choice([1, 2, 5])) for _ in range(dice.choice([1, 2, 4]))]
        rows = [value for group in groups for value in group]
        merged = merged_of([counted(group, kind) for group in groups], kind)
        entry, exact = merged.entries["x"], tuple(entry_of(rows, kind))
        assert contains(entry, rows, kind)
        assert entry[2] == exact[2]
        if not pa.types.is_floating(kind):  # a group of NaN or infinities has no bounds
            assert repr(entry) == repr(exact)
        assert entries_of_some(merged, len(rows)) == merged.entries
        some = dice.sample(rows, dice.randrange(1, len(rows) + 1))
        rest = CountedEntries(len(some), entries_of_some(merged, len(some)))
        assert contains(rest.entries.get("x", (None, None, None)), some, kind)
        # Rows of a rest are merged with the rows of later segments.
        again = merged_of([rest, counted(groups[0], kind)], kind)
        assert contains(again.entries.get("x", (None, None, None)), [*some, *groups[0]], kind)


@pytest.mark.parametrize(
    ("entries", "merged"),
    [
        ([(1, 2, 0), (5, 9, 3)], (1, 9, 3)),
        ([(1, None, 0), (5, 9, 0)], (1, None, 0)),
        ([(None, 2, 0), (5, 9, 0)], (None, 9, 0)),
        ([(None, None, 9), (5, 9, 0)], (5, 9, 9)),
        ([(None, None, 9), (None, None, 9)], (None, None, 18)),
        ([(None, None, 8), (5, 9, 0)], (None, None, 8)),
        ([(None, None, None), (5, 9, 0)], None),
        ([(1, 2, None), (5, 9, 0)], (1, 9, None)),
        ([(), (5, 9, 0)], None),
        ([(1, 2), (5, 9, 0)], None),
        ([("1", "2", 0), (5, 9, 0)], (None, None, 0)),
        ([(1, 2, "0"), (5, 9, 0)], (1, 9, None)),
        ([([], {}, 0), (5, 9, 0)], (None, None, 0)),
    ],
)
def test_unknown_and_forged_entries(entries: list[tuple[Any, ...]], merged: tuple[Any, ...] | None) -> None:
    groups = [CountedEntries(9, {"x": entry}) for entry in entries]
    assert merged_of(groups, pa.int64()).entries.get("x") == merged
    assert merged_of(groups[::-1], pa.int64()).entries.get("x") == merged


def test_a_column_that_a_group_lacks_is_unknown() -> None:
    groups = [CountedEntries(1, {"x": (1, 1, 0), "y": (1, 1, 0)}), CountedEntries(1, {"y": (2, 2, 0)})]
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    assert merge_all_entries(groups, schema) == {"y": (1, 2, 0)}


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.binary()], ids=str)
def test_texts_that_are_not_values_of_the_type_are_unknown(kind: pa.DataType) -> None:
    for text in ("NaN", "x", "é", "1"):
        group = CountedEntries(1, {"x": (text, text, 0)})
        assert merged_of([group, counted([VALUES[kind][0]], kind)], kind).entries["x"][2] == 0


@pytest.mark.parametrize(
    ("entry", "rows", "some"),
    [
        ((1, 2, 3), 9, (1, 2, 3)),
        ((1, 2, 3), 8, (1, 2, None)),
        ((1, 2, 0), 8, (1, 2, 0)),
        ((None, None, 9), 8, (None, None, 8)),
        ((None, None, 3), 8, None),
        ((1, 2, None), 9, (1, 2, None)),
    ],
)
def test_some_rows_have_the_bounds_of_all_and_rarely_a_number_of_nulls(
    entry: tuple[Any, ...], rows: int, some: tuple[Any, ...] | None
) -> None:
    assert entries_of_some(CountedEntries(9, {"x": entry}), rows).get("x") == some
