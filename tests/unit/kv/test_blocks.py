"""Blocks return their rows, all at once, gathered and one by one; hostile blocks are refused."""

from __future__ import annotations

import random
import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ftfile.core.errors import CorruptData, EncodingError, SchemaError
from ftfile.kv.run import block as codec
from ftfile.kv.run import block_batch
from ftfile.kv.run.block import Block, RowFinder, encode_block, encode_blocks, layout_of, open_block
from ftfile.kv.run.block_batch import (
    COMPRESSIONS,
    EXPANSION_MAX,
    BlockBatch,
    TooManyBytes,
    compress,
    decompress,
    decompress_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FLAT: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    **{
        pa.from_numpy_dtype(f"i{size}"): st.integers(-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1)
        for size in (1, 2, 4, 8)
    },
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(max_size=20) | st.just("const"),
    pa.binary(): st.binary(max_size=20) | st.just(b"12345678"),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", tz="UTC"): st.datetimes(timezones=st.just(timezone.utc)),
    pa.decimal128(10, 2): st.integers(-(10**10) + 1, 10**10 - 1).map(lambda value: Decimal(value).scaleb(-2)),
    pa.decimal128(38, 0): st.integers(-(10**27), 10**27).map(Decimal),
}
KEY = pa.field("key", pa.int64(), nullable=False)


def _nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(lambda kind: pa.list_(pa.field("element", kind))),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([pa.field(f"f{number}", kind) for number, kind in enumerate(kinds)])
        ),
        st.tuples(st.sampled_from([pa.string(), pa.int32()]), inner).map(
            lambda kinds: pa.map_(pa.field("key", kinds[0], nullable=False), pa.field("value", kinds[1]))
        ),
    )


KINDS = st.recursive(st.sampled_from([*FLAT]), _nested, max_leaves=4)


def values_of(kind: pa.DataType, *, has_nulls: bool) -> st.SearchStrategy[Any]:
    if kind in FLAT:
        values = FLAT[kind]
    elif pa.types.is_list(kind):
        values = st.lists(values_of(kind.value_type, has_nulls=has_nulls), max_size=3)
    elif pa.types.is_map(kind):
        keys, items = values_of(kind.key_type, has_nulls=False), values_of(kind.item_type, has_nulls=has_nulls)
        values = st.lists(st.tuples(keys, items), max_size=3)
    else:
        values = st.fixed_dictionaries({field.name: values_of(field.type, has_nulls=has_nulls) for field in kind})
    return st.none() | values if has_nulls else values


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """Rows with a key, their number, and some columns of any types, in one buffer that begins before them."""
    kinds = draw(st.lists(KINDS, max_size=3))
    has_nulls = draw(st.booleans())
    schema = pa.schema([KEY, *(pa.field(f"c{number}", kind) for number, kind in enumerate(kinds))])
    columns = [draw(st.lists(values_of(kind, has_nulls=has_nulls), min_size=8, max_size=8)) for kind in kinds]
    arrays = [pa.array(range(8), pa.int64())]
    arrays += [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
    first = draw(st.integers(0, 7))
    return pa.RecordBatch.from_arrays(arrays, schema=schema).slice(first, draw(st.integers(1, 8 - first)))


def cut(batch: pa.RecordBatch, ends: list[int]) -> list[pa.RecordBatch]:
    bounds = sorted({0, batch.num_rows, *(end for end in ends if end < batch.num_rows)})
    return [batch.slice(start, end - start) for start, end in pairwise(bounds)]


def encoded(piece: pa.RecordBatch) -> bytes:
    return encode_block(piece, layout_of(piece.schema))


def block_batch_of(pieces: list[pa.RecordBatch], contents: list[bytes] | None = None) -> BlockBatch:
    contents = contents or [encoded(piece) for piece in pieces]
    rows = np.array([piece.num_rows for piece in pieces])
    return BlockBatch(contents, rows, layout_of(pieces[0].schema), "a.spool", range(len(pieces)))


def opened(piece: pa.RecordBatch, number: int = 0) -> Block:
    return open_block(encoded(piece), piece.num_rows, layout_of(piece.schema), "a.spool", number)


ENDS = st.lists(st.integers(1, 7), max_size=4)


@pytest.mark.slow
@given(batches(), ENDS)
@example(pa.record_batch({"n": [1, 2, 3, None]}), [2])  # a null, and a block without nulls
def test_blocks_that_are_decoded_together_are_their_rows(batch: pa.RecordBatch, ends: list[int]) -> None:
    decoded = block_batch_of(cut(batch, ends)).batch()
    decoded.validate(full=True)
    assert decoded.to_pylist() == batch.to_pylist()
    assert decoded.schema == batch.schema


@pytest.mark.slow
@given(batches(), ENDS)
def test_blocks_that_are_encoded_together_are_those_of_each(batch: pa.RecordBatch, ends: list[int]) -> None:
    pieces = cut(batch, ends)
    cuts = [0, *accumulate(piece.num_rows for piece in pieces)]
    assert encode_blocks(batch, cuts, layout_of(batch.schema)) == [encoded(piece) for piece in pieces]


@pytest.mark.slow
@given(batches(), ENDS)
def test_each_value_is_that_of_arrow(batch: pa.RecordBatch, ends: list[int]) -> None:
    find = RowFinder(layout_of(batch.schema), 1).find
    values = iter(batch.to_pylist())
    for piece in cut(batch, ends):
        block = opened(piece)
        assert len(block.data) % 8 == 0
        for row in range(piece.num_rows):
            expected = next(values)
            key = expected.pop("key")
            assert find(block, row, (key,)) == tuple(expected.values())
            assert find(block, row, (key + 1,)) is None


@pytest.mark.slow
@given(batches(), ENDS, st.integers(0, 3))
def test_rows_that_are_gathered_are_those_that_arrow_takes(batch: pa.RecordBatch, ends: list[int], step: int) -> None:
    pieces = cut(batch, ends)
    rows = [np.arange(0, piece.num_rows, step + 1) for piece in pieces]
    batch_of_blocks = BlockBatch.of(
        [opened(piece) for piece in pieces], layout_of(batch.schema), "a.spool", range(len(pieces))
    )
    gathered = batch_of_blocks.gather(np.cumsum([len(some) for some in rows]).tolist(), np.concatenate(rows))
    gathered.validate(full=True)
    expected = [row for piece, some in zip(pieces, rows, strict=True) for row in piece.take(pa.array(some)).to_pylist()]
    assert gathered.to_pylist() == expected
    assert gathered.schema == batch.schema


def refusal(call: Callable[[], object]) -> str | None:
    """What the error expects with which a call refuses the bytes; None if it takes them."""
    try:
        call()
    except CorruptData as error:
        return error.expected
    return None


@pytest.mark.slow
@given(batches(), ENDS, st.data())
def test_forged_blocks_are_refused_or_have_values(batch: pa.RecordBatch, ends: list[int], data: st.DataObject) -> None:
    """A number of a block becomes another one: single reads, and all rows at once, agree whether it is a block."""
    pieces = cut(batch, ends)
    contents = [encoded(piece) for piece in pieces]
    number = data.draw(st.integers(0, len(pieces) - 1))
    forged, piece = bytearray(contents[number]), pieces[number]
    at = 4 * data.draw(st.integers(0, len(forged) // 4 - 1))
    (old,) = struct.unpack_from("<I", forged, at)
    near = st.integers(-9, 9).map(lambda step: (old + step) % (1 << 32))
    struct.pack_into("<I", forged, at, data.draw(near | st.integers(0, (1 << 32) - 1)))
    contents[number] = bytes(forged)
    layout = layout_of(batch.schema)
    single = refusal(lambda: open_block(contents[number], piece.num_rows, layout, "a.spool", number))
    all_rows = refusal(lambda: block_batch_of(pieces, contents).batch())
    assert (single is None) == (all_rows is None or "values of" in all_rows.partition(" blocks ")[2])
    if all_rows is not None:
        return
    decoded = block_batch_of(pieces, contents).batch()
    decoded.validate()
    find, block = RowFinder(layout, 1).find, open_block(contents[number], piece.num_rows, layout, "a.spool", number)
    keys = decoded.column(0).to_pylist()
    first = sum(part.num_rows for part in pieces[:number])
    for row in range(piece.num_rows):
        try:
            assert find(block, row, (keys[first + row],)) is not None
        except (OverflowError, ValueError):  # a day, a time, or a text that Python does not have
            continue


# Three texts, and three lists of texts of no bytes. The buffers of the first column are 0 and 1 in both.
TEXTS = pa.record_batch(
    [pa.array([1, 2, 3]), pa.array(["a", "bc", "def"])], schema=pa.schema([KEY, ("t", pa.string())])
)
LISTS = pa.record_batch(
    [pa.array([1, 2, 3]), pa.array([[""], [], ["", ""]])], schema=pa.schema([KEY, ("l", pa.list_(pa.string()))])
)
HUGE = (1 << 32) - 1


def forge(batch: pa.RecordBatch, buffer: int, values: dict[int, int]) -> bytes:
    """The bytes of a block with other numbers in a buffer, or among the bounds, whose number is -1."""
    content = bytearray(encoded(batch))
    at = 0 if buffer < 0 else struct.unpack_from("<I", content, 4 * buffer)[0]
    for place, value in values.items():
        struct.pack_into("<I", content, at + 4 * place, value)
    return bytes(content)


@pytest.mark.parametrize(
    ("batch", "buffer", "values"),
    [
        (TEXTS, -1, {0: 0}),
        (TEXTS, -1, {2: 0}),
        (TEXTS, -1, {2: HUGE}),
        (TEXTS, -1, {5: HUGE}),
        (TEXTS, -1, {1: 29}),
        (TEXTS, -1, {4: 65}),
        (TEXTS, 3, {0: 1}),
        (TEXTS, 3, {1: 4}),
        (TEXTS, 3, {3: 5}),
        (TEXTS, 3, {3: HUGE}),
        (LISTS, 3, {3: HUGE}),
        (LISTS, 3, {1: 3, 2: 0}),
        (LISTS, 5, {3: HUGE}),
        (LISTS, -1, {3: 1000, 4: 1016}),
    ],
    ids=lambda value: None if isinstance(value, pa.RecordBatch) else str(value),
)
def test_numbers_that_do_not_fit_are_refused(batch: pa.RecordBatch, buffer: int, values: dict[int, int]) -> None:
    content = forge(batch, buffer, values)
    with pytest.raises(CorruptData, match="in block 7"):
        open_block(content, 3, layout_of(batch.schema), "a.spool", 7)
    with pytest.raises(CorruptData, match="in block 7"):
        BlockBatch([encoded(batch), content], np.array([3, 3]), layout_of(batch.schema), "a.spool", [6, 7]).batch()


@pytest.mark.parametrize("batch", [TEXTS, LISTS], ids=["texts", "lists"])
@pytest.mark.parametrize("rows", [0, 2, 4, HUGE])
def test_another_number_of_rows_is_refused(batch: pa.RecordBatch, rows: int) -> None:
    content = encoded(batch)
    with pytest.raises(CorruptData, match="in block 7"):
        open_block(content, rows, layout_of(batch.schema), "a.spool", 7)
    with pytest.raises(CorruptData, match="in block 7"):
        BlockBatch([content], np.array([rows]), layout_of(batch.schema), "a.spool", [7]).batch()


def test_strings_may_be_any_bytes() -> None:
    texts = pa.array([b"\xff", b"a"], pa.binary()).view(pa.string())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), texts)
    batch = pa.record_batch([pa.array([1, 2]), texts, lists], names=["k", "t", "l"])
    decoded = BlockBatch([encoded(batch)] * 2, np.array([2, 2]), layout_of(batch.schema), "a.spool", [6, 7]).batch()
    assert decoded["t"].view(pa.binary()).to_pylist() == [b"\xff", b"a"] * 2
    block = open_block(encoded(batch), 2, layout_of(batch.schema), "a.spool", 7)
    gathered = BlockBatch.of([block], layout_of(batch.schema), "a.spool", [7]).gather([1], np.array([0]))
    assert gathered["t"].view(pa.binary()).to_pylist() == [b"\xff"]
    with pytest.raises(UnicodeDecodeError):
        RowFinder(layout_of(batch.schema), 1).find(block, 0, (1,))
    assert decoded["l"].flatten().view(pa.binary()).to_pylist() == [b"\xff", b"a"] * 2


def test_starts_behind_a_block_are_refused() -> None:
    content = forge(TEXTS.select(["t"]), -1, {2: 16 + 4 * 101})
    with pytest.raises(CorruptData, match="in block 7 buffers"):
        open_block(content, 100, layout_of(TEXTS.select(["t"]).schema), "a.spool", 7)


def test_texts_are_gathered_from_the_blocks_that_have_them() -> None:
    pieces = [TEXTS[:1], TEXTS, TEXTS[1:]]
    batch_of_blocks = BlockBatch.of([opened(piece) for piece in pieces], layout_of(TEXTS.schema), "a.spool", [0, 1, 2])
    assert batch_of_blocks.gather([1, 3, 4], np.array([0, 0, 2, 1])).column("t").to_pylist() == ["a", "a", "def", "def"]


@pytest.mark.parametrize("size", [0, 3, 23])
def test_a_block_that_ends_early_is_refused(size: int) -> None:
    content = encoded(TEXTS)[:size]
    with pytest.raises(CorruptData, match="in block 7"):
        open_block(content, 3, layout_of(TEXTS.schema), "a.spool", 7)
    with pytest.raises(CorruptData, match="in block 7"):
        BlockBatch([content], np.array([3]), layout_of(TEXTS.schema), "a.spool", [7]).batch()


def test_values_that_no_writer_writes_are_refused() -> None:
    schema = pa.schema([KEY, ("t", pa.string()), ("d", pa.decimal128(3, 0)), ("l", pa.list_(pa.string()))])
    batch = pa.record_batch(
        [pa.array([1]), ["tt"], pa.array([Decimal(7)], pa.decimal128(3, 0)), [["ll"]]], schema=schema
    )
    content = encoded(batch)
    seven = b"\7\0\0\0\0\0\0\0"
    at = content.rindex(seven)
    forged = content[:at] + seven[::-1] + content[at + len(seven) :]
    with pytest.raises(CorruptData, match="in blocks 7 to 7 values of"):
        BlockBatch([forged], np.array([1]), layout_of(schema), "a.spool", [7]).batch()


def test_values_of_one_length_have_no_starts() -> None:
    schema = pa.schema([KEY, ("b", pa.binary())])
    rows = [pa.record_batch([pa.array(range(99)), pa.array([value] * 99)], schema=schema) for value in (b"x" * 20, b"")]
    even, empty = (encoded(batch) for batch in rows)
    assert len(even) == 24 + 99 * 28 + 4
    assert len(empty) == 24 + 99 * 8 + 100 * 4
    assert block_batch_of(rows).batch().to_pylist() == [row for batch in rows for row in batch.to_pylist()]


def test_structs_without_fields_have_a_number() -> None:
    schema = pa.schema([KEY, ("s", pa.list_(pa.struct([])))])
    batch = pa.record_batch([pa.array([1, 2]), pa.array([[{}, {}], [{}]], schema.field("s").type)], schema=schema)
    assert block_batch_of([batch]).batch() == batch
    with pytest.raises(CorruptData, match="in block 0"):
        block_batch_of([batch], [forge(batch, 3, {2: HUGE})]).batch()


def test_columns_alone_are_those_asked_for() -> None:
    assert block_batch_of([TEXTS]).batch([1]) == TEXTS.select([1])


def test_keys_of_every_type_are_read_as_they_are_stored() -> None:
    kinds = [pa.string(), pa.binary(), pa.bool_(), pa.int8(), pa.date32(), pa.timestamp("us"), pa.decimal128(18, 2)]
    values = ["é", b"\0", True, -3, date(1970, 1, 3), datetime(1970, 1, 1, 0, 0, 1), Decimal("-0.07")]  # noqa: DTZ001
    schema = pa.schema([pa.field(str(place), kind) for place, kind in enumerate(kinds)] + [pa.field("v", pa.int16())])
    columns = [pa.array([value], kind) for value, kind in zip(values, kinds, strict=True)]
    batch = pa.record_batch([*columns, pa.array([9], pa.int16())], schema=schema)
    key = ("é".encode(), b"\0", 1, -3, 2, 10**6, -7)
    find = RowFinder(layout_of(schema), len(kinds)).find
    assert find(opened(batch), 0, key) == (9,)
    for place in range(len(key)):
        assert find(opened(batch), 0, (*key[:place], None, *key[place + 1 :])) is None


def test_more_bytes_than_bounds_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "BLOCK_BYTES_MAX", 100)
    with pytest.raises(EncodingError, match="too many for one block"):
        encoded(TEXTS.take(pa.array([0, 1, 2] * 9)))


def test_columns_of_more_bytes_than_one_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_batch, "_OFFSET_MAX", 5)
    with pytest.raises(CorruptData, match="in block 0 columns with fewer bytes"):
        block_batch_of([TEXTS]).batch()
    monkeypatch.setattr(block_batch, "COLUMN_BYTES_MAX", 5)
    with pytest.raises(TooManyBytes):
        block_batch_of([TEXTS]).gather([3], np.array([1, 2, 2]))
    assert block_batch_of([TEXTS]).gather([2], np.array([1, 2])).num_rows == 2


@pytest.mark.parametrize("depth", [64, 65])
def test_columns_deep_within_others(depth: int) -> None:
    kind = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    schema = pa.schema([KEY, ("l", kind)])
    batch = pa.record_batch([pa.array([1]), pa.nulls(1, kind)], schema=schema)
    if depth > 64:
        with pytest.raises(SchemaError, match="more than 64 levels"):
            encoded(batch)
    else:
        assert block_batch_of([batch]).batch() == batch


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_blocks_come_back_from_what_they_are_compressed_to(compression: str, seed: int) -> None:
    generator = random.Random(seed)
    blocks = [generator.randbytes(size) + bytes(size) for size in (8, 16, 30_000, 40_000, 2_200_000, 4_000_000)]
    stored = [compress(block, compression) for block in blocks]
    for block, compressed in zip(blocks, stored, strict=True):
        assert decompress(compressed, len(block), compression) == block
    for end in range(1, len(blocks)):
        sizes = [len(block) for block in blocks[:end]]
        assert decompress_all(stored[:end], sizes, compression) == blocks[:end]


@pytest.mark.slow
def test_bytes_that_compress_well_are_no_shorter_than_readers_take() -> None:
    block = bytes(9_000_000)
    stored = compress(block, "zstd")
    assert len(block) <= EXPANSION_MAX * len(stored)
    assert decompress(stored, len(block), "zstd") == block
    assert decompress_all([stored, stored], [len(block)] * 2, "zstd") == [block] * 2
    assert len(compress(bytes(900_000), "zstd")) < 900_000 / EXPANSION_MAX
