"""The kinds of directories, and what each answers to commands that take a directory of any kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple

from ftfile.log.format.adds import total_bytes, total_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Job, MaintenanceAuthor
    from ftfile.log.state import LogState
    from ftfile.operate.findings import Finding


class OpenRows(NamedTuple):
    """The numbers of the rows that later commits write again: of open files, or of the runs of a store."""

    files: int
    rows: int
    size_bytes: int
    oldest_ms: int | None  # commit time of the oldest rows, by the driver's clock
    held: int  # due jobs that failed too often and are skipped for a while


class Kind(ABC):
    """A kind of directory."""

    name: Literal["files", "store"]

    def open_rows(self, head: LogState) -> OpenRows:
        """Return the numbers of open rows at a head."""
        segments = head.segments.values()
        return OpenRows(
            files=self.count_open(head),
            rows=total_rows(segments),
            size_bytes=total_bytes(segments),
            oldest_ms=min(map(self.committed_ms, segments), default=None),
            held=self.count_held(head),
        )

    @abstractmethod
    def count_open(self, head: LogState) -> int:
        """Return the number of open files or runs at a head."""

    @abstractmethod
    def committed_ms(self, segment: Add) -> int:
        """Return the commit time of a segment, by the driver's clock."""

    def count_held(self, head: LogState) -> int:
        """Return the number of due jobs that failed too often and are skipped for a while."""
        del head
        return 0

    @abstractmethod
    def check_job(self, job: Job) -> None:
        """Raise `CorruptData` for a job that no task can execute."""

    def consequence(self, add: Add) -> str:
        """Return what the loss of an add changes besides its rows; empty if nothing."""
        del add
        return ""

    def check_content(self, log: CommitLog, head: LogState) -> Iterator[Finding]:
        """Yield the damage of files that only this kind has."""
        del log, head
        yield from ()

    @abstractmethod
    def code_of(self, encoding: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the names of the user's code in an encoding, each after its option."""

    def keep_effects(self, log: CommitLog, author: MaintenanceAuthor, lost: Sequence[Add]) -> list[tuple[Add, Add]]:
        """Write adds without rows for lost adds that also act on other rows, and return these pairs."""
        del log, author, lost
        return []
