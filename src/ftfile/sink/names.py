"""What parts are called, and how what tasks staged goes into the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.model import Add, Origin
from ftfile.commit.proposal import Rewrite

if TYPE_CHECKING:
    from ftfile.commit.model import SourceRange
    from ftfile.sink.message import Assembled, StagedPart

__all__ = ("PartNames", "add_of", "rewrite_of")


class PartNames:
    """Final names, numbered within their bucket, in the order in which they are asked for.

    Args:
        stem: the middle of the names; sorts as commits do.
        first: the first number.
    """

    def __init__(self, stem: str, first: int = 0) -> None:
        self._stem = stem
        self._first = first
        self._numbers: dict[str, int] = {}

    def next(self, part: StagedPart, extension: str) -> str:
        """Return where a part is published."""
        number = self._numbers.get(part.bucket, self._first)
        self._numbers[part.bucket] = number + 1
        name = f"part-{self._stem}-{number:05d}-{part.id[:12]}{extension}"
        return f"{part.bucket}/{name}" if part.bucket else name


def add_of(
    part: StagedPart, final_path: str, encoding: str, origin: Origin, ranges: tuple[SourceRange, ...] = ()
) -> Add:
    """Return a part as the log has it."""
    return Add(
        id=part.id,
        kind="part",
        path=part.path,
        final_path=final_path,
        length=part.length,
        logical_length=part.length,
        checksum=part.checksum,
        rows=part.rows,
        bucket=part.bucket,
        encoding=encoding,
        origin=origin,
        ranges=ranges,
    )


def rewrite_of(assembled: Assembled, names: PartNames) -> Rewrite:
    """Return the replacement of segments by the parts made of them, and by what is left of them."""
    segments = assembled.inputs
    by_id = {segment.id: segment for segment in segments}
    parts = []
    for part, ranges in assembled.parts:
        origins = [by_id[each.add_id].origin for each in ranges]
        first, last = min(each.first_batch for each in origins), max(each.last_batch for each in origins)
        origin = Origin(segments[0].origin.query_id, first, last)
        name = names.next(part, assembled.extension)
        parts.append(add_of(part, name, segments[0].encoding, origin, ranges))
    return Rewrite(segments, (*parts, *assembled.rests), assembled.known_at)
