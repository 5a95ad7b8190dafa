"""The interface of sinks, for files and for stores: steps on the driver and in tasks, and their values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ftfile.writing.messages import batch_metrics, letters_of
from ftfile.writing.options import WriteConfig, durability_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.directory import DirectoryMarker
    from ftfile.log.format.model import Author, Body
    from ftfile.log.protocol import Committed
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState, LogView
    from ftfile.writing.bad_records import BadRecords
    from ftfile.writing.messages import AssemblyResults, StagedSegment, TaskCommit, TaskIdentity
    from ftfile.writing.stage import FinalPath, Stage


_C = TypeVar("_C", bound=WriteConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan(Generic[_C]):
    """The settings of a batch, and the log at the time of planning. A pickled plan has at most 64 KiB."""

    sink: Sink[_C]
    config: _C
    view: LogView
    time_ms: int  # the driver's clock, used as the time of all tasks of the batch
    definitions: dict[str, Any]  # of the encodings of due jobs, by key
    marker: DirectoryMarker | None  # of the driver's directory; None if tasks always have the same directory
    offsets_known: bool  # offsets identify a repeated batch; else its rows must prove that it is a replay


@dataclass(frozen=True, slots=True)
class DirectoryCheck(Generic[_C]):
    """The result of checking a directory to which a batch will be committed."""

    config: _C  # the batch's settings, completed by earlier records
    head: LogState
    definitions: dict[str, Any]  # of the encodings of due jobs, by key


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput(Generic[_C]):
    """The rows of a task."""

    config: _C  # the batch's settings, completed by the first rows
    batches: Iterable[pa.RecordBatch]
    time_zone: str | None = None  # for the task's message
    definition: str | None = None  # for the task's message


class PreparedBatch(ABC, Generic[_C]):
    """The checked messages of a batch that is ready to be committed."""

    def __init__(self, config: _C, author: Author, messages: Sequence[TaskCommit], log: CommitLog) -> None:
        self.config, self.author, self.messages, self.log = config, author, messages, log
        self.committed_ms = log.clock.now_ms()
        self.letters = letters_of(messages)
        self.rewrites = list(chain.from_iterable(message.rewritten for message in messages))
        self.failed = frozenset(chain.from_iterable(message.failed for message in messages))
        self.metrics = batch_metrics(messages, durability_of(config.common.storage.durability, log.fs.capabilities))

    @abstractmethod
    def body(self, head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
        """Return the body of the record that follows this head; see `log.protocol.Prepare`."""

    @abstractmethod
    def after_commit(self, done: Committed) -> None:
        """Run the steps that follow a commit, also if the log already contained the batch."""


class TaskSteps(ABC, Generic[_C]):
    """Interface of the steps of a sink that run in tasks. Stateless."""

    __slots__ = ()
    batch_writes_do_jobs: ClassVar[bool] = False  # also without an identity for retries

    @abstractmethod
    def task_input(self, config: _C, batches: Iterable[pa.RecordBatch]) -> TaskInput[_C]:
        """Return the batches and settings of a task."""

    def final_path(self, plan: WritePlan[_C], identity: TaskIdentity) -> FinalPath | None:
        """Return the function for final paths, or None if parts are not written under their final names."""
        del plan, identity
        return None

    @abstractmethod
    def write_rows(
        self, plan: WritePlan[_C], rows: Iterable[pa.RecordBatch], stage: Stage, bad: BadRecords
    ) -> Sequence[StagedSegment]:
        """Write rows, except for bad rows, and return the segments."""

    @abstractmethod
    def run_jobs(self, plan: WritePlan[_C], stage: Stage, head: LogState) -> AssemblyResults:
        """Run this task's share of the due jobs."""


class Sink(ABC, Generic[_C]):
    """Interface of a sink: the steps of a batch that differ between files and stores. Stateless."""

    __slots__ = ()

    @abstractmethod
    def check_directory(
        self,
        config: _C,
        log: CommitLog,
        read_head: Callable[[], LogState],
        is_repetition: Callable[[LogState], bool],
    ) -> DirectoryCheck[_C]:
        """Check that the directory is of this kind, and that its next record may have these settings.

        If `is_repetition` returns True, the batch has no next record, so its settings may contradict the head: other
        programs can have changed columns, partitions or format since it was committed.
        """

    @abstractmethod
    def task_steps(self) -> TaskSteps[_C]:
        """Return the steps that run in the tasks of a batch."""

    @abstractmethod
    def prepare(self, config: _C, author: Author, messages: list[TaskCommit], log: CommitLog) -> PreparedBatch[_C]:
        """Check the messages of all tasks, and return the batch to be committed."""
