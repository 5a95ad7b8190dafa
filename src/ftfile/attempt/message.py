"""The message of a task to the driver: data only, no handles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ftfile.core.version import __version__

if TYPE_CHECKING:
    from ftfile.attempt.identity import TaskIdentity
    from ftfile.commit.format.model import Add, SourceRange

__all__ = ("Assembled", "StagedPart", "StagedSegment", "TaskCommit")


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A complete, durable file that nobody sees yet.

    Attributes:
        id: unique for ever.
        path: relative to the directory.
        length: bytes on storage, as the writer counted them.
        logical_length: bytes before the filters.
        filters: names, in the order in which they were applied.
    """

    id: str
    path: str
    length: int
    logical_length: int
    checksum: str
    rows: int
    bucket: str
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """Rows of one bucket in a complete, durable spool.

    Attributes:
        id: unique for ever.
        path: of the spool, relative to the directory.
        offset: where the segment's data begins in it.
        length: of the data.
        logical_length: of the data before the filters.
        rolling_stats: what rolling policies go by; see `sink.rolling.groups`.
        filters: names, in the order in which they were applied.
    """

    id: str
    path: str
    offset: int
    length: int
    logical_length: int
    checksum: str
    rows: int
    bucket: str
    rolling_stats: dict[str, Any]
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembled:
    """The result of a due job in a task.

    Attributes:
        job: its id.
        inputs: the segments that are used up by it, wholly or in part.
        parts: made of them, each with the ranges it took.
        rests: what is left of the inputs: later ranges of the same spools.
        read_version: the version at which the inputs were live.
        reason: why the parts ended.
    """

    job: str
    reason: str
    inputs: tuple[Add, ...]
    parts: tuple[tuple[StagedPart, tuple[SourceRange, ...]], ...]
    rests: tuple[Add, ...]
    read_version: int


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """The result of one attempt.

    Attributes:
        dead_letters: records that could not be written.
        found_committed: the batch was in the log already; nothing was written.
        segments: rows that stay in open parts.
        assembled: due jobs that this attempt did beside its own rows.
        failed: ids of due jobs that it could not do, and of segments that it had to leave out of parts.
        fingerprint: of the rows of this task, to be merged.
        planned_ms: the driver's clock when the batch was planned.
        writer_version: of the ftfile that ran in the executor.
    """

    identity: TaskIdentity
    parts: tuple[StagedPart, ...]
    fingerprint: dict[str, Any]
    segments: tuple[StagedSegment, ...] = ()
    assembled: tuple[Assembled, ...] = ()
    failed: tuple[str, ...] = ()
    dead_letters: tuple[StagedPart, ...] = ()
    found_committed: bool = False
    planned_ms: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    writer_version: str = __version__
