"""Ranges to the shares of tasks: small ones together, large ones of lines in cuts, as a function of the ranges alone.

A cut has the lines that start in it: where it begins and ends within a line, its task finds the line ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.packing import packed
from ftfile.source.shares import OPEN_COST_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.source.files.decoding.settings import FileDecoding
    from ftfile.source.files.plan import Range


class Cut(NamedTuple):
    """The lines of a range that start in `[start, end)` of its plain content; all of one that is not cut."""

    range: Range
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileShare:
    """Cuts that one task reads."""

    cuts: tuple[Cut, ...]


def split(ranges: Iterable[Range], decoding: FileDecoding) -> list[FileShare]:
    """Return the shares of tasks in the order of the ranges; opening a file counts like reading one of 1 MiB.

    The same ranges have the same shares whatever happened to the files since.
    """
    bytes_max = decoding.max_partition_bytes
    cuts = (cut for found in ranges for cut in _cuts(found, bytes_max))
    groups = packed(cuts, lambda cut: cut.end - cut.start + OPEN_COST_BYTES, bytes_max)
    return [FileShare(tuple(group)) for group in groups]


def _cuts(found: Range, max_bytes: int) -> Iterator[Cut]:
    if found.whole or found.compression:
        yield Cut(found, found.start, found.end)
        return
    for start in range(found.start, found.end, max_bytes):
        yield Cut(found, start, min(start + max_bytes, found.end))
