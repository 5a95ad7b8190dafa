"""`successFile`: a marker in each directory of a stream that is done, and in the root after a batch write.

A directory is done when `successDelay` has passed since the last commit that wrote into it and, with `bucketPattern`,
since the end of the time that it stands for, and all of its parts are published. The first commit after that writes the
marker, and says so in its record. Rows that come later leave the marker there; it is written again when the directory
is done again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.commit.format import layout
from ftfile.core.errors import ConfigError, NotFound, StorageError
from ftfile.core.logs import get_logger
from ftfile.fs.paths import join
from ftfile.sink.naming.path_rules import name_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ftfile.commit.format.model import Add
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileSystem

# A table of the log: the directories that were written to and have not been marked since.
UNDONE = "unmarkedDirectories"

_HIDING = "_."
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SuccessFile:
    """The options, checked."""

    name: str
    delay_ms: int

    @classmethod
    def checked(cls, name: str, delay_s: float, extension: str) -> SuccessFile:
        """Return the checked options; a ConfigError where readers would take the marker for data."""
        hidden = name[:1] in _HIDING and name != layout.META and "/" not in name and not name.endswith(extension)
        if not name or not hidden or name_fault(name[1:]) is not None:
            raise ConfigError(
                f"successFile={name!r}: give a name that readers overlook, beginning with `_` or `.`, such as _SUCCESS"
            )
        return cls(name, int(delay_s * 1000))

    def mark(
        self, log: CommitLog, head: LogState, adds: Iterable[Add], end_ms: Callable[[str], int | None]
    ) -> dict[str, Any]:
        """Mark the directories that are done before a record with these adds; return its changes of the log's tables.

        `end_ms` returns the end of the time that a directory stands for, if it stands for any.
        """
        now_ms = log.clock.now_ms()
        busy = {layout.bucket_directory(add.bucket) for add in adds}
        open_directories = {layout.bucket_directory(segment.bucket) for segment in head.segments.values()}
        waiting = {layout.bucket_directory(add.bucket) for entry in head.unpublished.values() for add in entry.adds}
        marked = []
        for directory, (written_ms, _) in head.tables.get(UNDONE, {}).items():
            if written_ms + self.delay_ms > now_ms:
                break  # so were all that follow
            end = end_ms(directory)
            is_over = end is None or end + self.delay_ms <= now_ms
            if is_over and directory not in busy | open_directories | waiting and self._mark(log.fs, directory, head):
                marked.append(directory)
        return {UNDONE: {"set": dict.fromkeys(sorted(busy)), "drop": marked}} if busy or marked else {}

    def _mark(self, fs: FileSystem, directory: str, head: LogState) -> bool:
        try:
            self.put(fs, directory, head.version)
        except NotFound:
            _log.info("%r is gone: it gets no %s", directory, self.name)
        except StorageError as error:
            _log.warning("the next commit tries again to write %s into %r: %s", self.name, directory, error)
            return False
        return True

    def put(self, fs: FileSystem, directory: str, version: int) -> None:
        """Write the marker into a directory, as of a version."""
        fs.put(join(directory, self.name), json.dumps({"version": version}).encode() + b"\n")
