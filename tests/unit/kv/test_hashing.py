"""Hashes of rows and of single keys: XXH64 of the stored bytes, chained over columns, as Spark's `xxhash64`."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from xxhash import xxh64_intdigest

from ftfile.core.errors import ConfigError
from ftfile.kv.hashing import KeyHasher, buckets_of, hash_rows
from ftfile.kv.key_columns import StoredKeys, first_fall, is_key_type, key_array

# By type: values that hash as an int of 4 bytes, as a long of 8, or as bytes.
AS_INTS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, -1, 0, 127],
    pa.int16(): [-32768, -1, 0, 32767],
    pa.int32(): [-(2**31), -1, 0, 7, 2**31 - 1],
    pa.date32(): [-719162, -1, 0, 20000],
}
AS_LONGS: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-(2**63), -1, 0, 5, 2**63 - 1],
    pa.timestamp("us"): [-1, 0, 1_700_000_000_000_001],
    pa.timestamp("us", "UTC"): [-1, 0, 1_700_000_000_000_001],
    pa.decimal128(18, 3): [Decimal("-999999999999999.999"), Decimal("-0.001"), Decimal(0), Decimal("1.5")],
}
UNSCALED = [-999999999999999999, -1, 0, 1500]


def some_bytes(seed: int, lengths: list[int]) -> list[bytes]:
    generator = random.Random(seed)
    return [generator.randbytes(length) for length in lengths]


def sliced(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column that does not begin where its buffers do."""
    array: pa.Array = pa.array([values[0], *values, values[-1]], kind)
    return array.slice(1, len(values))


def stored(kind: pa.DataType, values: list[Any]) -> list[Any]:
    return UNSCALED if pa.types.is_decimal128(kind) else values


@pytest.mark.parametrize("kind", AS_INTS, ids=str)
def test_as_ints(kind: pa.DataType) -> None:
    values = AS_INTS[kind]
    expected = [xxh64_intdigest(struct.pack("<i", value), 42) for value in values]
    assert hash_rows([sliced(values, kind)]).tolist() == expected
    assert [KeyHasher([kind]).hash((value,)) for value in values] == expected
    assert hash_rows([key_array(values, kind)]).tolist() == expected


@pytest.mark.parametrize("kind", AS_LONGS, ids=str)
def test_as_longs(kind: pa.DataType) -> None:
    values = AS_LONGS[kind]
    expected = [xxh64_intdigest(struct.pack("<q", value), 42) for value in stored(kind, values)]
    assert hash_rows([sliced(values, kind)]).tolist() == expected
    assert [KeyHasher([kind]).hash((value,)) for value in stored(kind, values)] == expected
    assert hash_rows([key_array(stored(kind, values), kind)]).tolist() == expected


@pytest.mark.parametrize("lengths", [[*range(101)] * 3, [16] * 50, [7], [0], [0, 0], [32] * 9, [5000, 0, 33]], ids=str)
def test_bytes_of_any_length(lengths: list[int], seed: int) -> None:
    values = some_bytes(seed, lengths)
    random.Random(seed).shuffle(values)
    expected = [xxh64_intdigest(value, 42) for value in values]
    assert hash_rows([sliced(values, pa.binary())]).tolist() == expected
    assert [KeyHasher([pa.binary()]).hash((value,)) for value in values] == expected
    assert hash_rows([key_array(values, pa.binary())]).tolist() == expected


def test_long_values_among_short_ones(seed: int) -> None:
    values = some_bytes(seed, [2047, 3, 2048, 0, 2049, 30_000, 40])
    expected = [xxh64_intdigest(value, 42) for value in values]
    both = [xxh64_intdigest(value, first) for value, first in zip(values, expected, strict=True)]
    assert hash_rows([sliced(values, pa.binary())]).tolist() == expected
    assert hash_rows([pa.array(values), pa.array(values)]).tolist() == both


@pytest.mark.slow
def test_more_rows_than_are_hashed_at_a_time(seed: int) -> None:
    values = some_bytes(seed, [random.Random(seed).randrange(70) for _ in range(20_000)])
    assert hash_rows([pa.array(values)]).tolist() == [xxh64_intdigest(value, 42) for value in values]
    numbers = np.random.default_rng(seed).integers(-(2**63), 2**63, 20_000)
    expected = [xxh64_intdigest(number.tobytes(), 42) for number in numbers]
    assert hash_rows([pa.array(numbers)]).tolist() == expected


def test_columns_are_chained_and_nulls_leave_the_hash() -> None:
    texts = pa.array(["a", None, "ü", None])
    numbers = pa.array([1, 2, None, None], pa.int32())
    text, number = KeyHasher([pa.string()]).hash, KeyHasher([pa.int32()]).hash
    both = KeyHasher([pa.string(), pa.int32()]).hash
    expected = [both((b"a", 1)), number((2,)), text(("ü".encode(),)), 42]
    assert hash_rows([texts, numbers]).tolist() == expected


def test_no_rows() -> None:
    for kind in (pa.string(), pa.int64(), pa.bool_(), pa.decimal128(5, 0)):
        assert hash_rows([pa.array([], kind)]).tolist() == []


def test_buckets_are_remainders_that_are_not_negative() -> None:
    hashes = np.array([0, 17, 2**64 - 1], np.uint64)
    assert buckets_of(hashes, 16).tolist() == [0, 1, 15]


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.decimal128(19, 0), pa.timestamp("ns"), pa.uint8(), pa.list_(pa.int8())], ids=str
)
def test_other_types_are_no_keys(kind: pa.DataType) -> None:
    assert not is_key_type(kind)


@pytest.mark.parametrize("kind", [*AS_INTS, *AS_LONGS, pa.string(), pa.binary()], ids=str)
def test_keys_are_read_as_stored_values(kind: pa.DataType) -> None:
    assert is_key_type(kind)
    values = {**AS_INTS, **AS_LONGS}.get(kind) or (["", "ü"] if pa.types.is_string(kind) else [b"", b"\xff"])
    expected = [value.encode() if isinstance(value, str) else value for value in stored(kind, values)]
    keys = StoredKeys([sliced(values, kind)])
    assert [keys[row] for row in range(len(keys))] == [(value,) for value in expected]
    assert keys[-1] == (expected[-1],)


class TestFirstFall:
    @pytest.mark.parametrize("kind", [*AS_INTS, *AS_LONGS], ids=str)
    def test_values_of_every_type(self, kind: pa.DataType) -> None:
        rising = sorted({**AS_INTS, **AS_LONGS}[kind])
        assert first_fall([sliced(rising, kind)]) is None
        assert first_fall([sliced([*rising, rising[-1]], kind)]) == len(rising) - 1

    def test_texts_rise_by_their_bytes(self) -> None:
        assert first_fall([pa.array(["", "Z", "a", "ab", "\uffff", "\U00010000"])]) is None
        assert first_fall([pa.array(["a", "B"])]) == 0

    def test_later_columns_count_where_the_earlier_are_equal(self) -> None:
        first, second = pa.array(["a", "a", "b", "b"]), pa.array([1, 2, 1, 1])
        assert first_fall([first, second]) == 2
        assert first_fall([first, pa.array([1, 2, 0, 3])]) is None
        assert first_fall([first, pa.array([2, 2, 0, 3])]) == 0

    def test_one_row_rises(self) -> None:
        assert first_fall([pa.array([1])]) is None
        assert first_fall([pa.array([], pa.int64())]) is None


def test_more_keys_at_a_time_than_a_column_holds() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return 1 << 31

    with pytest.raises(ConfigError, match="keys of 2147483649 bytes are too many for one call"):
        key_array([b"a", Long()], pa.binary())
