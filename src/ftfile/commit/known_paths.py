"""What one process remembers of a directory's final paths from commit to commit."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ("DIRECTORIES_KEPT", "KnownPaths", "NamesAt")

# Directories that a process remembers, so that each is looked up once; some 100 bytes each.
DIRECTORIES_KEPT = 100_000


@dataclass(slots=True)
class NamesAt:
    """Names of the parts that were live at a version, and that may repeat; version -1 if nothing is known."""

    version: int = -1
    nonce: str = ""
    paths: set[str] = field(default_factory=set)


class KnownPaths:
    """See above.

    Attributes:
        directories: those seen in the store, oldest first.
        names: see `NamesAt`.
    """

    def __init__(self) -> None:
        self.directories: dict[str, None] = {}
        self.names = NamesAt()

    def remember(self, directory: str) -> None:
        """Remember a directory; beyond the bound, forget the oldest half."""
        self.directories[directory] = None
        if len(self.directories) > DIRECTORIES_KEPT:
            self.directories = dict.fromkeys(list(self.directories)[DIRECTORIES_KEPT // 2 :])
