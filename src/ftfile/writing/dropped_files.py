"""Deletion of the files of an attempt or an operation that no record will name."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import StorageError
from ftfile.core.logs import get_logger
from ftfile.core.retries import is_away
from ftfile.log.format import layout
from ftfile.log.places import delete_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ftfile.storage.api import FileSystem
    from ftfile.writing.messages import TaskCommit

_log = get_logger(__name__)


class DroppedFile(NamedTuple):
    """A file that may be deleted if its name contains the identity of the attempt."""

    id: str  # of the file, which is part of a final name; a staged name contains the identity of the attempt instead
    path: str


def is_own(stem: str, file: DroppedFile) -> bool:
    """Return True if an attempt, or an operation, has created a file; `stem` is the beginning of its staged paths.

    A message also names files of earlier batches: the rest of an open file stays in the spool of the batch that wrote
    it. Such a file contains committed rows.
    """
    if layout.is_staged(file.path):
        return file.path.startswith(stem)
    return bool(file.id) and layout.is_unique_name(file.id, layout.name_of(file.path))


def delete_dropped(fs: FileSystem, stem: str, files: Iterable[DroppedFile]) -> None:
    """Delete the files that `is_own` allows, and keep all others. Idempotent.

    Every discard, abort and cleanup of staged files calls this function. The caller ensures that no record names a
    file of the attempt. Vacuum deletes the files that cannot be deleted here.
    """
    for path in dict.fromkeys(file.path for file in files if is_own(stem, file)):
        try:
            delete_file(fs, path)
        except StorageError as error:
            _log.info("could not delete %s: %s", path, error)
            if is_away(error):
                return


def files_of(message: TaskCommit) -> Iterator[DroppedFile]:
    """Yield the files that the message of an attempt names, also files of earlier batches."""
    for staged in (*message.parts, *message.segments, *message.dead_letters):
        yield DroppedFile(staged.id, staged.path)
    for rewrite in message.rewritten:
        for add in rewrite.adds:
            yield DroppedFile("", add.path)  # is staged
