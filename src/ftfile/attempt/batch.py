"""The messages of all tasks of a batch: checked, and as a record has them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ftfile.attempt.fingerprint import FingerprintAccumulator
from ftfile.attempt.identity import StreamIdentity
from ftfile.attempt.message import add_of, segment_of
from ftfile.attempt.spark_checkpoint import read_offsets
from ftfile.commit.format.layout import dead_letter_path
from ftfile.commit.format.model import Fingerprint, JobAuthor, StreamAuthor
from ftfile.commit.log.log import in_seconds
from ftfile.commit.replay import find_record
from ftfile.core.errors import FtfileError, InvalidMessages
from ftfile.core.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.attempt.identity import WriterIdentity
    from ftfile.attempt.message import StagedPart, StagedSegment, TaskCommit
    from ftfile.commit.format.model import Add, Author, Record, Transaction
    from ftfile.commit.log.log import CommitLog
    from ftfile.core.context import Context


def check_messages(messages: Sequence[TaskCommit | None], batch_id: int | None) -> list[TaskCommit]:
    """Return the messages of a whole batch, by partition.

    Raises:
        InvalidMessages: a message is missing, foreign, doubled, or of another version of ftfile.
    """
    whole = [message for message in messages if message is not None]
    if not whole or len(whole) != len(messages):
        raise InvalidMessages(
            f"{len(messages) - len(whole)} of {len(messages)} tasks sent no message: nothing is committed. "
            "trigger(continuous=...) does this with every Python sink and would lose all rows: use a micro-batch "
            "trigger"
        )
    writer = whole[0].identity.writer
    for message in whole:
        if message.identity.writer != writer:
            raise InvalidMessages(f"messages of {writer} and of {message.identity.writer} in one batch")
        if message.writer_version != __version__:
            raise InvalidMessages(
                f"an executor runs ftfile {message.writer_version} and the driver {__version__}: "
                "install one version everywhere"
            )
    if isinstance(writer, StreamIdentity) and writer.batch_id != batch_id:
        raise InvalidMessages(f"batch {batch_id} is to be committed with the messages of batch {writer.batch_id}")
    partitions = [message.identity.partition for message in whole]
    if len(set(partitions)) != len(partitions):
        raise InvalidMessages(f"two messages of one partition: {sorted(partitions)}")
    return sorted(whole, key=lambda message: message.identity.partition)


def author_of(
    writer: WriterIdentity, checkpoint: str | None, transaction: Transaction | None, context: Context
) -> Author:
    """Return the author of a record, with the offsets of its batch where the checkpoint can be read."""
    if not isinstance(writer, StreamIdentity):
        return JobAuthor(writer.job_id, transaction)
    found = read_offsets(checkpoint, writer.batch_id, context)
    hash_and_offsets = (found.hash, found.offsets) if found else (None, None)
    return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id, *hash_and_offsets)


def segments_of(messages: Sequence[TaskCommit], encoding: str, now_ms: int) -> list[Add]:
    """Return the segments of all tasks as the log has them, by partition."""
    return [
        segment_of(segment, encoding, message.identity.origin(), {"committedMs": now_ms})
        for message in messages
        for segment in message.segments
    ]


def letters_of(messages: Sequence[TaskCommit]) -> tuple[Add, ...]:
    """Return the files of dead letters; their paths have all that readers need."""
    letters = []
    for message in messages:
        writer, partition = message.identity.writer, message.identity.partition
        for letter in message.dead_letters:
            path = dead_letter_path(writer.owner, writer.batch_number, partition, letter.id, letter.filters)
            letters.append(replace(add_of(letter, "", message.identity.origin()), final_path=path))
    return tuple(letters)


def fingerprint_of(messages: Sequence[TaskCommit]) -> Fingerprint:
    """Return the fingerprint of the rows of all tasks."""
    first, *others = (FingerprintAccumulator.from_json(message.fingerprint) for message in messages)
    for other in others:
        first.merge(other)
    return Fingerprint(first.kind, first.digest(), covers_content=first.kind == "strong")


def batch_metrics(messages: Sequence[TaskCommit], durability: str) -> dict[str, Any]:
    """Return the metrics of a record: of rows, bytes, bad records, and of the slowest task."""
    written: list[StagedPart | StagedSegment] = []
    for message in messages:
        written += (*message.parts, *message.segments)
    bad = int(sum(message.metrics.get("badRecords", 0) for message in messages))
    retries = sum(message.identity.attempt for message in messages)
    slowest = {
        name: in_seconds(max(message.metrics.get(name, 0.0) for message in messages))
        for name in ("writeSeconds", "assemblySeconds", "syncSeconds")
    }
    return {
        "rows": sum(each.rows for each in written),
        "bytes": sum(each.length for each in written),
        **({"badRecords": bad} if bad else {}),
        "durability": durability,
        "writeSecondsMax": slowest["writeSeconds"],
        **({"taskRetries": retries} if retries else {}),
        **{f"{name}Max": slowest[name] for name in ("assemblySeconds", "syncSeconds") if slowest[name]},
    }


def orphans_of(messages: Sequence[TaskCommit], log: CommitLog, author: Author, record: Record | None) -> int:
    """Return the number of files that tasks staged and no record names; raises nothing of the log's.

    Without a `record` created this moment, that of the batch is looked up; if it is not kept, none are counted.
    """
    staged: set[str] = set()
    for message in messages:
        staged.update(add.path for rewrite in message.rewritten for add in rewrite.adds)
        if record is None:  # else all of them are in it
            staged.update(each.path for each in (*message.parts, *message.segments, *message.dead_letters))
    if staged and record is None:
        try:
            record = find_record(log, log.read_on(), author)
        except FtfileError:
            record = None
    if record is None:
        return 0
    return len(staged.difference(add.path for add in (*record.adds, *record.dead_letters)))
