from __future__ import annotations

import datetime
import decimal
import json
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.kv.key_columns import (
    Key,
    KeyRange,
    clip,
    contain,
    decode_key,
    decode_ranges,
    encode_key,
    encode_ranges,
    is_key_type,
    key_array,
    order_of,
    overlap,
    to_scalar,
    union,
)
from tests.kit.store_check import key_at

VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["", "a", "ab", "é", "😀", "\x00"]),
    (pa.binary(), [b"", b"\x00", b"\xff", b"a\x00"]),
    (pa.int8(), [-128, 0, 127]),
    (pa.int16(), [-5, 300]),
    (pa.int32(), [-(1 << 31), 7]),
    (pa.int64(), [-(1 << 63), 0, (1 << 63) - 1]),
    (pa.date32(), [datetime.date(1969, 12, 31), datetime.date(2026, 1, 1)]),
    (
        pa.timestamp("us"),
        [datetime.datetime.fromisoformat(text) for text in ("1969-12-31T23:59:59.999999", "2026-01-01")],
    ),
    (pa.timestamp("us", tz="UTC"), [datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)]),
    (pa.decimal128(18, 4), [decimal.Decimal("-1.5000"), decimal.Decimal("99999999999999.9999")]),
    (pa.bool_(), [False, True]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_keys_of_each_type_keep_their_order_and_come_back(kind: pa.DataType, values: list[Any]) -> None:
    assert is_key_type(kind)
    rows = pa.table({"k": pa.array(values, kind)})
    keys = [key_at(rows, row, ["k"]) for row in range(len(values))]
    in_order = pc.sort_indices(rows, [("k", "ascending")]).to_pylist()
    assert sorted(range(len(keys)), key=lambda row: keys[row]) == in_order
    assert [decode_key(json.loads(json.dumps(encode_key(key)))) for key in keys] == keys
    assert [to_scalar(key[0], kind).as_py() for key in keys] == values
    assert key_array([key[0] for key in keys], kind) == pa.array(values, kind)
    assert key_array([], kind) == pa.array([], kind)


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.decimal128(19, 2), pa.timestamp("ns"), pa.list_(pa.int64()), pa.uint8()]
)
def test_other_types_are_no_keys(kind: pa.DataType) -> None:
    assert not is_key_type(kind)


KEYS = st.tuples(st.sampled_from([b"", b"a", b"ab", b"b"]), st.integers(-2, 2))
BOUNDS: st.SearchStrategy[Key] = st.one_of(KEYS, KEYS.map(lambda key: key[:1]), st.just(()))
RANGES: st.SearchStrategy[list[KeyRange]] = st.lists(st.tuples(BOUNDS, st.one_of(BOUNDS, st.none())), max_size=4)


def is_in(ranges: Any, key: Key) -> bool:
    return any(start <= key and (end is None or key < end) for start, end in ranges)


@pytest.mark.slow
@given(RANGES, st.lists(KEYS, min_size=1), BOUNDS, st.one_of(BOUNDS, st.none()))
def test_ranges_contain_what_tuples_say(ranges: list[KeyRange], keys: list[Any], start: Key, end: Key | None) -> None:
    columns = [pa.array([key[0] for key in keys], pa.binary()).cast(pa.string()), pa.array([key[1] for key in keys])]
    expected = [is_in(ranges, key) for key in keys]
    assert contain(ranges, columns).tolist() == expected
    joined = union(ranges)
    assert contain(joined, columns).tolist() == expected
    assert all(one[1] is not None and one[1] < other[0] for one, other in pairwise(joined))
    inside = [each and start <= key and (end is None or key < end) for each, key in zip(expected, keys, strict=True)]
    assert contain(clip(ranges, start, end), columns).tolist() == inside
    assert decode_ranges(json.loads(json.dumps(encode_ranges(ranges)))) == tuple(ranges)
    first, last = min(keys), max(keys)
    assert overlap(joined, first, last) >= any(expected)


TEXTS = st.text("\x00a\xff", max_size=3)
LONG_TEXTS = st.builds(lambda start, end: start + end, st.sampled_from(["", "user_", "user_00000000"]), TEXTS)
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), TEXTS | LONG_TEXTS),
    (pa.string(), LONG_TEXTS.map(lambda text: f"https://www.example.com/{text}")),
    (pa.binary(), st.binary(max_size=10)),
    (pa.int64(), st.integers(-2, 2) | st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.int8(), st.integers(-2, 2)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.sampled_from([-1.5, 0.0, 2.5])),  # no key, but it may be a sequence
]


@pytest.mark.packages
@given(data=st.data(), kinds=st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=3), start=st.integers(0, 2))
def test_rows_are_ordered_as_values_and_stay_in_order_where_alike(
    data: st.DataObject, kinds: list[tuple[pa.DataType, st.SearchStrategy[Any]]], start: int
) -> None:
    rows = data.draw(st.lists(st.tuples(*(values for _, values in kinds)), max_size=30))
    columns = [pa.array([row[place] for row in rows], kind)[start:] for place, (kind, _) in enumerate(kinds)]
    expected = sorted(range(len(rows[start:])), key=rows[start:].__getitem__)
    assert order_of(columns).tolist() == expected


def test_values_are_compared_where_their_first_bytes_are_alike() -> None:
    texts = ["abcdefghz", "b", "abcdefgha", "abcdefgh", "abcdefgha", "abcdefg", "abcdefg\x00"]
    assert order_of([pa.array(texts)]).tolist() == [5, 6, 3, 2, 4, 0, 1]


def test_ranges_that_touch_become_one() -> None:
    assert union([((3,), (4,)), ((1,), (3,)), ((2,), (2,)), ((9,), None), ((8,), (9,))]) == (
        ((1,), (4,)),
        ((8,), None),
    )
    assert not overlap([((1,), (3,))], (3,), (5,))
    assert overlap([((1,), (3,))], (0,), (1,))
