"""The hash of each row over some columns, or of a key, as Spark's function `xxhash64` gives it, and its bucket."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ftfile.arrays.buffers import is_valid
from ftfile.arrays.words import byte_ranges
from ftfile.core.errors import ConfigError
from ftfile.kv.hashing.xxh64 import hash_bytes, hash_ints, hash_longs
from ftfile.kv.key_columns import is_byte_key, is_hashed_as_int, key_integers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from ftfile.kv.key_values import Key

SEED = 42


def hash_rows(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Return the hash of each row over one column or more, of types that keys may have.

    The hash over the columns before is the seed of the next one; a null leaves it as it is.
    """
    hashes = np.full(len(columns[0]), SEED, np.uint64)
    for column in columns:
        found = _hash_column(column, hashes)
        hashes = np.where(is_valid(column), found, hashes) if column.null_count else found
    return hashes


def hash_keys(keys: Sequence[Key], kinds: Sequence[pa.DataType]) -> NDArray[np.uint64]:
    """Return the hash of each key, given its stored values and the types of their columns."""
    hashes = np.full(len(keys), SEED, np.uint64)
    for place, kind in enumerate(kinds):
        values: list[Any] = [key[place] for key in keys]
        if is_byte_key(kind):
            offsets = np.append(0, np.cumsum([*map(len, values)], dtype=np.int64))
            hashes = hash_bytes(offsets, np.frombuffer(b"".join(values), np.uint8), hashes)
        elif is_hashed_as_int(kind):
            hashes = hash_ints(np.array(values, np.int32), hashes)
        else:
            hashes = hash_longs(np.array(values, np.int64), hashes)
    return hashes


def buckets_of(hashes: NDArray[np.uint64], buckets: int) -> NDArray[np.int64]:
    """Return the bucket of each hash, `pmod(hash, buckets)` in Spark; `buckets` is a power of two."""
    found: NDArray[np.uint64] = hashes & np.uint64(buckets - 1)
    return found.astype(np.int64)


def _hash_column(column: pa.Array, seeds: NDArray[np.uint64]) -> NDArray[np.uint64]:
    if is_byte_key(column.type):
        offsets, data = byte_ranges(column)
        return hash_bytes(offsets, np.frombuffer(data, np.uint8), seeds)
    hash_values = hash_ints if is_hashed_as_int(column.type) else hash_longs
    return hash_values(key_integers(column), seeds)


def key_hasher(kinds: Sequence[pa.DataType]) -> Callable[[tuple[Any, ...]], int]:
    """Return the function from the stored values of a key, one of each type, to its hash, from 0 to 2**64 - 1.

    Raises:
        ConfigError: the package xxhash is missing.
    """
    try:
        from xxhash import xxh64_intdigest  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ConfigError(
            f"looking up single keys needs a package that is not installed here ({error}): pip install 'ftfile[kv]'"
        ) from error
    packers = [_packer(kind) for kind in kinds]
    if packers == [bytes]:
        return lambda key: xxh64_intdigest(key[0], SEED)
    if len(packers) == 1:
        (pack_one,) = packers
        return lambda key: xxh64_intdigest(pack_one(key[0]), SEED)

    def hash_key(key: tuple[Any, ...]) -> int:
        hashed = SEED
        for value, pack in zip(key, packers, strict=True):
            hashed = xxh64_intdigest(pack(value), hashed)
        return hashed

    return hash_key


def _packer(kind: pa.DataType) -> Callable[[Any], bytes]:
    if is_byte_key(kind):
        return bytes
    return struct.Struct("<i" if is_hashed_as_int(kind) else "<q").pack
