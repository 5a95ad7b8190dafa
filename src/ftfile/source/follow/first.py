"""The rows that were there when a query began: a snapshot, read in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.commit.read.snapshot import last_restore, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.log import CommitLog


class FirstSnapshot:
    """The adds of one version, kept while they are read slice by slice."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._version: int | None = None
        self._restored = -1
        self._adds: tuple[Add, ...] = ()
        self.definitions: dict[str, Any] = {}

    def adds(self, version: int) -> Sequence[Add]:
        """Return the live adds of a version in the order of their first batches and ids, the same at every call."""
        # A restore moves files.
        restored = last_restore(self._log.read_on())
        if (self._version, self._restored) != (version, restored):
            self._restored = restored
            snapshot = take_snapshot(self._log, version)
            ordered = sorted(snapshot.adds.values(), key=lambda add: (add.origin.first_batch, add.id))
            self._version, self._adds, self.definitions = version, tuple(ordered), snapshot.definitions
        return self._adds

    def forget(self) -> None:
        """Let go of the adds."""
        self._version, self._adds, self.definitions = None, (), {}
