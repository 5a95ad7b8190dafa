"""The encoding of columns of adds as compressed JSON."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, TypeVar

from isal import isal_zlib

from ftfile.log.format.record import FILE_BYTES_MAX, check_limits, compact_json, decode_json

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

_Value = TypeVar("_Value")

# Level 1 of isal takes a quarter of the time of level 1 of zlib, and its streams are 5 % shorter.
COMPRESSION_LEVEL = 1


def pack_json(value: object) -> bytes:
    """Return the value as compressed JSON; ConfigError for a value that readers would refuse."""
    return isal_zlib.compress(check_limits(compact_json(value)), COMPRESSION_LEVEL)


def unpack_json(content: bytes, kind: type[_Value]) -> _Value:
    """Return the value of `pack_json`; ValueError or zlib.error for damage, and above the limits."""
    return Unpacker().value(content, kind)


class Unpacker:
    """Unpacks streams that have at most `FILE_BYTES_MAX` bytes of text together."""

    def __init__(self) -> None:
        self._room = FILE_BYTES_MAX

    def value(self, content: bytes, kind: type[_Value]) -> _Value:
        """Return the value of a stream; errors are those of `unpack_json`."""
        stream = zlib.decompressobj()
        text = stream.decompress(content, max(self._room, 1))  # zlib takes 0 for no limit
        if not stream.eof or stream.unused_data:
            raise ValueError(
                f"a compressed stream that is truncated, has trailing bytes, or has more than {FILE_BYTES_MAX} bytes"
            )
        self._room -= len(text)
        return decode_json(text, kind)


def code_column(values: list[Any], keys: Sequence[Hashable] | None = None) -> list[Any]:
    """Return a column as JSON. Values are the same if their keys are equal, by default the values."""
    if keys is None:
        keys = values
    numbers: dict[Hashable, int | None] = dict.fromkeys(keys)
    if len(numbers) == 1:
        return ["constant", values[0]]
    if len(numbers) > len(values) // 2:
        return ["plain", values]
    distinct = dict(zip(keys, values, strict=True))
    numbers.update(zip(distinct, range(len(distinct)), strict=True))
    return ["dictionary", list(distinct.values()), list(map(numbers.__getitem__, keys))]


def check_count(name: str, values: Sequence[object], count: int) -> None:
    """Raise a ValueError unless there is this number of values."""
    if len(values) != count:
        raise ValueError(f"{name} is {values!r:.80}, but needs {count} values")
