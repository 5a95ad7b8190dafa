"""Numbers of variable length, many at a time: seven bits a byte, the lowest first, as Avro and Protobuf have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import strings_from

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BYTES_MAX = 10
# The mark of "there is more" on all bytes of a number but its last, by how many bytes it has; the first eight of them.
_MORE = np.array([0x8080808080808080 & ((1 << 8 * max(0, size - 1)) - 1) for size in range(_BYTES_MAX + 1)], np.uint64)


def zigzag(values: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return numbers as Avro numbers them: 0, -1, 1, -2, 2 …."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def varint(number: int) -> bytes:
    """Return one number, of 0 or more."""
    encoded = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - what seven bits hold
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def read_varint(data: bytes, position: int = 0, bytes_max: int = _BYTES_MAX) -> tuple[int, int]:
    """Return the number at a position, and the position after it; `ValueError` if it has no end."""
    found = 0
    for place, byte in enumerate(data[position : position + bytes_max]):
        found |= (byte & 0x7F) << 7 * place
        if byte <= 0x7F:  # noqa: PLR2004 - the last one
            return found, position + place + 1
    raise ValueError("a number without an end")


def varints(numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Return the bytes of each number, one row a number, and how many of a row's bytes count."""
    sizes = np.ones(len(numbers), np.int8)
    width = max(1, -(-int(numbers.max()).bit_length() // 7)) if len(numbers) else 1
    for size in range(1, width):
        sizes += numbers >= np.uint64(1 << 7 * size)
    # Spread 56 bits over eight bytes: halves, quarters, eighths.
    spread = (numbers & np.uint64(0x0FFFFFFF)) | (numbers & np.uint64(0x0FFFFFFF << 28)) << np.uint64(4)
    spread = (spread & np.uint64(0x00003FFF00003FFF)) | (spread & np.uint64(0x0FFFC0000FFFC000)) << np.uint64(2)
    spread = (spread & np.uint64(0x007F007F007F007F)) | (spread & np.uint64(0x3F803F803F803F80)) << np.uint64(1)
    spread |= _MORE[sizes]
    low = spread.view(np.uint8).reshape(-1, 8)
    if width <= 8:  # noqa: PLR2004 - bytes of 64 bits
        return low[:, :width], sizes
    found = np.empty((len(numbers), width), np.uint8)
    found[:, :8] = low
    top = numbers >> np.uint64(56)
    found[:, 8] = top.astype(np.uint8) & 0x7F | np.where(sizes == _BYTES_MAX, 0x80, 0).astype(np.uint8)
    if width == _BYTES_MAX:
        found[:, 9] = (top >> np.uint64(7)).astype(np.uint8)
    return found, sizes


def ragged(matrix: NDArray[np.uint8], sizes: NDArray[np.integer]) -> pa.BinaryArray:
    """Return a binary column of the first bytes of each row: as many as its size says."""
    width = matrix.shape[1]
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    whole = offsets[-1] == width * len(sizes)
    data = matrix.reshape(-1) if whole else matrix[np.arange(width) < sizes[:, None]]
    return strings_from(offsets, data, pa.binary())
