"""How far a file may be read: whole lines of one that grows, and all of one that is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Read: TypeAlias = Callable[[int, int], bytes]

_CHUNK_BYTES = 64 << 10

# Of formats with one: the marks, and the bytes behind them.
END_MARKS: dict[str, tuple[tuple[bytes, ...], int]] = {
    "parquet": ((b"PAR1", b"PARE"), 0),  # the second one of files with encrypted footers
    "orc": ((b"ORC",), 1),
    "arrow": ((b"ARROW1",), 0),
}

_CODECS = {
    ".gz": "gzip",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".zst": "zstd",
    ".lz4": "lz4",
    ".lz4f": "lz4frame",
    ".snappy": "snappy",
}

_LZ4_FRAME = bytes.fromhex("04224d18")


def codec_of(path: str) -> str:
    """Return the name of the codec that the ending of a path names; empty for none."""
    return next((codec for ending, codec in _CODECS.items() if path.endswith(ending)), "")


def codec_in(path: str, read: Read) -> str:
    """Return the codec of a file, by the ending of its path and its first bytes."""
    return codec_as_written(codec_of(path), read)


def codec_as_written(codec: str, read: Read) -> str:
    """Return the codec of a file: `.lz4` is written in Hadoop's blocks, or in the frames of the command `lz4`."""
    return "lz4frame" if codec == "lz4" and read(0, len(_LZ4_FRAME)) == _LZ4_FRAME else codec


def has_end_mark(file_format: str, end: bytes) -> bool:
    """Return True if the last bytes of a file have the mark of its format, which is in `END_MARKS`."""
    marks, behind = END_MARKS[file_format]
    return end[: len(end) - behind].endswith(marks)


def end_of_lines(read: Read, start: int, size: int, separator: bytes, limit: int | None = None) -> int:
    """Return the end of the whole lines from `start` on, in the first `limit` bytes; `start` if there is none.

    A first line that is longer than the limit is taken as a whole.

    Args:
        read: returns bytes of the file by offset and length.
        start: offset at which a line begins.
        size: of the file in bytes.
        separator: the end of a line; it does not end as it begins.
        limit: in bytes; None for none.
    """
    bound = size if limit is None else min(size, start + limit)
    end = last_line_end(read, start, bound, separator)
    if end is None and bound < size:
        end = first_line_end(read, max(start, bound - len(separator) + 1), size, separator)
    return start if end is None else end


def last_line_end(read: Read, start: int, end: int, separator: bytes) -> int | None:
    """Return the last end of a line in `(start, end]`; None if there is none."""
    high = end
    while high > start:
        low = max(start, high - _CHUNK_BYTES)
        piece = read(low, min(end, high + len(separator) - 1) - low)
        found = piece.rfind(separator)
        if found >= 0:
            return low + found + len(separator)
        high = low
    return None


def first_line_end(read: Read, begin: int, size: int, separator: bytes) -> int | None:
    """Return the first end of a line behind `begin`; None if there is none."""
    low = begin
    while low < size:
        piece = read(low, min(size - low, _CHUNK_BYTES + len(separator) - 1))
        found = piece.find(separator)
        if found >= 0:
            return low + found + len(separator)
        low += _CHUNK_BYTES
    return None
