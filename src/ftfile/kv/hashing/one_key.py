"""The hash of one key, equal to that of a row with it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.kv.hashing.rows import SEED
from ftfile.kv.key_columns import is_byte_key, is_hashed_as_int

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa


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
