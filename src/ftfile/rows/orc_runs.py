"""Unsigned integers in the run-length encoding of ORC, in both versions of the encoding.

Decoding ends at the requested count of numbers. Each run contains at least one number, so decoding ends for any input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ftfile.rows.buffers import read_varint

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from numpy.typing import NDArray

    Numbers: TypeAlias = NDArray[np.uint64]
    ReadRun: TypeAlias = Callable[[bytes, int], tuple[Numbers, int]]


_WIDTHS: tuple[int, ...] = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)  # the width in bits for each code
_BITS_64 = 64
_MASK_64 = 2**64 - 1
_LEAST_REPEATED = 3  # numbers in the shortest run of equal or evenly spaced numbers
_SIGN_OF_BYTE = 0x80
_PAIR = 2  # numbers in the header of a delta run: the first one and its difference to the second one


def read_rle_v1(data: bytes, count: int) -> Numbers:
    """Return the first `count` numbers of runs of version 1; `ValueError` if `data` is damaged or too short."""
    return _numbers(data, count, _run_of_version_1)


def read_rle_v2(data: bytes, count: int) -> Numbers:
    """Return the first `count` numbers of runs of version 2; `ValueError` if `data` is damaged or too short."""
    return _numbers(data, count, _run_of_version_2)


def _numbers(data: bytes, count: int, read_run: ReadRun) -> Numbers:
    runs = [np.empty(0, np.uint64)]
    position = 0
    missing = count
    while missing > 0:
        run, position = read_run(data, position)
        runs.append(run[:missing])
        missing -= len(run)
    return np.concatenate(runs)


def _run_of_version_1(data: bytes, position: int) -> tuple[Numbers, int]:
    control = _bytes_at(data, position, 1)[0]
    position += 1
    if control < _SIGN_OF_BYTE:
        delta = int.from_bytes(_bytes_at(data, position, 1), "big", signed=True)
        first, position = read_varint(data, position + 1)
        return _steps(first, delta, control + _LEAST_REPEATED), position
    numbers = []
    count = 2 * _SIGN_OF_BYTE - control  # a negative byte is the negated count of single numbers
    for _ in range(count):
        number, position = read_varint(data, position)
        numbers.append(number & _MASK_64)
    return np.array(numbers, np.uint64), position


def _run_of_version_2(data: bytes, position: int) -> tuple[Numbers, int]:
    kind = _bytes_at(data, position, 1)[0] >> 6
    read_run = (_read_repeated, _read_direct, _read_patched, _read_deltas)[kind]
    return read_run(data, position)


def _read_repeated(data: bytes, position: int) -> tuple[Numbers, int]:
    header = _bytes_at(data, position, 1)[0]
    size = ((header >> 3) & 7) + 1
    count = (header & 7) + _LEAST_REPEATED
    number = int.from_bytes(_bytes_at(data, position + 1, size), "big")
    return np.full(count, number, np.uint64), position + 1 + size


def _read_direct(data: bytes, position: int) -> tuple[Numbers, int]:
    code, count = _width_and_count(data, position)
    return _read_packed(data, position + 2, _WIDTHS[code], count)


def _width_for(bits: int) -> int:
    """Return the smallest width of the encoding that has at least this number of bits."""
    for width in _WIDTHS:
        if width >= bits:
            return width
    return _BITS_64


def _read_patched(data: bytes, position: int) -> tuple[Numbers, int]:
    """Return the numbers of a run of the kind Patched Base.

    Its numbers are stored as differences from a base, without their highest bits. A patch contains the highest bits of
    one number, and the distance of this number from the number of the previous patch.
    """
    code, count = _width_and_count(data, position)
    width = _WIDTHS[code]
    third, fourth = _bytes_at(data, position + 2, 2)
    base_size = (third >> 5) + 1
    patch_width = _WIDTHS[third & 31]
    gap_width = (fourth >> 5) + 1
    patch_count = fourth & 31
    base = _base(_bytes_at(data, position + 4, base_size))
    numbers, position = _read_packed(data, position + 4 + base_size, width, count)
    entries, position = _read_packed(data, position, _width_for(gap_width + patch_width), patch_count)
    patch_mask = (1 << patch_width) - 1
    place = 0
    for entry in entries.tolist():
        gap = entry >> patch_width
        place += gap
        if place >= count:
            raise ValueError(f"a patch of number {place} in a run of {count}")
        patch = ((entry & patch_mask) << width) & _MASK_64
        numbers[place] |= np.uint64(patch)
    return numbers + np.uint64(base & _MASK_64), position


def _base(data: bytes) -> int:
    """Return a number whose first bit is its sign, and whose other bits are its absolute value."""
    number = int.from_bytes(data, "big")
    sign = 1 << (8 * len(data) - 1)
    if number & sign:
        return sign - number
    return number


def _read_deltas(data: bytes, position: int) -> tuple[Numbers, int]:
    code, count = _width_and_count(data, position)
    first, position = read_varint(data, position + 2)
    zigzag, position = read_varint(data, position)
    delta = (zigzag >> 1) ^ -(zigzag & 1)
    if not code:  # all differences are equal
        return _steps(first, delta, count), position
    sizes, position = _read_packed(data, position, _WIDTHS[code], max(0, count - _PAIR))
    if delta < 0:
        sizes = np.uint64(0) - sizes  # negative differences modulo 2**64, as in the sum below
    head = np.array([first & _MASK_64, delta & _MASK_64], np.uint64)
    differences = np.concatenate([head, sizes])
    numbers: Numbers = np.cumsum(differences, dtype=np.uint64)[:count]
    return numbers, position


def _steps(first: int, delta: int, count: int) -> Numbers:
    """Return `count` numbers from `first` on, each with the difference `delta` to the previous one, modulo 2**64."""
    places = np.arange(count, dtype=np.uint64)
    numbers: Numbers = np.uint64(first & _MASK_64) + places * np.uint64(delta & _MASK_64)
    return numbers


def _width_and_count(data: bytes, position: int) -> tuple[int, int]:
    """Return the code of the width, and the number of values of a run, from its header of two bytes."""
    first, second = _bytes_at(data, position, 2)
    code = (first >> 1) & 31
    count = (((first & 1) << 8) | second) + 1
    return code, count


def _read_packed(data: bytes, position: int, width: int, count: int) -> tuple[Numbers, int]:
    """Return numbers of `width` bits each, and the position after them."""
    size = (width * count + 7) // 8
    packed = np.frombuffer(_bytes_at(data, position, size), np.uint8)
    bits = np.unpackbits(packed)[: width * count]
    padded = np.zeros((count, _BITS_64), np.uint8)
    padded[:, _BITS_64 - width :] = bits.reshape(count, width)
    numbers: Numbers = np.packbits(padded, axis=1).reshape(-1).view(">u8").astype(np.uint64)
    return numbers, position + size


def _bytes_at(data: bytes, position: int, size: int) -> bytes:
    piece = data[position : position + size]
    if len(piece) < size:
        raise ValueError(f"{len(piece)} bytes in place of {size} at {position} of a stream")
    return piece
