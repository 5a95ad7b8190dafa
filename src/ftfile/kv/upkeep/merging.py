"""The merges of one round, as work that threads or tasks do side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ftfile.attempt.pieces.workers import Work
from ftfile.attempt.stage import Stage
from ftfile.commit.format.model import AssemblyJob
from ftfile.core.retry import is_away
from ftfile.kv.task.jobs import Merger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.attempt.identity import TaskIdentity
    from ftfile.commit.rewrites import Rewrite
    from ftfile.fs.api import FileSystem
    from ftfile.kv.upkeep.maintained import HowWritten


class Done(NamedTuple):
    """A job that was tried.

    Attributes:
        rewrite: None if nothing was merged.
        errors: of runs that stay as they are.
    """

    job: AssemblyJob
    rewrite: Rewrite | None
    errors: Sequence[Exception]

    @property
    def is_store_away(self) -> bool:
        """Return True if the next job would fail, too."""
        return any(map(is_away, self.errors))


@dataclass(frozen=True, slots=True)
class Merging(Work[AssemblyJob, Done]):
    """Merges runs that are live at a version, and writes new ones as the store is written."""

    how: HowWritten
    read_version: int

    def size_of(self, piece: AssemblyJob) -> int:
        """Return the bytes of the runs that a job reads at once."""
        return min(sum(add.length for add in piece.inputs), self.how.plan.job_bytes)

    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[AssemblyJob]) -> Iterator[Done]:
        """Yield the result of each job, up to one that finds that the store is away."""
        how, stage = self.how, Stage(fs, task, self.how.storage.durability)
        merger = Merger(stage, how.definition, how.encoding, lambda: how.spool(stage), self.read_version)
        for job in pieces:
            done = Done(job, *merger.merge(job))
            yield done
            if done.is_store_away:
                return
