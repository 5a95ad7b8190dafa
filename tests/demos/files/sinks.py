"""The view of a stream from outside: Spark's checkpoint, and the log of its sink.

This module imports neither Spark nor ftfile: it uses only names in directories and the JSON of a record.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.demos.files.hdfs_path import HdfsPath

__all__ = (
    "NOTHING",
    "State",
    "Stream",
    "Target",
    "batches_in",
    "is_log_complete",
    "observe",
    "recorded_batches",
    "unpublished_parts",
)

NOTHING = -1
BATCH_FILE = re.compile(r"(\d+)(\.compact)?")
RECORD_FILE = re.compile(r"_\d{20}\.record")
LOG_DIRECTORIES = {"ftfile": Path("_ftfile", "log"), "spark": Path("_spark_metadata")}


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream: its sink, and the paths of its files and its checkpoint."""

    name: str
    sink: str
    output: Path | HdfsPath
    checkpoint: Path | HdfsPath

    @property
    def log(self) -> Path | HdfsPath:
        """The directory in which the sink keeps one entry for each committed batch."""
        return self.output / LOG_DIRECTORIES[self.sink]


@dataclass(frozen=True, slots=True)
class Target(Stream):
    """A stream of the demonstration, with the format of its files and the path of the rows that Spark reads back."""

    checkpoint: Path
    file_format: str
    partition_by: str
    read_back: Path


@dataclass(frozen=True, slots=True)
class State:
    """The newest batches that Spark has begun, the sink has recorded, and Spark has committed; -1 for none."""

    begun: int
    recorded: int
    committed: int

    @property
    def in_window(self) -> bool:
        """True if the sink's record of the newest batch exists and Spark's commit of it does not."""
        return self.recorded == self.begun > self.committed

    @property
    def in_flight(self) -> bool:
        """True if the newest batch has begun and the sink has not recorded it."""
        return self.begun > self.recorded

    def describe(self) -> str:
        """Return the state of the stream as a text."""
        if self.begun == NOTHING:
            return "not begun"
        if self.in_window:
            return f"record of batch {self.recorded} there, Spark's commits/{self.recorded} not"
        if self.in_flight:
            return f"batch {self.begun} being written"
        return f"after batch {self.committed}"


def observe(target: Stream) -> State:
    """Read the state of a stream.

    The three directories are read in an order in which a later stage cannot be seen without its earlier one.
    """
    committed = max(batches_in(target.checkpoint / "commits"), default=NOTHING)
    recorded = max(recorded_batches(target), default=NOTHING)
    begun = max(batches_in(target.checkpoint / "offsets"), default=NOTHING)
    return State(begun=begun, recorded=recorded, committed=committed)


def recorded_batches(target: Stream) -> list[int]:
    """Return the batch of every record that the stream has in the sink's log, in the order of the log."""
    if target.sink == "spark":
        return sorted(batches_in(target.log))
    return [batch for batch, _ in _records(target)]


def is_log_complete(target: Stream) -> bool:
    """Return True if the sink's log contains each batch that Spark has committed once, in order, and no other."""
    state = observe(target)
    if target.sink == "spark":
        return state.recorded == state.committed  # drops old entries after it has compacted them
    return recorded_batches(target) == list(range(state.committed + 1))


def unpublished_parts(target: Stream, batch: int) -> int:
    """Return the number of files of a recorded batch that are not yet published."""
    if target.sink == "spark":
        return 0  # writes its files in place, before its record
    record = next(record for recorded, record in _records(target) if recorded == batch)
    adds = json.loads(record.read_text(encoding="utf-8").splitlines()[1])["adds"]
    # segments of open files have no final path
    names = [add["finalPath"] for add in adds if add["finalPath"] is not None]
    return sum(not (target.output / name).exists() for name in names)


def batches_in(directory: Path | HdfsPath) -> set[int]:
    """Return the batch ids in the file names of a log of Spark."""
    matches = (BATCH_FILE.fullmatch(name) for name in _names_in(directory))
    return {int(match[1]) for match in matches if match}


def _records(target: Stream) -> list[tuple[int, Path | HdfsPath]]:
    """Return the batch and the file of every record of the stream in the log of ftfile, in order."""
    names = sorted(name for name in _names_in(target.log) if RECORD_FILE.fullmatch(name))
    if not names:
        return []
    query_id = _query_id(target.checkpoint)
    authors = [(_author(target.log / name), target.log / name) for name in names]
    return [(batch, record) for (author, batch), record in authors if author == query_id]


@cache
def _query_id(checkpoint: Path | HdfsPath) -> str:
    """Return the id of a checkpoint's query, which stays the same over restarts."""
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


@cache
def _author(record: Path | HdfsPath) -> tuple[str | None, int]:
    """Return the query and the batch that a log record commits; no query if a stream did not write it.

    A record is created whole and never changes, so it is read only once.
    """
    author = json.loads(record.read_text(encoding="utf-8").splitlines()[0])["author"]
    return (author["queryId"], int(author["batchId"])) if author["kind"] == "stream" else (None, NOTHING)


def _names_in(directory: Path | HdfsPath) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except FileNotFoundError:
        return []
