"""The sink's messages in the type that Spark asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.attempt.message import TaskCommit

__all__ = ("TaskCommitMessage", "unwrap")


@dataclass
class TaskCommitMessage(WriterCommitMessage):
    """One task's result on its way through Spark."""

    task: TaskCommit


def unwrap(messages: Sequence[WriterCommitMessage | None]) -> list[TaskCommit | None]:
    """Return the tasks' results; None stays None, which means that a task did not finish."""
    return [message.task if isinstance(message, TaskCommitMessage) else None for message in messages]
