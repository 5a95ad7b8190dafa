"""Checksums as text `kind:hex`, with the errors that damaged content causes."""

from __future__ import annotations

import zlib

from isal import isal_zlib

from ftfile.core.errors import ConfigError, CorruptData

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
        """Add the next `length` bytes, of which only the checksum `other` is given.

        Raises:
            ConfigError: this version does not support the kind of checksum.
        """
        check_known_checksum(other)
        self._value = isal_zlib.crc32_combine(self._value, int(other.removeprefix(_KIND), 16), length)

    def text(self) -> str:
        """Return `crc32:` and 8 hex digits for all bytes fed so far."""
        return f"{_KIND}{self._value:08x}"


def crc32(data: Buffer, before: int = 0) -> int:
    """Return a CRC-32 as a number: of `data`, preceded by bytes whose CRC-32 is `before`."""
    return isal_zlib.crc32(data, before)


def checksum(data: Buffer) -> str:
    """Return the checksum text of `data`."""
    return f"{_KIND}{isal_zlib.crc32(data):08x}"


def matches(data: Buffer, expected: str) -> bool:
    """Return True if `data` has the checksum `expected`; raise a ConfigError if its kind is not supported."""
    check_known_checksum(expected)
    return checksum(data) == expected


def check_known_checksum(text: str) -> None:
    """Raise a ConfigError for a kind of checksum that this version does not support."""
    if not text.startswith(_KIND):
        raise ConfigError(f"unknown kind of checksum {text!r:.80}: read it with a newer version of ftfile")


# The errors that Python and its libraries raise while they decode a damaged or forged file.
DAMAGE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
)


class Decoding:
    """A context manager for code that decodes a file: it replaces an error in `DAMAGE` by `CorruptData`."""

    def __init__(self, path: str, expected: str, hint: str = "") -> None:
        self._path, self._expected, self._hint = path, expected, hint

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, DAMAGE):
            actual = f"unreadable fields ({error!r:.300})"
            raise CorruptData(self._path, self._expected, actual, self._hint) from error
