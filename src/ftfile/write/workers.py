"""Those who do the pieces of an operation side by side: threads here, or tasks elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ftfile.core.context import cores
from ftfile.core.errors import ConfigError
from ftfile.write.messages import JobIdentity, TaskIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.core.context import Context
    from ftfile.storage.api import FileSystem


Piece = TypeVar("Piece")
Result = TypeVar("Result")


class Work(ABC, Generic[Piece, Result]):
    """The work on the pieces of an operation. Picklable; it may be done twice, or elsewhere."""

    @abstractmethod
    def size_of(self, piece: Piece) -> int:
        """Return the bytes that a piece reads, on storage."""

    @abstractmethod
    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[Piece]) -> Iterator[Result]:
        """Yield the result of each piece, in order; from where it ends early, the others are not done."""


@dataclass(frozen=True, slots=True)
class Workers(ABC):
    """Those who do the pieces of one operation."""

    job_id: str
    at_once: int  # pieces that are done side by side

    @abstractmethod
    def do(
        self, work: Work[Piece, Result], pieces: Sequence[Piece], fs: FileSystem, written: Mapping[str, str]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results as they come, each with the number of its piece.

        The settings `written` are those by which the directory's writers write, such as permissions.
        """


@dataclass(frozen=True, slots=True)
class Threads(Workers):
    """The threads of this process: one for each core, or as many as are asked for."""

    @classmethod
    def of(cls, job_id: str, threads: int | None, context: Context) -> Threads:
        """Return the threads for an operation; raise a ConfigError for fewer than one."""
        if threads is not None and threads < 1:
            raise ConfigError(f"threads={threads}: there must be at least one")
        return cls(job_id, threads or context.threads or cores())

    def do(
        self, work: Work[Piece, Result], pieces: Sequence[Piece], fs: FileSystem, written: Mapping[str, str]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results as they come; when the first error is raised, what has begun has ended."""
        del written  # the file system has them
        task = TaskIdentity(JobIdentity(self.job_id), 0, 0)
        threads = min(self.at_once, len(pieces))
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
