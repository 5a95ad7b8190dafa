"""Fingerprints: the same for the same rows however they are cut and ordered, another for any other rows."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftfile.core.errors import SchemaError
from ftfile.writing.fingerprint import FingerprintAccumulator
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

pytestmark = pytest.mark.contents

KINDS = ("content", "strong")
BOTH = pytest.mark.parametrize("kind", KINDS)
POINT = pa.struct([("x", pa.int32()), ("label", pa.string())])
SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("number", pa.int32()),
        ("long", pa.int64()),
        ("real", pa.float32()),
        ("double", pa.float64()),
        ("price", pa.decimal128(38, 10)),
        ("day", pa.date32()),
        ("instant", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("text", pa.string()),
        ("wide text", pa.large_string()),
        ("bytes", pa.binary()),
        ("wide bytes", pa.large_binary()),
        ("nothing", pa.null()),
        ("point", POINT),
        ("tags", pa.list_(pa.string())),
        ("points", pa.list_(POINT)),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)
SCALARS = SCHEMA.names[:14]


def pairs(entries: dict[str, Any]) -> list[tuple[str, Any]]:
    return [*entries.items()]


texts = st.text(max_size=20) | st.sampled_from(["", "a", "a\0", "abcdefgh", "x" * 511, "x" * 512, "x" * 2100])
points = st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5), "label": st.none() | texts})
days = st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31))
moments = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))  # noqa: DTZ001
floats = st.sampled_from([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan")])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127),
    "number": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "real": floats | st.floats(width=32),
    "double": floats | st.floats(),
    "price": st.decimals(-(10**27), 10**27, places=10, allow_nan=False, allow_infinity=False),
    "day": days,
    "instant": moments.map(lambda moment: moment.replace(tzinfo=dt.timezone.utc)),
    "wall": moments,
    "text": texts,
    "wide text": texts,
    "bytes": st.binary(max_size=20),
    "wide bytes": st.binary(max_size=20),
    "nothing": st.none(),
    "point": points,
    "tags": st.lists(st.none() | texts, max_size=3),
    "points": st.lists(st.none() | points, max_size=3),
    "counts": st.dictionaries(texts, st.none() | st.integers(-9, 9), max_size=3).map(pairs),
}
one_row = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})
rows_of_all_types = st.lists(one_row, min_size=1, max_size=12)


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema)


def digest(batches: Iterable[pa.RecordBatch], kind: str) -> str:
    accumulator = FingerprintAccumulator(kind)
    for batch in batches:
        accumulator.update(batch)
    return accumulator.digest()


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch({"column": pa.array(values, kind)})


def cut(batch: pa.RecordBatch, generator: random.Random) -> list[pa.RecordBatch]:
    """Slices of the batch, and between them copies of slices, empty ones among them."""
    ends = sorted(generator.choices(range(batch.num_rows + 1), k=generator.randint(0, 6)))
    bounds = zip([0, *ends], [*ends, batch.num_rows], strict=True)
    slices = [batch.slice(start, end - start) for start, end in bounds]
    copies = [pa.RecordBatch.from_pylist(part.to_pylist(), batch.schema) for part in slices]
    return [generator.choice(pair) for pair in zip(slices, copies, strict=True)]


@pytest.mark.slow
@pytest.mark.packages
@BOTH
@given(rows=rows_of_all_types, generator=st.randoms(use_true_random=False))
def test_order_and_partitioning_do_not_matter(kind: str, rows: list[dict[str, Any]], generator: random.Random) -> None:
    shuffled = generator.sample(rows, len(rows))
    tasks = [FingerprintAccumulator(kind) for _ in range(3)]
    for batch in cut(batch_of(shuffled), generator):
        generator.choice(tasks).update(batch)
    total = FingerprintAccumulator(kind)
    for task in generator.sample(tasks, 3):
        total.merge(FingerprintAccumulator.from_json(task.to_json()))
    assert total.rows == len(rows)
    assert total.digest() == digest([batch_of(rows)], kind)


def differ(before: object, after: object) -> bool:
    """NaN is one value, and -0.0 is not 0.0."""
    if isinstance(before, float) and isinstance(after, float):
        return repr(before) != repr(after)
    return bool(before != after)


def same_bytes(before: object, after: object) -> bool:
    """Strings of one length whose bytes have one sum: `content` cannot distinguish them."""
    if not isinstance(before, (str, bytes)) or not isinstance(after, (str, bytes)):
        return False
    old, new = (value.encode() if isinstance(value, str) else value for value in (before, after))
    return len(old) == len(new) and sum(old) == sum(new)


@pytest.mark.slow
@pytest.mark.packages
@BOTH
@settings(max_examples=3 * settings().max_examples)
@given(data=st.data())
def test_one_other_value_is_seen(kind: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(SCALARS))
    values = data.draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=12))
    place = data.draw(st.integers(0, len(values) - 1))
    before, after = values[place], data.draw(st.none() | VALUES[name])
    if not differ(before, after) or (kind == "content" and same_bytes(before, after)):
        return
    changed = [*values[:place], after, *values[place + 1 :]]
    type_ = SCHEMA.field(name).type
    assert digest([column(values, type_)], kind) != digest([column(changed, type_)], kind)


@pytest.mark.slow
@pytest.mark.packages
@settings(max_examples=2 * settings().max_examples)
@given(rows=rows_of_all_types, data=st.data())
def test_strong_sees_one_other_value_of_any_type(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    place, name = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.sampled_from(SCHEMA.names))
    after = data.draw(st.none() | VALUES[name])
    before = rows[place][name]
    if name == "counts" and before and after:
        before, after = sorted(before), sorted(after)
    changed = [*rows[:place], {**rows[place], name: after}, *rows[place + 1 :]]
    seen = digest([batch_of(rows)], "strong") != digest([batch_of(changed)], "strong")
    assert seen == differ(before, after)


NESTED: list[tuple[pa.DataType, Any, Any]] = [
    (POINT, {"x": 1, "label": "a"}, {"x": 2, "label": "a"}),
    (POINT, {"x": 1, "label": "a"}, {"x": 1, "label": "b"}),
    (POINT, {"x": None, "label": None}, None),
    (pa.list_(pa.int64()), [], None),
    (pa.list_(pa.int64()), [], [None]),
    (pa.list_(pa.int64()), [0], [0, 0]),
    (pa.list_(pa.int64()), [1, 5], [2, 5]),
    (pa.large_list(pa.string()), ["ab", ""], ["a", "b"]),
    (pa.list_(pa.int16(), 2), [1, 2], [1, 3]),
    (pa.list_(pa.list_(pa.int8())), [[1], [2, 3]], [[1, 2, 3], []]),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 2)]),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("b", 1)]),
    (pa.map_(pa.string(), POINT), [("a", {"x": 1, "label": "l"})], [("a", {"x": 1, "label": "m"})]),
    (pa.struct([("p", POINT)]), {"p": {"x": 1, "label": "l"}}, {"p": {"x": 1, "label": "lo"}}),
]


@BOTH
@pytest.mark.parametrize(("type_", "before", "after"), NESTED, ids=str)
def test_changes_inside_values_are_seen(kind: str, type_: pa.DataType, before: object, after: object) -> None:
    others = [None, before, after]
    old, new = column([*others, before], type_), column([*others, after], type_)
    assert digest([old], kind) == digest([old.slice(2), old.slice(0, 2)], kind)
    assert digest([old], kind) != digest([new], kind)


@BOTH
@parametrize("size_bytes", [1, 7, 8, 9, 40, 600], quick=1)
def test_every_byte_counts(kind: str, size_bytes: int) -> None:
    value = bytes(size_bytes)
    changed = [value[:place] + b"\1" + value[place + 1 :] for place in range(size_bytes)]
    digests = {digest([column([b"other", each])], kind) for each in (*changed, value, value + b"\0")}
    assert len(digests) == (3 if kind == "content" else size_bytes + 2)


def test_values_that_change_places_are_seen_by_strong_alone() -> None:
    here = pa.record_batch({"a": [1, 2], "b": ["x", "y"], "c": ["p", "p"]})
    there = pa.record_batch({"a": [1, 2], "b": ["y", "x"], "c": ["p", "p"]})
    assert digest([here], "content") == digest([there], "content")
    assert digest([here], "strong") != digest([there], "strong")


@pytest.mark.parametrize(
    ("type_", "before", "after"),
    [
        (pa.string(), "ab", "ba"),
        (pa.string(), "12345678 87654321", "87654321 12345678"),
        (pa.string(), "x" * 600 + "ab", "x" * 600 + "ba"),
        (pa.list_(pa.int64()), [1, 2], [2, 1]),
    ],
    ids=["in a word", "between words", "in a long value", "in a list"],
)
def test_places_inside_a_value_are_seen_by_strong(type_: pa.DataType, before: object, after: object) -> None:
    assert digest([column([before], type_)], "content") == digest([column([after], type_)], "content")
    assert digest([column([before], type_)], "strong") != digest([column([after], type_)], "strong")


def test_entries_of_a_map_have_no_order() -> None:
    type_ = pa.map_(pa.string(), pa.int64())
    ab, ba = column([[("a", 1), ("b", 2)]], type_), column([[("b", 2), ("a", 1)]], type_)
    for kind in KINDS:
        assert digest([ab], kind) == digest([ba], kind)


@BOTH
def test_changes_that_cancel_out_in_a_plain_sum_are_seen(kind: str) -> None:
    assert digest([column([10, 20])], kind) != digest([column([11, 19])], kind)
    assert digest([column(["adc", "b"])], kind) != digest([column(["ad", "cb"])], kind)
    negative = pa.record_batch({"a": [-1.5, 2.5], "b": [1.5, 3.5]})
    assert digest([negative], kind) != digest([pa.record_batch({"a": [1.5, -2.5], "b": [-1.5, -3.5]})], kind)


@BOTH
def test_columns_match_by_name(kind: str) -> None:
    batch = pa.record_batch({"a": [1, 2], "b": [3, 4]})
    assert digest([batch.select(["b", "a"])], kind) == digest([batch], kind)
    assert digest([pa.record_batch({"a": [3, 4], "b": [1, 2]})], kind) != digest([batch], kind)
    assert digest([batch.rename_columns(["a", "c"])], kind) != digest([batch], kind)
    nested = pa.record_batch({"a": pa.array([{"b": 1}])})
    dotted = pa.record_batch({"a": pa.array([{}], pa.struct([])), "a.b": [1]})
    assert digest([nested], kind) != digest([dotted], kind)


@BOTH
def test_physical_form_does_not_matter(kind: str) -> None:
    values = ["one", None, "two", "two", ""]
    plain = digest([column(values, pa.string())], kind)
    for form in (pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())):
        assert digest([column(values, form)], kind) == plain
    short, long = column([1, -2, None], pa.int16()), column([1, -2, None], pa.int64())
    assert digest([short], kind) == digest([long], kind)
    lists, large = column([[1], None], pa.list_(pa.int8())), column([[1], None], pa.large_list(pa.int32()))
    assert digest([lists], kind) == digest([large], kind)


@BOTH
def test_bytes_under_nulls_do_not_count(kind: str) -> None:
    validity = pa.py_buffer(bytes([0b101]))
    offsets = pa.py_buffer(np.array([0, 1, 5, 6], np.int32))
    texts_ = pa.Array.from_buffers(pa.string(), 3, [validity, offsets, pa.py_buffer(b"aJUNKb")])
    numbers = pa.Array.from_buffers(pa.float64(), 3, [validity, pa.py_buffer(np.array([1.0, np.nan, 2.0]))])
    fields = pa.StructArray.from_arrays([pa.array([1, 99, 2])], ["x"], mask=pa.array([False, True, False]))
    dirty = pa.record_batch({"t": texts_, "n": numbers, "f": fields})
    clean = pa.RecordBatch.from_pylist(dirty.to_pylist(), dirty.schema)
    assert digest([dirty], kind) == digest([clean], kind)


@BOTH
@pytest.mark.parametrize(("width", "pattern"), [(8, "<Q"), (4, "<I"), (2, "<H")])
def test_all_nans_are_one_value(kind: str, width: int, pattern: str) -> None:
    quiet = {8: 0x7FF8 << 48, 4: 0x7FC0 << 16, 2: 0x7E00}[width]
    type_ = {8: pa.float64(), 4: pa.float32(), 2: pa.float16()}[width]
    digests = set()
    for bits in (quiet, quiet | 1, quiet | 1 << (8 * width - 1)):
        values = pa.Array.from_buffers(type_, 1, [None, pa.py_buffer(struct.pack(pattern, bits))])
        digests.add(digest([pa.record_batch({"x": values})], kind))
    assert len(digests) == 1
    assert digest([column([0.0])], kind) != digest([column([-0.0])], kind)


@BOTH
def test_batches_without_rows_change_nothing(kind: str) -> None:
    empty = SCHEMA.empty_table().to_batches() or [batch_of([])]
    assert digest(empty, kind) == digest([], kind)
    batch = column([1, None])
    assert digest([column([], pa.int64()), batch], kind) == digest([batch], kind)
    assert digest([column([None], pa.int64())], kind) != digest([], kind)


@pytest.mark.slow
@BOTH
def test_many_rows(kind: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = 100_000
    lengths = generator.integers(0, 40, count)
    letters = bytes(generator.integers(97, 123, int(lengths.sum()), np.uint8))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    texts_ = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))
    batch = pa.record_batch({"n": generator.integers(-(2**62), 2**62, count), "t": texts_})
    shuffled = batch.take(pa.array(generator.permutation(count)))
    pieces = [shuffled.slice(start, 7_777) for start in range(0, count, 7_777)]
    assert digest(pieces, kind) == digest([batch], kind)
    changed = batch.set_column(0, "n", pa.array(np.append(batch["n"][:-1], 0)))
    assert digest([changed], kind) != digest([batch], kind)


@pytest.mark.slow
def test_more_bytes_than_are_summed_at_a_time() -> None:
    halves = [column([b"\xff" * (9 << 20)], pa.binary())] * 2
    both = pa.Table.from_batches(halves).combine_chunks().to_batches()
    assert digest(both, "content") == digest(halves, "content")


def test_wide_decimals_differ_in_every_limb() -> None:
    type_ = pa.decimal256(76, 0)
    values = [Decimal(1), *(Decimal(2) ** (64 * limb) for limb in (1, 2, 3))]
    for kind in KINDS:
        assert len({digest([column([value], type_)], kind) for value in values}) == 4


def test_digests_stay_what_they_are() -> None:
    """Logs hold digests: a change of how they are made needs a new version."""
    values: dict[str, Any] = {
        "flag": True,
        "tiny": -1,
        "number": 70_000,
        "long": -(2**40),
        "real": 0.1,
        "double": -0.0,
        "price": Decimal("-12.5"),
        "day": dt.date(2024, 2, 29),
        "instant": dt.datetime(1969, 1, 1, tzinfo=dt.timezone.utc),
        "wall": dt.datetime(2024, 1, 1),  # noqa: DTZ001
        "text": "größer",
        "bytes": b"\0\xff",
        "wide text": "x" * 1000,
        "wide bytes": b"12345678",
        "point": {"x": 3, "label": None},
        "tags": ["a", None],
        "points": [None, {"x": 1, "label": "p"}],
        "counts": [("k", 5)],
    }
    rows: list[dict[str, Any]] = [dict.fromkeys(SCHEMA.names), values]
    assert digest([batch_of(rows)], "content") == "content/1:7864ff6a9843c32e5e20026c78c3223b"
    assert digest([batch_of(rows)], "strong") == "strong/1:f54ba361a5e53de08b5c305c8b8da261"


def test_json_is_plain_and_comes_back() -> None:
    for kind in KINDS:
        accumulator = FingerprintAccumulator(kind)
        accumulator.update(batch_of([{"long": -1, "text": "a"}]))
        document = accumulator.to_json()
        assert FingerprintAccumulator.from_json(json.loads(json.dumps(document))).to_json() == document
        assert all(len(number) <= 16 for numbers in document["sums"].values() for number in numbers)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(
        ValueError, match="unknown kind of fingerprint 'newest': read it with a newer version of ftfile"
    ):
        FingerprintAccumulator("newest")
    with pytest.raises(ValueError, match="unknown version of a fingerprint 2"):
        FingerprintAccumulator.from_json({**FingerprintAccumulator().to_json(), "version": 2})
    with pytest.raises(ValueError, match="'content' and 'strong' cannot be merged"):
        FingerprintAccumulator("content").merge(FingerprintAccumulator("strong"))


@BOTH
def test_types_without_a_fingerprint_are_named(kind: str) -> None:
    odd = pa.record_batch({"odd": pa.array(["a"], pa.string_view())})
    with pytest.raises(SchemaError, match="column 'odd': no fingerprint for type string_view"):
        digest([odd], kind)
