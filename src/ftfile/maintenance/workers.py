"""The pieces of a maintenance operation, done side by side: by threads here, or by tasks elsewhere."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from ftfile.attempt.identity import JobIdentity, TaskIdentity
from ftfile.commit.files import delete_file, list_or_empty
from ftfile.commit.format import layout
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.core.logs import get_logger
from ftfile.core.retry import is_away

if TYPE_CHECKING:
    from typing import TypeAlias

    from ftfile.core.clock import Clock
    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem

__all__ = (
    "OnProgress",
    "Piece",
    "Progress",
    "Result",
    "Threads",
    "Tracker",
    "Work",
    "Workers",
    "removing_unrecorded",
    "rounds_of",
)

# Between two log lines of an operation that goes on.
LOG_EVERY_S = 10.0

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an operation is."""

    operation: str  # `compact`, `flush` or `verify`
    done: int  # files, or pieces of open ones, that were read
    total: int
    done_bytes: int  # of these, on storage
    total_bytes: int
    elapsed_s: float

    @property
    def left_s(self) -> float | None:
        """Return the seconds that the rest takes at the speed so far; None before anything is done."""
        return self.elapsed_s * (self.total_bytes / self.done_bytes - 1) if self.done_bytes else None


OnProgress: TypeAlias = Callable[[Progress], object]


class Work(ABC, Generic[Piece, Result]):
    """The work on the pieces of an operation. Picklable; it may be done twice, or elsewhere."""

    @abstractmethod
    def size_of(self, piece: Piece) -> int:
        """Return the bytes that a piece reads, on storage."""

    @abstractmethod
    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[Piece]) -> Iterator[Result]:
        """Yield the result of each piece, in order; from where it ends early, the others are not done."""


class Workers(ABC):
    """Those who do the pieces of one operation."""

    @abstractmethod
    def do(
        self, work: Work[Piece, Result], pieces: Sequence[Piece], fs: FileSystem, written: Mapping[str, str]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results as they come, each with the number of its piece.

        Args:
            work: that is done.
            pieces: of it.
            fs: the directory's file system here.
            written: settings of the file system by which the directory's writers write, such as permissions.
        """


@dataclass(frozen=True, slots=True)
class Threads(Workers):
    """The threads of this process: one for each core, or as many as are asked for."""

    job_id: str
    threads: int

    @classmethod
    def of(cls, job_id: str, threads: int | None, context: Context) -> Threads:
        """Return the threads for an operation; raise a ConfigError for fewer than one."""
        if threads is not None and threads < 1:
            raise ConfigError(f"threads={threads}: there must be at least one")
        return cls(job_id, threads or context.threads or _cores())

    def do(
        self, work: Work[Piece, Result], pieces: Sequence[Piece], fs: FileSystem, written: Mapping[str, str]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results as they come; when the first error is raised, what has begun has ended."""
        del written  # the file system has them
        task = TaskIdentity(JobIdentity(self.job_id), 0, 0)
        threads = min(self.threads, len(pieces))
        if threads <= 1:
            for number, piece in enumerate(pieces):
                for result in work.do(fs, task, [piece]):
                    yield number, result
            return

        def call(piece: Piece) -> list[Result]:
            return [*work.do(fs, task, [piece])]

        with ThreadPoolExecutor(threads) as pool:
            try:
                begun = {pool.submit(copy_context().run, call, piece): number for number, piece in enumerate(pieces)}
                for future in as_completed(begun):
                    for result in future.result():
                        yield begun[future], result
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


class Tracker:
    """Tells how far an operation is: calls `on_progress` after each piece, and logs a line from time to time.

    `total` and `total_bytes` are those of all files that it reads.
    """

    def __init__(
        self, operation: str, clock: Clock, on_progress: OnProgress | None, total: int, total_bytes: int
    ) -> None:
        self._clock = clock
        self._on_progress = on_progress
        self._began_s = self._logged_s = clock.monotonic_s()
        self._now = Progress(operation, 0, total, 0, total_bytes, 0.0)

    def add(self, files: int, size_bytes: int) -> None:
        """Count files that were read."""
        now_s, before = self._clock.monotonic_s(), self._now
        # Of an open piece, a part may be read again.
        done = min(before.done + files, before.total)
        done_bytes = min(before.done_bytes + size_bytes, before.total_bytes)
        self._now = now = replace(before, done=done, done_bytes=done_bytes, elapsed_s=now_s - self._began_s)
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            left = "" if now.left_s is None else f", about {now.left_s:.0f} s left"
            read = f"{now.done_bytes / 1e6:.0f} of {now.total_bytes / 1e6:.0f} MB"
            _log.info("%s: read %d of %d files, %s%s", now.operation, now.done, now.total, read, left)
        if self._on_progress is not None:
            self._on_progress(now)


def rounds_of(pieces: Sequence[Piece], commit_every: int | None) -> Iterator[Sequence[Piece]]:
    """Yield the pieces for each record; all at once for None.

    Raises:
        ConfigError: `commit_every` is below 1.
    """
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
    except BaseException as error:
        if not (isinstance(error, Exception) and is_away(error)):
            with contextlib.suppress(FtfileError):
                for info in list_or_empty(fs, layout.staged_directory(job_id, JobIdentity.batch_number)):
                    if info.path not in named:
                        delete_file(fs, info.path)
        raise


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
