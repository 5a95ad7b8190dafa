"""The identity of writers and tasks, and the messages that tasks send to the driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import structs

from ftfile.core import __version__
from ftfile.core.errors import FtfileError, InvalidMessages
from ftfile.core.logs import log_context
from ftfile.log.commit_log import in_seconds
from ftfile.log.format import layout
from ftfile.log.format.layout import dead_letter_path
from ftfile.log.format.model import Add, BatchWriteAuthor, Fingerprint, Origin, StreamAuthor
from ftfile.log.policy import find_record
from ftfile.writing.spark_checkpoint import read_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.core.context import Context
    from ftfile.log.checks import Rewrite
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Author, Record, SourceRange, Transaction
    from ftfile.writing.fingerprint import FingerprintAccumulator
    from ftfile.writing.options import CommonSettings


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
        """Return the middle of part names; names sort in the order of batches."""
        return f"{self.batch_id:010d}"


@dataclass(frozen=True, slots=True)
class OperationIdentity:
    """One batch write, with a random id that the driver generates."""

    operation_id: str
    batch_number: ClassVar[int] = 0  # an operation has one batch

    @property
    def owner(self) -> str:
        """Return the name under which files are staged."""
        return self.operation_id

    @property
    def name_stem(self) -> str:
        """Return the middle of part names."""
        return f"w{self.operation_id[:12]}"


WriterIdentity = StreamIdentity | OperationIdentity


def log_context_of(writer: WriterIdentity) -> log_context:
    """Return a context that adds the writer's batch or operation to log lines."""
    if isinstance(writer, StreamIdentity):
        return log_context(query=writer.query_id, batch=writer.batch_id)
    return log_context(operation=writer.operation_id)


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """One attempt of one task of a writer."""

    writer: WriterIdentity
    partition: int
    attempt: int

    @property
    def stem(self) -> str:
        """Return the beginning of the paths of all files that the attempt stages."""
        return layout.attempt_stem(self.writer.owner, self.writer.batch_number, self.partition, self.attempt)

    def origin(self) -> Origin:
        """Return the origin of the rows for the log."""
        return Origin(self.writer.owner, self.writer.batch_number, self.writer.batch_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A complete, durable file that is not committed yet."""

    id: str  # never used again
    path: str  # relative to the directory
    length: int  # on storage, counted by the writer
    logical_length: int  # bytes before the filters
    checksum: str
    rows: int
    directory_key: str
    filters: tuple[str, ...] = ()  # names, in the order in which they were applied
    statistics: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # see `rows.statistics`


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSegment(StagedPart):
    """The rows of one directory in a complete, durable spool, described like a separate file."""

    offset: int = 0  # first byte in the spool
    rolling_stats: dict[str, Any] = field(default_factory=dict)  # see `writing.files.rolling_groups`


class AssemblyResults(NamedTuple):
    """The results of the due jobs that a task ran in addition to writing its rows."""

    rewrites: tuple[Rewrite, ...] = ()
    failed: tuple[str, ...] = ()  # ids of failed jobs, and of inputs that were left out of the new files


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCommit:
    """The result of one attempt."""

    identity: TaskIdentity
    parts: tuple[StagedPart, ...]
    fingerprint: dict[str, Any] | None  # of the rows of this task; None if no commit compares them
    segments: tuple[StagedSegment, ...] = ()  # rows of open files
    rewritten: tuple[Rewrite, ...] = ()  # due jobs that the task ran in addition to writing its rows
    failed: tuple[str, ...] = ()  # ids of failed jobs, and of segments left out of parts
    dead_letters: tuple[StagedPart, ...] = ()  # records that could not be written
    found_committed: bool = False  # the log already contains the batch, so nothing was written
    planned_ms: int = 0  # time of the driver's clock when the batch was planned
    metrics: dict[str, float] = field(default_factory=dict)
    definition: str | None = None  # key of the definition of the store for which the task wrote rows
    time_zone: str | None = None  # of instants in directory names; None if the task received no rows
    stored_ms: dict[str, int] = field(default_factory=dict)  # see `Stage.stored_ms`
    writer_version: str = __version__  # version of ftfile in the executor


def add_of(part: StagedPart, encoding: str, origin: Origin, ranges: tuple[SourceRange, ...] = ()) -> Add:
    """Return the log entry of a part. It has a final path only if the part was never staged."""
    return Add(
        id=part.id,
        kind="part",
        path=part.path,
        final_path=None if layout.is_staged(part.path) else part.path,
        length=part.length,
        logical_length=part.logical_length,
        checksum=part.checksum,
        rows=part.rows,
        directory_key=part.directory_key,
        encoding=encoding,
        origin=origin,
        filters=part.filters,
        ranges=ranges,
        statistics=part.statistics,
    )


def segment_of(segment: StagedSegment, encoding: str, origin: Origin, stats: dict[str, Any]) -> Add:
    """Return the log entry of a segment, with additional stats."""
    add = add_of(segment, encoding, origin)
    stats = segment.rolling_stats | stats
    return structs.replace(add, kind="segment", final_path=None, offset=segment.offset, rolling_stats=stats)


def check_messages(messages: Sequence[TaskCommit | None], batch_id: int | None) -> list[TaskCommit]:
    """Return the messages of a complete batch, sorted by partition.

    Raises:
        InvalidMessages: a message is missing, duplicated, or of another writer, batch or version of ftfile.
    """
    whole = [message for message in messages if message is not None]
    if not whole or len(whole) != len(messages):
        raise InvalidMessages(
            f"{len(messages) - len(whole)} of {len(messages)} tasks sent no message: nothing is committed. With "
            "trigger(continuous=...), no Python sink receives messages, and all rows would be lost: use a micro-batch "
            "trigger"
        )
    writer = whole[0].identity.writer
    for message in whole:
        if message.identity.writer != writer:
            raise InvalidMessages(f"one batch has messages of {writer} and of {message.identity.writer}")
        if message.writer_version != __version__:
            raise InvalidMessages(
                f"an executor runs ftfile {message.writer_version} and the driver {__version__}: "
                "install one version everywhere"
            )
    if isinstance(writer, StreamIdentity) and writer.batch_id != batch_id:
        raise InvalidMessages(f"batch {batch_id} cannot be committed with the messages of batch {writer.batch_id}")
    partitions = [message.identity.partition for message in whole]
    if len(set(partitions)) != len(partitions):
        raise InvalidMessages(f"one batch has two messages of one partition: {sorted(partitions)}")
    return sorted(whole, key=attrgetter("identity.partition"))


def author_of(
    writer: WriterIdentity, checkpoint: str | None, transaction: Transaction | None, context: Context
) -> Author:
    """Return the author of a record, with the offsets of its batch if the checkpoint can be read."""
    if not isinstance(writer, StreamIdentity):
        return BatchWriteAuthor(writer.operation_id, transaction)
    offsets = read_offsets(checkpoint, writer.batch_id, context)
    hash_and_offsets = (offsets.hash, offsets.offsets) if offsets else (None, None)
    return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id, *hash_and_offsets)


def segments_of(messages: Sequence[TaskCommit], encoding: str, stats: dict[str, Any]) -> list[Add]:
    """Return the log entries of the segments of all tasks, by partition, with the stats of their commit."""
    segments: list[Add] = []
    for message in messages:
        origin = message.identity.origin()
        for segment in message.segments:
            segments.append(segment_of(segment, encoding, origin, stats))
    return segments


def stored_ms_of(messages: Sequence[TaskCommit]) -> dict[str, int]:
    """Return the modification times of all files of a batch that the storage has confirmed, by path."""
    times: dict[str, int] = {}
    for message in messages:
        times |= message.stored_ms
    return times


def letters_of(messages: Sequence[TaskCommit]) -> tuple[Add, ...]:
    """Return the log entries of the files of dead letters. Their paths contain everything that readers need."""
    letters = []
    for message in messages:
        writer, partition = message.identity.writer, message.identity.partition
        for letter in message.dead_letters:
            path = dead_letter_path(
                writer.owner, writer.batch_number, partition=partition, letter_id=letter.id, filters=letter.filters
            )
            letters.append(structs.replace(add_of(letter, "", message.identity.origin()), final_path=path))
    return tuple(letters)


def fingerprint_for(
    writer: WriterIdentity, common: CommonSettings, *, offsets_known: bool
) -> FingerprintAccumulator | None:
    """Return an empty fingerprint for the rows of a task; None if no commit compares the rows.

    It is of the kind `strong` if only the rows can prove that a batch is a replay.
    """
    if isinstance(writer, StreamIdentity):
        needs_proof, is_compared = not offsets_known, not common.is_application
    else:
        needs_proof = is_compared = common.transaction is not None
    if not is_compared:
        return None
    from ftfile.writing.fingerprint import FingerprintAccumulator  # noqa: PLC0415 - only tasks need it

    if needs_proof:
        return FingerprintAccumulator("strong")
    return FingerprintAccumulator("content")


def fingerprint_json(fingerprint: FingerprintAccumulator | None) -> dict[str, Any] | None:
    """Return a fingerprint as in the message of a task."""
    if fingerprint is None:
        return None
    return fingerprint.to_json()


def fingerprint_of(messages: Sequence[TaskCommit]) -> Fingerprint | None:
    """Return the fingerprint of the rows of all tasks; None if no commit compares them."""
    from ftfile.writing.fingerprint import FingerprintAccumulator  # noqa: PLC0415 - a plan needs only identities

    of_batch: FingerprintAccumulator | None = None
    for message in messages:
        if message.fingerprint is None:
            return None
        of_task = FingerprintAccumulator.from_json(message.fingerprint)
        if of_batch is None:
            of_batch = of_task
        else:
            of_batch.merge(of_task)
    assert of_batch is not None, "a batch has one message at least"
    return Fingerprint(of_batch.kind, of_batch.digest(), covers_content=of_batch.kind == "strong")


def batch_metrics(messages: Sequence[TaskCommit], durability: str) -> dict[str, Any]:
    """Return the metrics of a record: rows, bytes, bad records, and the times of the slowest task."""
    written: list[StagedPart | StagedSegment] = []
    for message in messages:
        written += (*message.parts, *message.segments)
    bad = int(sum(message.metrics.get("badRecords", 0) for message in messages))
    retries = sum(message.identity.attempt for message in messages)
    slowest = {}
    for name in ("writeSeconds", "assemblySeconds", "syncSeconds"):
        slowest[name] = in_seconds(max(message.metrics.get(name, 0.0) for message in messages))
    return {
        "rows": sum(file.rows for file in written),
        "bytes": sum(file.length for file in written),
        **({"badRecords": bad} if bad else {}),
        "durability": durability,
        "writeSecondsMax": slowest["writeSeconds"],
        **({"taskRetries": retries} if retries else {}),
        **{f"{name}Max": slowest[name] for name in ("assemblySeconds", "syncSeconds") if slowest[name]},
    }


def orphans_of(messages: Sequence[TaskCommit], log: CommitLog, author: Author, record: Record | None) -> int:
    """Return the number of staged files that no record names. Errors of the log are not raised.

    Without a new `record`, the record of the batch is read from the log. If it was deleted, the number is 0.
    """
    staged: set[str] = set()
    for message in messages:
        for rewrite in message.rewritten:
            staged.update(add.path for add in rewrite.adds)
        if record is None:  # a new record names all of these files
            staged.update(file.path for file in (*message.parts, *message.segments, *message.dead_letters))
    if staged and record is None:
        try:
            record = find_record(log, log.refresh(), author)
        except FtfileError:
            record = None
    if record is None:
        return 0
    return len(staged.difference(add.path for add in (*record.adds, *record.dead_letters)))


def common_origin(inputs: Sequence[Add], mixed: Origin) -> Origin:
    """Return the common origin of all rows, or `mixed` for rows of several writers."""
    origins = [add.origin for add in inputs]
    if len({origin.query_id for origin in origins}) > 1:
        return mixed
    first, last = min(origin.first_batch for origin in origins), max(origin.last_batch for origin in origins)
    return Origin(origins[0].query_id, first, last)
