"""Executors for the pieces of an operation, which run in parallel in threads of this process or in Spark tasks."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from ftfile.core.answers import wait_for
from ftfile.core.context import cores
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.core.remedies import Advice, Argument
from ftfile.core.retries import is_away
from ftfile.log.format import layout
from ftfile.log.places import list_or_empty
from ftfile.storage.calls import Pool
from ftfile.writing.dropped_files import DroppedFile, delete_dropped
from ftfile.writing.messages import OperationIdentity, TaskIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ftfile.core.context import Context
    from ftfile.storage.api import FileSystem


Piece = TypeVar("Piece")
Result = TypeVar("Result")


class Work(ABC, Generic[Piece, Result]):
    """The function to apply to the pieces of an operation. It is picklable, and can run twice or in another process."""

    @abstractmethod
    def size_of(self, piece: Piece) -> int:
        """Return the number of bytes on storage that a piece reads."""

    @abstractmethod
    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[Piece]) -> Iterator[Result]:
        """Yield the result of each piece, in order.

        If the iterator ends early, the remaining pieces were not processed.
        """


@dataclass(frozen=True, slots=True)
class Workers(ABC):
    """The threads or tasks that process the pieces of one operation."""

    operation_id: str
    at_once: int  # number of pieces that run in parallel

    @abstractmethod
    def do(
        self, work: Work[Piece, Result], pieces: Sequence[Piece], fs: FileSystem, written: Mapping[str, str]
    ) -> Iterator[tuple[int, Result]]:
        """Yield each result when it is complete, with the index of its piece.

        `written` contains the settings with which writers of the directory create files, such as permissions.
        """


@dataclass(frozen=True, slots=True)
class Threads(Workers):
    """The threads of this process: by default one for each core."""

    @classmethod
    def of(cls, operation_id: str, threads: int | None, context: Context) -> Threads:
        """Return the threads for an operation. A number below 1 raises a ConfigError."""
        if threads is not None and threads < 1:
            raise ConfigError(Advice(Argument("threads", threads), ": at least one thread is needed"))
        return cls(operation_id, threads or context.threads or cores())

    def do(
        self, work: Work[Piece, Result], pieces: Sequence[Piece], fs: FileSystem, written: Mapping[str, str]
    ) -> Iterator[tuple[int, Result]]:
        """Yield each result when it is complete. An error is raised after all running pieces have ended."""
        del written  # the file system already has these settings
        task = TaskIdentity(OperationIdentity(self.operation_id), 0, 0)
        threads = min(self.at_once, len(pieces))
        if threads <= 1:
            for number, piece in enumerate(pieces):
                for result in work.do(fs, task, [piece]):
                    yield number, result
            return

        def call(piece: Piece) -> list[Result]:
            return [*work.do(fs, task, [piece])]

        with Pool(threads) as pool:
            begun = {}
            for number, piece in enumerate(pieces):
                begun[number] = pool.submit(partial(copy_context().run, call, piece))
            while begun:
                wait_for(begun.values(), first=True)
                for number in [number for number, answer in begun.items() if answer.is_set()]:
                    for result in begun.pop(number).result():
                        yield number, result


def _one_file(_piece: object) -> int:
    return 1


def rounds_of(
    pieces: Sequence[Piece], commit_every: int | None, files_of: Callable[[Piece], int] = _one_file
) -> Iterator[Sequence[Piece]]:
    """Yield the pieces for each record, which create about `commit_every` new files; None means one record for all.

    `files_of` returns the expected number of new files of a piece. If a piece creates more files, its record contains
    only this piece.

    Raises:
        ConfigError: `commit_every` is below 1.
    """
    if commit_every is not None and commit_every < 1:
        raise ConfigError(
            Advice(Argument("commit_every", commit_every), ": it must be a number of new files, 1 or more")
        )
    start = files = 0
    for number, piece in enumerate(pieces):
        more = files_of(piece)
        if commit_every is not None and number > start and files + more > commit_every:
            yield pieces[start:number]
            start, files = number, 0
        files += more
    if pieces:
        yield pieces[start:]


@contextlib.contextmanager
def removing_unrecorded(fs: FileSystem, operation_id: str) -> Iterator[set[str]]:
    """Provide a set for the paths that a record may name. If the block fails, delete the job's other staged files.

    Vacuum deletes the files that cannot be deleted here, and files that a task in another process writes later.
    """
    named: set[str] = set()
    try:
        yield named
    except BaseException as error:  # including KeyboardInterrupt; raised again below
        if not (isinstance(error, Exception) and is_away(error)):
            directory = layout.staged_directory(operation_id)
            with contextlib.suppress(FtfileError):
                unnamed = [info.path for info in list_or_empty(fs, directory) if info.path not in named]
                delete_dropped(fs, f"{directory}/", [DroppedFile("", path) for path in unnamed])
        raise
