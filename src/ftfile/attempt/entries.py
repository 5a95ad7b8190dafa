"""Staged files of tasks, as entries of the log; parts get their names when they are committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.format.model import Add, Origin
from ftfile.commit.rewrites import Rewrite

if TYPE_CHECKING:
    from ftfile.attempt.message import Assembled, StagedPart
    from ftfile.commit.format.model import SourceRange

__all__ = ("add_of", "rewrite_of")


def add_of(part: StagedPart, encoding: str, origin: Origin, ranges: tuple[SourceRange, ...] = ()) -> Add:
    """Return a part as the log has it, but for its name, which only one that was never staged has already."""
    return Add(
        id=part.id,
        kind="part",
        path=part.path,
        final_path=None if layout.is_staged(part.path) else part.path,
        length=part.length,
        logical_length=part.logical_length,
        checksum=part.checksum,
        rows=part.rows,
        bucket=part.bucket,
        encoding=encoding,
        origin=origin,
        filters=part.filters,
        ranges=ranges,
    )


def rewrite_of(assembled: Assembled) -> Rewrite:
    """Return the replacement of segments by the parts made of them, and by what is left of them."""
    segments = assembled.inputs
    by_id = {segment.id: segment for segment in segments}
    parts = []
    for part, ranges in assembled.parts:
        origins = [by_id[each.add_id].origin for each in ranges]
        first, last = min(each.first_batch for each in origins), max(each.last_batch for each in origins)
        origin = Origin(segments[0].origin.query_id, first, last)
        parts.append(add_of(part, segments[0].encoding, origin, ranges))
    return Rewrite(segments, (*parts, *assembled.rests), assembled.read_version, assembled.reason)
