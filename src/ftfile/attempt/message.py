"""The message of a task to the driver: data only, no handles; and its files as entries of the log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ftfile.commit.format import layout
from ftfile.commit.format.model import Add
from ftfile.core.version import __version__

if TYPE_CHECKING:
    from ftfile.attempt.identity import TaskIdentity
    from ftfile.commit.format.model import Origin, SourceRange
    from ftfile.commit.rewrites import Rewrite


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A complete, durable file that nobody sees yet."""

    id: str  # unique for ever
    path: str  # relative to the directory
    length: int  # bytes on storage, as the writer counted them
    logical_length: int  # bytes before the filters
    checksum: str
    rows: int
    bucket: str
    filters: tuple[str, ...] = ()  # names, in the order in which they were applied


@dataclass(frozen=True, slots=True)
class StagedSegment(StagedPart):
    """Rows of one bucket in a complete, durable spool, as of a part in a file of its own."""

    offset: int = 0  # first byte in the spool
    rolling_stats: dict[str, Any] = field(default_factory=dict)  # see `sink.rolling.groups`


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """The result of one attempt."""

    identity: TaskIdentity
    parts: tuple[StagedPart, ...]
    fingerprint: dict[str, Any]  # of the rows of this task
    segments: tuple[StagedSegment, ...] = ()  # rows that stay in open parts
    rewritten: tuple[Rewrite, ...] = ()  # due jobs that it did beside its own rows
    failed: tuple[str, ...] = ()  # ids of failed jobs, and of segments left out of parts
    dead_letters: tuple[StagedPart, ...] = ()  # records that could not be written
    found_committed: bool = False  # the batch was in the log; nothing was written
    planned_ms: int = 0  # the driver's clock when the batch was planned
    metrics: dict[str, float] = field(default_factory=dict)
    definition: str | None = None  # key of the definition of the store for which it wrote rows
    writer_version: str = __version__  # of the ftfile that ran in the executor


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


def segment_of(segment: StagedSegment, encoding: str, origin: Origin, stats: dict[str, Any]) -> Add:
    """Return a segment as the log has it, with more stats."""
    add = add_of(segment, encoding, origin)
    stats = segment.rolling_stats | stats
    return replace(add, kind="segment", final_path=None, offset=segment.offset, rolling_stats=stats)
