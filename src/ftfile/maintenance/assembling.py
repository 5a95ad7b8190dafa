"""Files made of open segments, for a flush."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from operator import gt
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.attempt.pieces.workers import Work
from ftfile.attempt.stage import Stage
from ftfile.commit.format.model import AssemblyJob
from ftfile.core.errors import FtfileError
from ftfile.core.retry import is_away
from ftfile.sink.assembly.assembler import Assembler
from ftfile.sink.rolling.groups import live_bytes
from ftfile.sink.rolling.jobs import limits_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.attempt.identity import TaskIdentity
    from ftfile.commit.rewrites import Rewrite
    from ftfile.fs.api import Durability, FileSystem


class Assembled(NamedTuple):
    """The result of a job."""

    rewrite: Rewrite | None  # None if nothing could be made files
    errors: dict[str, Exception]  # by id, of segments that stay open


@dataclass(frozen=True, slots=True)
class Assembling(Work[AssemblyJob, Assembled]):
    """Makes files of segments that were live at a version; a job that would make more than `files_max` ends there."""

    definitions: Mapping[str, Any]  # of the encodings of the segments, by key
    read_version: int
    durability: Durability
    files_max: int

    def size_of(self, piece: AssemblyJob) -> int:
        """Return the bytes of the segments."""
        return sum(segment.length for segment in piece.inputs)

    def do(self, fs: FileSystem, task: TaskIdentity, pieces: Sequence[AssemblyJob]) -> Iterator[Assembled]:
        """Yield the result of each job; StorageError if the store is away."""
        assembler = Assembler(fs, Stage(fs, task, self.durability), self.definitions, self.read_version)
        for job in pieces:
            try:
                done, damaged = assembler.assemble_readable(job, partial(gt, self.files_max))
            except FtfileError as error:
                if is_away(error):
                    raise
                yield Assembled(None, {segment.id: error for segment in job.inputs})
            else:
                yield Assembled(None if done is None else done.rewrite, damaged)


def job_rounds(jobs: Sequence[AssemblyJob], files_max: int) -> Iterator[Sequence[AssemblyJob]]:
    """Yield the jobs for each record, which has about `files_max` new files, or those of one job."""
    start = files = 0
    for number, job in enumerate(jobs):
        expected = min(files_of(job), files_max)
        if number > start and files + expected > files_max:
            yield jobs[start:number]
            start, files = number, 0
        files += expected
    if jobs:
        yield jobs[start:]


def files_of(job: AssemblyJob) -> int:
    """Return the number of files that a job makes, as far as it is known before."""
    limits = limits_of(job)
    of_bytes = math.ceil(sum(map(live_bytes, job.inputs)) / limits.max_bytes) if limits.max_bytes else 1
    of_rows = math.ceil(sum(each.rows for each in job.inputs) / limits.max_rows) if limits.max_rows else 1
    return max(of_bytes, of_rows, 1)
