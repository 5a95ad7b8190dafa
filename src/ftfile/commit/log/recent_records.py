"""The last records of a log as a committer remembers them, so that it need not read them again to make a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftfile.commit.format.model import Record

__all__ = ("RecentRecords",)


class RecentRecords:
    """Consecutive records, up to the newest; empty and free of charge for who never creates one.

    Attributes:
        size_bytes: of the records on storage.
        failures: how often in turn no range could be made of them.
        paused_to: the version before which that is not tried again.
    """

    def __init__(self) -> None:
        self._records: dict[int, Record] = {}
        self._kept = False
        self.size_bytes = 0
        self.failures = 0
        self.paused_to = -1

    def keep(self) -> None:
        """Remember from now on."""
        self._kept = True

    def append(self, record: Record, size_bytes: int) -> None:
        """Take in the next record."""
        if self._kept:
            self._records[record.version] = record
            self.size_bytes += size_bytes

    def get(self, version: int) -> Record | None:
        """Return a record if it is remembered."""
        return self._records.get(version)

    def clear(self) -> None:
        """Forget all: ranges stand for it, or what was read may not be part of the log."""
        self._records = {}
        self.size_bytes = 0
