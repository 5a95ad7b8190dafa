"""The last records of a log as a committer remembers them, so that it need not read them again to make a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftfile.commit.model import Record

__all__ = ("Tail",)


class Tail:
    """Consecutive records, up to the newest; empty and free of charge for who never creates one.

    Attributes:
        size_bytes: of the records on storage.
    """

    def __init__(self) -> None:
        self._records: dict[int, tuple[Record, int]] = {}
        self._kept = False
        self.size_bytes = 0

    def keep(self) -> None:
        """Remember from now on."""
        self._kept = True

    def append(self, record: Record, size_bytes: int) -> None:
        """Take in the next record."""
        if self._kept:
            self._records[record.version] = record, size_bytes
            self.size_bytes += size_bytes

    def get(self, version: int) -> Record | None:
        """Return a record if it is remembered."""
        found = self._records.get(version)
        return found[0] if found else None

    def forget(self, version: int) -> None:
        """Forget the records up to and including a version."""
        self._records = {at: entry for at, entry in self._records.items() if at > version}
        self.size_bytes = sum(size_bytes for _, size_bytes in self._records.values())

    def clear(self) -> None:
        """Forget all: what was read may not be part of the log."""
        self._records = {}
        self.size_bytes = 0
