"""The driver's side: from messages to one commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.attempt.fingerprint import FingerprintAccumulator
from ftfile.attempt.identity import StreamIdentity, WriterIdentity
from ftfile.attempt.message import add_of, rewrite_of
from ftfile.attempt.schema_change import check_schema_change
from ftfile.attempt.spark_checkpoint import read_offsets
from ftfile.attempt.stage import durability_of
from ftfile.commit.format.layout import dead_letter_path, staged_directory
from ftfile.commit.format.model import Add, Author, Body, Fingerprint, JobAuthor, Remove, StreamAuthor
from ftfile.commit.rewrites import accept_rewrites
from ftfile.core.errors import ConfigError, InvalidMessages
from ftfile.core.version import __version__
from ftfile.sink.config import SinkConfig, definition_key
from ftfile.sink.naming.facts import MORE_DIGITS
from ftfile.sink.naming.namer import Namer
from ftfile.sink.rolling.settings import ALL_END

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.attempt.message import StagedPart, StagedSegment, TaskCommit
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.protocol import Prepare
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.core.context import Context
    from ftfile.fs.api import Capabilities
    from ftfile.sink.rolling.plan import RollingPlanner

__all__ = ("Proposal", "check_head", "check_messages", "check_paths", "make_proposal")

# Why parts ended that a task wrote at once, where others stay open.
LARGE = "large"

# Dummy id of the greatest length that a path can contain.
_ID = "00000000-0000-0000-0000-000000000000"


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


@dataclass(frozen=True, slots=True)
class Proposal:
    """A batch, ready to be committed: what `commit` takes."""

    author: Author
    prepare: Prepare
    fingerprint: Fingerprint
    claims_replay: bool


def make_proposal(
    config: SinkConfig, messages: Sequence[TaskCommit], log: CommitLog, planner: RollingPlanner | None = None
) -> Proposal:
    """Return the commit that the checked messages of all tasks make; without a planner, due jobs stay due."""
    writer = messages[0].identity.writer
    author = _author(config, writer, log.fs.context)
    is_stream = isinstance(author, StreamAuthor)
    schema, key, settings, definitions = _definitions(config, is_stream=is_stream)
    parts = tuple(add_of(part, key, message.identity.origin()) for message in messages for part in message.parts)
    letters = _letters(messages)
    segments = _segments(messages, key, log.clock.now_ms())
    rewrites = [rewrite_of(assembled) for message in messages for assembled in message.assembled]
    failed = frozenset(job for message in messages for job in message.failed)
    metrics = _metrics(config, messages, log.fs.capabilities)
    namer = Namer(config.publishing.naming, writer.name_stem, messages[0].planned_ms, writer.owner)
    success = config.publishing.success if is_stream else None

    def prepare(head: LogState, snapshot: Callable[[], Snapshot]) -> Body:
        check_head(config, head)
        named = namer.name(log, head, () if config.overwrite else rewrites, parts, definitions)
        accepted = accept_rewrites(log, head, named.rewrites, (*named.adds, *letters), named.refused)
        adds = (*named.adds, *segments, *accepted.adds)
        replaced = snapshot().adds.values() if config.overwrite else ()
        marks = {} if success is None else success.mark(log, head, adds, config.bucketing.end_ms)
        body = Body(
            adds=adds,
            removes=(*map(Remove.of, replaced), *accepted.removes),
            overwrite=config.overwrite,
            dead_letters=letters,
            tasks=len(messages),
            schema=schema,
            settings=settings,
            encoding=key,
            definitions=definitions,
            metrics=metrics | accepted.metrics(metrics.get("partsByReason")),
            tables=named.tables | marks,
        )
        jobs = None if planner is None else planner.plan(head, body, author, log.clock.now_ms(), failed)
        return replace(body, assembly_jobs=jobs)

    claims_replay = any(message.found_committed for message in messages)
    return Proposal(author, prepare, _fingerprint(messages), claims_replay)


def check_head(config: SinkConfig, head: LogState) -> None:
    """Refuse to follow records of a schema or of partition columns that do not agree with these.

    Raises:
        SchemaError: see `check_schema_change`.
        ConfigError: `partitionBy` changed.
    """
    if config.overwrite:
        return  # nothing that was written before stays
    if head.schema is not None:
        check_schema_change(head.definitions[head.schema], config.recorded_schema_json, config.on_schema_change)
    if head.encoding is None:
        return
    # That of the newest rows is that of all rows: only an overwrite may change it.
    recorded, found = head.definitions[head.encoding]["partitionBy"], list(config.bucketing.partition_by)
    if recorded != found:
        raise ConfigError(
            f"partitionBy={','.join(found) or 'no columns'}, but the directory was written with "
            f"{','.join(recorded) or 'no columns'}: readers could not tell which columns are in the paths. Use a new "
            "directory, or overwrite this one"
        )


def check_paths(config: SinkConfig, store: Capabilities, planned_ms: int) -> None:
    """Raise a ConfigError for names, of parts or of the sink's own files, that the store keeps for no rows at all."""
    staged = f"{staged_directory(_ID, 0)}/00000-0-{_ID}.staged"
    for path in (staged, dead_letter_path(_ID, 0, 0, _ID, config.hidden_chain.names)):
        if fault := store.fault_of(path, MORE_DIGITS):
            raise ConfigError(f"path={config.path!r}: a file of the sink's own would be {path!r}, which {fault}")
    success = config.publishing.success
    if success is not None and (fault := store.fault_of(success.name)):
        raise ConfigError(f"successFile={success.name!r} {fault}")
    config.path_check(store).check(config.bucketing.only_directory(planned_ms))


def _author(config: SinkConfig, writer: WriterIdentity, context: Context) -> Author:
    if not isinstance(writer, StreamIdentity):
        return JobAuthor(writer.job_id, config.transaction)
    found = read_offsets(config.checkpoint, writer.batch_id, context)
    hash_and_offsets = (found.hash, found.offsets) if found else (None, None)
    return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id, *hash_and_offsets)


def _definitions(config: SinkConfig, *, is_stream: bool) -> tuple[str, str, str | None, dict[str, Any]]:
    """Return the keys of the schema, the encoding and the query's settings, if any, and the definitions by key."""
    encoding, schema = config.encoding(), config.recorded_schema_json
    key = definition_key(encoding)
    found: dict[str, Any] = {key: encoding, definition_key(schema): schema}
    if not is_stream:
        return definition_key(schema), key, None, found
    # Also of a query that keeps nothing open: segments of an earlier configuration may still be open.
    rolling = (config.rolling or ALL_END).to_json()
    settings = {"rolling": rolling, "encoding": key, **config.publishing.to_json()}
    return definition_key(schema), key, definition_key(settings), {**found, definition_key(settings): settings}


def _segments(messages: Sequence[TaskCommit], encoding: str, now_ms: int) -> list[Add]:
    return [
        Add(
            id=segment.id,
            kind="segment",
            path=segment.path,
            final_path=None,
            offset=segment.offset,
            length=segment.length,
            logical_length=segment.logical_length,
            checksum=segment.checksum,
            rows=segment.rows,
            bucket=segment.bucket,
            encoding=encoding,
            origin=message.identity.origin(),
            filters=segment.filters,
            rolling_stats=segment.rolling_stats | {"committedMs": now_ms},
        )
        for message in messages
        for segment in message.segments
    ]


def _letters(messages: Sequence[TaskCommit]) -> tuple[Add, ...]:
    """Return the files of dead letters; their paths have all that readers need."""
    letters = []
    for message in messages:
        writer, partition = message.identity.writer, message.identity.partition
        for letter in message.dead_letters:
            path = dead_letter_path(writer.owner, writer.batch_number, partition, letter.id, letter.filters)
            letters.append(replace(add_of(letter, "", message.identity.origin()), final_path=path))
    return tuple(letters)


def _fingerprint(messages: Sequence[TaskCommit]) -> Fingerprint:
    first, *others = (FingerprintAccumulator.from_json(message.fingerprint) for message in messages)
    for other in others:
        first.merge(other)
    return Fingerprint(first.kind, first.digest(), covers_content=first.kind == "strong")


def _metrics(config: SinkConfig, messages: Sequence[TaskCommit], store: Capabilities) -> dict[str, Any]:
    written: list[StagedPart | StagedSegment] = []
    for message in messages:
        written += (*message.parts, *message.segments)
    is_rolling = config.rolling is not None and isinstance(messages[0].identity.writer, StreamIdentity)
    large = sum(len(message.parts) for message in messages) if is_rolling else 0
    bad = int(sum(message.metrics.get("badRecords", 0) for message in messages))
    return {
        "rows": sum(each.rows for each in written),
        "bytes": sum(each.length for each in written),
        **({"partsByReason": {LARGE: large}} if large else {}),
        **({"badRecords": bad} if bad else {}),
        "durability": durability_of(config.publishing.storage.durability, store),
        "writeSecondsMax": round(max(message.metrics.get("writeSeconds", 0.0) for message in messages), 6),
    }
