"""Unsigned integers in runs of ORC, in both versions of the encoding.

A reader reads only the requested numbers, and each run has at least one, so that it terminates for any input.
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


_WIDTHS: tuple[int, ...] = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)  # in bits, by code
_BITS_64 = 64
_MASK_64 = 2**64 - 1
_LEAST_REPEATED = 3
_SIGN_OF_BYTE = 0x80
_PAIR = 2  # numbers in the header of a delta run


def first_run_numbers(data: bytes, count: int) -> Numbers:
    """Return the first numbers of runs of version 1; `ValueError` if the bytes are damaged or too short."""
    return _numbers(data, count, _run_of_version_1)


def second_run_numbers(data: bytes, count: int) -> Numbers:
    """Return the first numbers of runs of version 2; `ValueError` if the bytes are damaged or too short."""
    return _numbers(data, count, _run_of_version_2)


def _numbers(data: bytes, count: int, read_run: ReadRun) -> Numbers:
    runs, position, missing = [np.empty(0, np.uint64)], 0, count
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
    for _ in range(2 * _SIGN_OF_BYTE - control):
        number, position = read_varint(data, position)
        numbers.append(number & _MASK_64)
    return np.array(numbers, np.uint64), position


def _run_of_version_2(data: bytes, position: int) -> tuple[Numbers, int]:
    kind = _bytes_at(data, position, 1)[0] >> 6
    return (_repeated, _direct, _patched, _deltas)[kind](data, position)


def _repeated(data: bytes, position: int) -> tuple[Numbers, int]:
    head = _bytes_at(data, position, 1)[0]
    size = (head >> 3 & 7) + 1
    number = int.from_bytes(_bytes_at(data, position + 1, size), "big")
    return np.full((head & 7) + _LEAST_REPEATED, number, np.uint64), position + 1 + size


def _direct(data: bytes, position: int) -> tuple[Numbers, int]:
    code, count = _width_and_count(data, position)
    return _packed(data, position + 2, _WIDTHS[code], count)


def _width_for(bits: int) -> int:
    """Return the smallest width of numbers that have this number of bits."""
    for width in _WIDTHS:
        if width >= bits:
            return width
    return _BITS_64


def _patched(data: bytes, position: int) -> tuple[Numbers, int]:
    """Return numbers of a run with patches of high bits (Patched Base)."""
    code, count = _width_and_count(data, position)
    width = _WIDTHS[code]
    third, fourth = _bytes_at(data, position + 2, 2)
    base_size, patch_width = (third >> 5) + 1, _WIDTHS[third & 31]
    gap_width, patches = (fourth >> 5) + 1, fourth & 31
    base = _base(_bytes_at(data, position + 4, base_size))
    numbers, position = _packed(data, position + 4 + base_size, width, count)
    entries, position = _packed(data, position, _width_for(gap_width + patch_width), patches)
    place = 0
    for entry in entries.tolist():
        place += entry >> patch_width
        if place >= count:
            raise ValueError(f"a patch of number {place} in a run of {count}")
        patch = (entry & (1 << patch_width) - 1) << width & _MASK_64
        numbers[place] |= np.uint64(patch)
    return numbers + np.uint64(base & _MASK_64), position


def _base(data: bytes) -> int:
    """Return a number whose first bit is its sign."""
    number = int.from_bytes(data, "big")
    sign = 1 << 8 * len(data) - 1
    if number & sign:
        return sign - number
    return number


def _deltas(data: bytes, position: int) -> tuple[Numbers, int]:
    code, count = _width_and_count(data, position)
    first, position = read_varint(data, position + 2)
    step, position = read_varint(data, position)
    delta = (step >> 1) ^ -(step & 1)
    if not code:
        return _steps(first, delta, count), position
    sizes, position = _packed(data, position, _WIDTHS[code], max(0, count - _PAIR))
    if delta < 0:
        sizes = np.uint64(0) - sizes
    head = np.array([first & _MASK_64, delta & _MASK_64], np.uint64)
    numbers: Numbers = np.cumsum(np.concatenate([head, sizes]), dtype=np.uint64)[:count]
    return numbers, position


def _steps(first: int, delta: int, count: int) -> Numbers:
    numbers: Numbers = np.uint64(first & _MASK_64) + np.arange(count, dtype=np.uint64) * np.uint64(delta & _MASK_64)
    return numbers


def _width_and_count(data: bytes, position: int) -> tuple[int, int]:
    """Return the code of a width, and the number of values in a run."""
    first, second = _bytes_at(data, position, 2)
    return first >> 1 & 31, ((first & 1) << 8 | second) + 1


def _packed(data: bytes, position: int, width: int, count: int) -> tuple[Numbers, int]:
    """Return numbers of `width` bits each, and the position after them."""
    size = (width * count + 7) // 8
    bits = np.unpackbits(np.frombuffer(_bytes_at(data, position, size), np.uint8))[: width * count]
    padded = np.zeros((count, _BITS_64), np.uint8)
    padded[:, _BITS_64 - width :] = bits.reshape(count, width)
    numbers: Numbers = np.packbits(padded, axis=1).reshape(-1).view(">u8").astype(np.uint64)
    return numbers, position + size


def _bytes_at(data: bytes, position: int, size: int) -> bytes:
    piece = data[position : position + size]
    if len(piece) < size:
        raise ValueError(f"{len(piece)} bytes in place of {size} at {position} of a stream")
    return piece
