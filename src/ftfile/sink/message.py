"""What a task tells the driver: data only, no handles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ftfile.core.version import __version__

if TYPE_CHECKING:
    from ftfile.sink.identity import TaskIdentity

__all__ = ("StagedPart", "TaskCommit")


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A complete, durable file that nobody sees yet.

    Attributes:
        id: unique for ever.
        path: relative to the directory.
        length: bytes on storage, as the writer counted them.
    """

    id: str
    path: str
    length: int
    checksum: str
    rows: int
    bucket: str


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """The result of one attempt.

    Attributes:
        found_committed: the batch was in the log already; nothing was written.
        fingerprint: of the rows of this task, to be merged.
        writer_version: of the ftfile that ran in the executor.
    """

    identity: TaskIdentity
    parts: tuple[StagedPart, ...]
    fingerprint: dict[str, Any]
    found_committed: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    writer_version: str = __version__
