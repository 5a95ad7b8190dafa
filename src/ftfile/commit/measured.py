"""The measures of a commit, for the metrics of its record; those known only later, for the next record of the process.

Fields that are 0 are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.commit.log.log import CommitNotes

if TYPE_CHECKING:
    from ftfile.commit.log.log import CommitLog


class Measured:
    """Times of one commit, and the notes of earlier ones that its record takes along."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._began_s = self._now_s()
        self._reads = log.reads
        self._creating_s = self._create_s = 0.0

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of a record that is created now."""
        notes = self._log.notes
        found = {
            "prepareSeconds": in_seconds(self._now_s() - self._began_s),
            "logReads": self._log.reads - self._reads,
            "recoveries": notes.recoveries,
            "replays": notes.replays,
            "orphans": notes.orphans,
            "lastCommit": notes.last_commit,
        }
        self._creating_s = self._now_s()
        return {name: value for name, value in found.items() if value}

    def created(self) -> None:
        """Forget the notes, which the record has: it was created this moment."""
        self._log.notes = CommitNotes()
        self._began_s = self._now_s()
        self._create_s = self._began_s - self._creating_s

    def published(self, version: int) -> None:
        """Note how long it took to create and publish the record of a version, for the next record."""
        seconds = {
            "createSeconds": in_seconds(self._create_s),
            "publishSeconds": in_seconds(self._now_s() - self._began_s),
        }
        if any(seconds.values()):
            self._log.notes.last_commit = {"version": version, **seconds}

    def _now_s(self) -> float:
        return self._log.clock.monotonic_s()


def in_seconds(seconds: float) -> float:
    """Return a time as records have it, to the microsecond."""
    return round(seconds, 6)
