"""The bounds of records: a delimiter after each, or its length before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from ftfile.arrays import kernels as pc
from ftfile.arrays.buffers import string_parts, text_scalar
from ftfile.arrays.varints import ragged, varints
from ftfile.core.errors import ConfigError, EncodingError
from ftfile.core.options.table import DEFAULTS
from ftfile.encoding.base.lines import EncodedRows, ends_as_it_begins, rows_of, separator_ends, whole_lines
from ftfile.encoding.base.reading import corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_BLOCK_BYTES = 4 << 20
_MORE = 0x80
_VARINT_BYTES_MAX = 5  # of a length below 2**31


def framing_from_options(delimiter: bytes | None, length_prefix: str | None) -> Framing:
    """Return the framing of two options; `ConfigError` if both are given, or the delimiter cannot be found again."""
    if length_prefix is not None:
        if delimiter is not None:
            raise ConfigError("delimiter and lengthPrefix are both given: records have the one or the other")
        return _Prefixed(length_prefix)
    used = DEFAULTS["delimiter"] if delimiter is None else delimiter
    if not used:
        raise ConfigError("option delimiter='': it takes at least one byte; records of any bytes want a lengthPrefix")
    if ends_as_it_begins(used):
        raise ConfigError(f"option delimiter={used!r} ends as it begins: choose one that does not, or a lengthPrefix")
    return _Delimited(used)


@dataclass(frozen=True, slots=True)
class _Delimited:
    delimiter: bytes

    def definition(self) -> dict[str, Any]:
        """Return the framing as plain JSON."""
        return {"delimiter": self.delimiter.hex()}

    def frame(self, values: pa.BinaryArray) -> EncodedRows:
        """Return records without nulls as bytes of the file; `EncodingError` if one cannot be framed."""
        if pc.any(pc.match_substring(values, self.delimiter)).as_py():
            raise EncodingError(
                f"a record contains the delimiter {self.delimiter!r} and would be read as two. Choose a delimiter that "
                "does not occur, or lengthPrefix=int32"
            )
        empty, delimiter = (text_scalar(text, values.type) for text in (b"", self.delimiter))
        return rows_of(pc.binary_join_element_wise(values, empty, delimiter))

    def ends(self, data: bytes) -> NDArray[np.integer]:
        """Return the offset after each whole record."""
        return separator_ends(data, self.delimiter)

    def read(self, file: BinaryIO) -> Iterator[pa.BinaryArray]:
        """Yield the records of a file, some megabytes at a time; `CorruptData` if the last is not whole."""
        for block in whole_lines(file, self.delimiter):
            yield pa.array(block.split(self.delimiter)[:-1], pa.binary())


_SIZES: dict[str, tuple[str, Literal["big", "little"]]] = {"int32": (">u4", "big"), "int32le": ("<u4", "little")}


@dataclass(frozen=True, slots=True)
class _Prefixed:
    prefix: str

    def definition(self) -> dict[str, Any]:
        return {"lengthPrefix": self.prefix}

    def frame(self, values: pa.BinaryArray) -> EncodedRows:
        offsets, _ = string_parts(values)
        sizes = np.diff(offsets)
        if self.prefix == "varint":
            prefixes = ragged(*varints(sizes.astype(np.uint64)))
        else:
            matrix = sizes.astype(_SIZES[self.prefix][0]).view(np.uint8).reshape(-1, 4)
            prefixes = ragged(matrix, np.full(len(sizes), 4))
        return rows_of(pc.binary_join_element_wise(prefixes, values, text_scalar(b"", values.type)))

    def ends(self, data: bytes) -> NDArray[np.integer]:
        return self._bounds(data)[1]

    def read(self, file: BinaryIO) -> Iterator[pa.BinaryArray]:
        rest = b""
        wanted = _BLOCK_BYTES
        while block := file.read(wanted):
            rest += block
            starts, ends = self._bounds(rest)
            if len(ends):
                pieces = [rest[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
                yield pa.array(pieces, pa.binary())
                rest = rest[int(ends[-1]) :]
            # A record longer than a block is parsed again only when it may be whole.
            wanted = max(_BLOCK_BYTES, self._next(rest, 0)[1] - len(rest))
        if rest:
            raise corrupt(file, "whole records", f"{len(rest)} bytes of one that is not")

    def _bounds(self, data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the start of each whole record, after its length, and its end."""
        starts, ends, position = [], [], 0
        while position < len(data):
            start, position = self._next(data, position)
            if not start or position > len(data):
                break
            starts.append(start)
            ends.append(position)
        return np.array(starts, np.int64), np.array(ends, np.int64)

    def _next(self, data: bytes, position: int) -> tuple[int, int]:
        """Return start and end of the record at a position; zeros if its length is not whole."""
        if self.prefix != "varint":
            start = position + 4
            length = int.from_bytes(data[position:start], _SIZES[self.prefix][1])
            return (start, start + length) if start <= len(data) else (0, 0)
        length, shift = 0, 0
        for start in range(position, min(position + _VARINT_BYTES_MAX, len(data))):
            length |= (data[start] & 0x7F) << shift
            shift += 7
            if data[start] < _MORE:
                return start + 1, start + 1 + length
        return 0, 0


Framing: TypeAlias = _Delimited | _Prefixed
