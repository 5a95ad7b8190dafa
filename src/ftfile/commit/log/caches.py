"""What one process remembers of a log beside its state, so that it need not read it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ftfile.commit.format.model import Record

__all__ = ("DIRECTORIES_KEPT", "KnownPaths", "RecentRecords")

# Directories that a process remembers, so that each is looked up once; some 100 bytes each.
DIRECTORIES_KEPT = 100_000


@dataclass(slots=True)
class RecentRecords:
    """Consecutive records up to the newest, of which ranges are made; none in a process that creates none.

    Attributes:
        records: by version.
        is_kept: whether records are remembered.
        size_bytes: of the records on storage.
        failures: how often in turn no range could be made of them.
        paused_to: the version before which that is not tried again.
    """

    records: dict[int, Record] = field(default_factory=dict)
    is_kept: bool = False
    size_bytes: int = 0
    failures: int = 0
    paused_to: int = -1

    def append(self, record: Record, size_bytes: int) -> None:
        """Take in the next record."""
        if self.is_kept:
            self.records[record.version] = record
            self.size_bytes += size_bytes

    def clear(self) -> None:
        """Forget all records: ranges stand for them, or they may not be part of the log."""
        self.records = {}
        self.size_bytes = 0


@dataclass(slots=True)
class KnownPaths:
    """Final paths that are known from one commit to the next.

    Attributes:
        directories: those seen in the store, oldest first.
        live: names of the parts that were live at `version`, and that may repeat.
        version: of these names; -1 if nothing is known.
        nonce: of its record.
    """

    directories: dict[str, None] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    version: int = -1
    nonce: str = ""

    def remember(self, directory: str) -> None:
        """Remember a directory; beyond the bound, forget the oldest half."""
        self.directories[directory] = None
        if len(self.directories) > DIRECTORIES_KEPT:
            self.directories = dict.fromkeys(list(self.directories)[DIRECTORIES_KEPT // 2 :])
