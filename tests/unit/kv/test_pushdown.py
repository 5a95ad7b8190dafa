"""Conditions on key columns choose keys, buckets and ranges: no row that meets them is left out."""

from __future__ import annotations

import datetime as dt
import operator
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from ftfile.kv.definition import StoreDefinition, define
from ftfile.kv.hashing import bucket_name, bucket_number, by_bucket
from ftfile.kv.planning.runs import Run, RunMetadata
from ftfile.kv.pushdown import (
    EVERYTHING,
    BucketShare,
    Condition,
    StoreSelection,
    condition_of,
    select,
    shares_of,
)
from ftfile.log.format.model import Add, Origin
from ftfile.rows.predicate import Compare, In, Leaf, Null
from tests.kit.parameters import parametrize
from tests.kit.store_check import key_at

SCHEMA = pa.schema([("a", pa.int8()), ("b", pa.string()), ("c", pa.bool_()), ("n", pa.int64())])
SIGNS = {"=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def is_met(row: dict[str, Any], leaf: Leaf) -> bool:
    if isinstance(leaf, In):
        return (row[leaf.column] in leaf.values) == leaf.is_in
    assert isinstance(leaf, Compare)
    return bool(SIGNS[leaf.sign](row[leaf.column], leaf.value))


def one_of(column: str, *values: Any) -> In:
    return In(column, values, is_in=True)


def is_selected(selection: StoreSelection, row: dict[str, Any], definition: StoreDefinition, bucket: int) -> bool:
    table = pa.Table.from_pylist([row], definition.schema)
    if selection.keys is not None:
        return table.select(definition.keys).to_pylist()[0] in selection.keys.to_pylist()
    key = key_at(table, 0, definition.keys)
    in_range = any(start <= key and (end is None or key < end) for start, end in selection.ranges)
    return in_range and (selection.buckets is None or bucket in selection.buckets)


@parametrize("seed", range(40), quick=8)
def test_what_is_selected_has_all_rows_that_meet_the_conditions(seed: int) -> None:
    chance = random.Random(seed)
    definition = define(SCHEMA, ["a", "b", "c"], bucket_by=chance.choice([["a"], ["b", "a"], []]), buckets=4)
    values: dict[str, list[Any]] = {"a": [-128, -1, 0, 5, 127], "b": ["", "x", "x\0", "xy", "é"], "c": [False, True]}
    given: list[Leaf] = []  # that choose keys
    conditions = []
    for _ in range(chance.randrange(5)):
        column = chance.choice("abc")
        leaf: Leaf = Compare(column, chance.choice([*SIGNS]), chance.choice(values[column]))
        if chance.random() < 0.3:
            leaf = In(column, tuple(chance.choices(values[column], k=chance.randrange(4))), chance.random() < 0.8)
        condition = condition_of(definition, leaf)
        if condition is not None:
            given.append(leaf)
            conditions.append(condition)
    selection = select(conditions, definition)
    rows = [{"a": a, "b": b, "c": c, "n": 0} for a in values["a"] for b in values["b"] for c in values["c"]]
    table = pa.Table.from_pylist(rows, definition.schema)
    each_key = [key_at(table, number, "abc") for number in range(len(rows))]
    of_columns = (frozenset(column) for column in zip(*each_key, strict=True))
    every = select([Condition(name, values) for name, values in zip("abc", of_columns, strict=True)], definition)
    assert every.keys is not None
    assert every.keys.num_rows == len(rows)
    bucket_of = {
        tuple(key.values()): bucket_number(bucket)
        for bucket, keys in by_bucket(every.keys, definition)
        for key in keys.to_pylist()
    }
    assert len({*bucket_of.values()}) > 1
    for row in rows:
        meets = [is_met(row, each) for each in given]
        found = is_selected(selection, row, definition, bucket_of[row["a"], row["b"], row["c"]])
        assert found or not all(meets)
        assert not found or all(meets[number] for number in selection.met)


def test_all_key_columns_give_keys_and_some_give_ranges() -> None:
    definition = define(SCHEMA, ["a", "b", "c"], bucket_by=["a"], buckets=4)
    one, two = (condition_of(definition, one_of("a", n)) for n in (1, 2))
    strings, flags = condition_of(definition, one_of("b", "x", "y")), condition_of(definition, one_of("c", True))
    assert one is not None
    assert two is not None
    assert strings is not None
    assert flags is not None
    keys = select([one, flags, strings], definition).keys
    assert keys is not None
    assert keys.num_rows == 2
    assert select([one, two], definition).buckets == frozenset()
    found = select([one, flags], definition)
    assert found.keys is None
    assert found.ranges == (((1,), (2,)),)
    assert found.met == {0}
    assert len(found.buckets or ()) == 1
    from_x = condition_of(definition, Compare("b", ">", "x"))
    assert from_x
    assert select([from_x, one], definition).ranges == (((1, b"x\0"), (2,)),)
    assert select([from_x, flags], definition) == EVERYTHING


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (pa.timestamp("us", "UTC"), dt.datetime.max.replace(tzinfo=dt.timezone.utc), 253_402_300_800_000_000),
        (pa.timestamp("us"), dt.datetime(1970, 1, 1), 1),  # noqa: DTZ001 - without a zone
        (pa.date32(), dt.date.max, 2_932_897),  # of the year 10000, which Spark has
        (pa.date32(), dt.date(1970, 1, 1), 1),
        (pa.decimal128(3, 1), Decimal("99.9"), None),
        (pa.decimal128(3, 1), Decimal("1.5"), 16),
        (pa.int64(), (1 << 63) - 1, None),
        (pa.binary(), b"\xff", b"\xff\0"),
        (pa.bool_(), True, None),
    ],
)
def test_nothing_lies_between_a_value_and_the_next(kind: pa.DataType, value: Any, stored: Any) -> None:
    definition = define(pa.schema([("k", kind)]), ["k"])
    assert condition_of(definition, Compare("k", "<=", value)) == Condition(
        "k", bounds=((), None if stored is None else (stored,))
    )
    greater = Condition("k", bounds=((stored,), None)) if stored is not None else Condition("k", frozenset())
    assert condition_of(definition, Compare("k", ">", value)) == greater


def test_values_of_other_types_are_left_to_spark() -> None:
    definition = define(SCHEMA, ["a"])
    for value in ("1", 1.5, 128, True):
        assert condition_of(definition, one_of("a", value)) is None
        assert condition_of(definition, Compare("a", ">", value)) is None
    assert condition_of(definition, one_of("a")) == Condition("a", frozenset())


def test_comparisons_that_choose_no_keys_are_left_to_spark() -> None:
    definition = define(SCHEMA, ["a", "c"])
    assert condition_of(definition, Compare("a", "!=", 1)) is None
    assert condition_of(definition, In("a", (1,), is_in=False)) is None
    assert condition_of(definition, Null("a", is_null=True)) is None
    assert condition_of(definition, Null("a", is_null=False)) == Condition("a")
    assert condition_of(definition, Compare("c", "!=", True)) == Condition("c", frozenset([0]))


def run(bucket: int, first: int, last: int, size: int) -> Run:
    add = Add(
        id=f"{bucket}-{first}", kind="segment", path="p", final_path=None, length=size, logical_length=size,
        checksum="", rows=10, directory_key=bucket_name(bucket), encoding="e", origin=Origin("q", 0, 0),
    )  # fmt: skip
    return Run(add, RunMetadata((0, 0), ((first,), (last,)), (), 1, 0))


def test_large_buckets_are_split_where_runs_begin() -> None:
    runs = [run(0, 0, 9, 60), run(0, 10, 19, 60), run(0, 20, 29, 60), run(0, 5, 25, 1), run(3, 0, 9, 500)]
    assert shares_of(runs, EVERYTHING, 125, 0) == [
        (BucketShare(0, (((), (20,)),)),),
        (BucketShare(0, (((20,), None),)),),
        (BucketShare(3, (((), None),)),),
    ]
    ranges = StoreSelection(None, frozenset({0}), (((2,), (4,)), ((6,), (21,)), ((30,), None)), frozenset())
    assert shares_of(runs, ranges, 125, 0) == [
        (BucketShare(0, (((2,), (4,)), ((6,), (20,)))),),
        (BucketShare(0, (((20,), (21,)), ((30,), None))),),
    ]


def test_small_buckets_that_are_neighbours_share_a_task() -> None:
    runs = [run(bucket, 0, 9, size) for bucket, size in enumerate((10, 20, 1, 30, 31, 5))]
    shares = shares_of(runs, EVERYTHING, 125, 31)
    assert [[each.bucket for each in task] for task in shares] == [[0, 1, 2], [3], [4], [5]]
    some = StoreSelection(None, frozenset({1, 3, 5}), (((2,), (4,)), ((30,), None)), frozenset())
    tasks = shares_of([*runs, run(5, 40, 49, 8), run(1, 50, 59, 1)], some, 125, 40)
    assert [[each.bucket for each in task] for task in tasks] == [[1], [3], [5]]
    assert {each.ranges for task in tasks for each in task} == {some.ranges}
