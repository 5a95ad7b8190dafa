"""Checksums, written as `kind:hex` so that a stored one says how to check it."""

from __future__ import annotations

from isal import isal_zlib

Buffer = bytes | bytearray | memoryview

_KIND = "crc32:"


class Crc32:
    """A running CRC-32 (the polynomial of gzip and zip) over the bytes fed so far."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: Buffer) -> None:
        """Add the next bytes."""
        self._value = isal_zlib.crc32(data, self._value)

    def extend(self, other: str, length: int) -> None:
        """Add the next `length` bytes by their checksum; a ValueError for a kind of checksum not known here."""
        check_known_checksum(other)
        self._value = isal_zlib.crc32_combine(self._value, int(other.removeprefix(_KIND), 16), length)

    def text(self) -> str:
        """Return `crc32:` and 8 hex digits for all bytes fed so far."""
        return f"{_KIND}{self._value:08x}"


def crc32(data: Buffer, before: int = 0) -> int:
    """Return the CRC-32 of `data` behind bytes with that of `before`, for formats that keep it as a number."""
    return isal_zlib.crc32(data, before)


def checksum(data: Buffer) -> str:
    """Return the checksum text of `data`."""
    return f"{_KIND}{isal_zlib.crc32(data):08x}"


def matches(data: Buffer, expected: str) -> bool:
    """Return True if `data` has the checksum `expected`; a ValueError for a kind not known here."""
    check_known_checksum(expected)
    return checksum(data) == expected


def check_known_checksum(text: str) -> None:
    """Raise a ValueError for a checksum of a kind that this version does not know."""
    if not text.startswith(_KIND):
        raise ValueError(f"unknown kind of checksum {text!r}: read it with a newer ftfile")
