"""The identity of a writer: one batch of a streaming query, or one batch-write job; and which attempt of which task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ftfile.commit.format.model import Origin


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """One micro-batch of one run of a query."""

    query_id: str
    run_id: str
    batch_id: int

    @property
    def owner(self) -> str:
        """Return the name under which files are staged."""
        return self.query_id

    @property
    def batch_number(self) -> int:
        """Return the batch id."""
        return self.batch_id

    @property
    def name_stem(self) -> str:
        """Return the middle of part names: sorts as batches do."""
        return f"{self.batch_id:010d}"


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """One batch write: a random id, made on the driver."""

    job_id: str
    batch_number: ClassVar[int] = 0  # a job has one batch

    @property
    def owner(self) -> str:
        """Return the name under which files are staged."""
        return self.job_id

    @property
    def name_stem(self) -> str:
        """Return the middle of part names."""
        return f"w{self.job_id[:12]}"


WriterIdentity = StreamIdentity | JobIdentity


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """One attempt of one task of a writer."""

    writer: WriterIdentity
    partition: int
    attempt: int

    def origin(self) -> Origin:
        """Return where the rows come from, as the log has it."""
        return Origin(self.writer.owner, self.writer.batch_number, self.writer.batch_number)
