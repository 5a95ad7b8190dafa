"""What looking at a log, and adding to it, needs of the log that is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ftfile.commit.format.model import Record
    from ftfile.commit.log.bases import OwnBases
    from ftfile.commit.log.state import LogState
    from ftfile.core.clock import Clock
    from ftfile.fs.api import FileSystem

__all__ = ("LogReader",)


class LogReader(Protocol):
    """A log whose records can be read one by one; see `CommitLog`."""

    fs: FileSystem
    clock: Clock
    bases: OwnBases

    def read_on(self) -> LogState:
        """Return the state at the head of the log."""

    def read_record(self, version: int) -> Record | None:
        """Return a record, or None when there is none at that version."""
