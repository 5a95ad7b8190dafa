"""The records of a long operation: its pieces in rounds, and files that no record will name."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ftfile.attempt.identity import JobIdentity
from ftfile.commit.files import delete_file, list_or_empty
from ftfile.commit.format import layout
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.core.retry import is_away

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.attempt.pieces.workers import Piece
    from ftfile.fs.api import FileSystem


def rounds_of(pieces: Sequence[Piece], commit_every: int | None) -> Iterator[Sequence[Piece]]:
    """Yield the pieces for each record, all at once for None; ConfigError if `commit_every` is below 1."""
    if commit_every is not None and commit_every < 1:
        raise ConfigError(f"commit_every={commit_every}: it takes a number of new files of 1 or more")
    each = commit_every or max(len(pieces), 1)
    return (pieces[start : start + each] for start in range(0, len(pieces), each))


@contextlib.contextmanager
def removing_unrecorded(fs: FileSystem, job_id: str) -> Iterator[set[str]]:
    """Give a set for paths of files that a record may name; if the block fails, delete the others that the job staged.

    What cannot be deleted, or is written later by a task that goes on elsewhere, is left to vacuum.
    """
    named: set[str] = set()
    try:
        yield named
    except BaseException as error:  # also when the user interrupts it; it is raised again
        if not (isinstance(error, Exception) and is_away(error)):
            with contextlib.suppress(FtfileError):
                for info in list_or_empty(fs, layout.staged_directory(job_id, JobIdentity.batch_number)):
                    if info.path not in named:
                        delete_file(fs, info.path)
        raise
