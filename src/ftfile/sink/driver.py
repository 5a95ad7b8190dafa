"""The driver's side: messages in, one commit out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.commit.model import Add, Fingerprint, JobAuthor, StreamAuthor
from ftfile.commit.proposal import Proposal
from ftfile.core.errors import ConfigError, InvalidMessages
from ftfile.core.version import __version__
from ftfile.sink.checkpoint import read_offsets
from ftfile.sink.config import definition_key
from ftfile.sink.fingerprint import FingerprintAccumulator
from ftfile.sink.identity import StreamIdentity
from ftfile.sink.schema_change import check_schema_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.commit.model import Author
    from ftfile.commit.state import LogState
    from ftfile.sink.config import SinkConfig
    from ftfile.sink.identity import WriterIdentity
    from ftfile.sink.message import TaskCommit

__all__ = ("check_head", "check_messages", "make_proposal")


def check_messages(messages: Sequence[TaskCommit | None], batch_id: int | None) -> list[TaskCommit]:
    """Return the messages of a whole batch, by partition.

    Raises:
        InvalidMessages: one is missing, foreign, doubled, or of another version of ftfile.
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


def make_proposal(config: SinkConfig, messages: Sequence[TaskCommit]) -> Proposal:
    """Turn checked messages into what is to be committed."""
    writer = messages[0].identity.writer
    encoding, schema = config.encoding(), config.schema_json
    definitions: dict[str, Any] = {definition_key(encoding): encoding, definition_key(schema): schema}
    return Proposal(
        author=_author(config, writer),
        adds=_adds(config, messages, definition_key(encoding)),
        claims_replay=any(message.found_committed for message in messages),
        fingerprint=_fingerprint(config, messages),
        tasks=len(messages),
        schema=definition_key(schema),
        definitions=definitions,
        metrics=_metrics(messages),
        check=lambda head: check_head(config, head),
    )


def check_head(config: SinkConfig, head: LogState) -> None:
    """Refuse to follow records that this schema or these partition columns do not agree with.

    Raises:
        SchemaError: see `check_schema_change`.
        ConfigError: `partitionBy` changed.
    """
    if head.schema is not None:
        check_schema_change(head.definitions[head.schema], config.schema_json, config.on_schema_change)
    for definition in head.definitions.values():
        if isinstance(definition, dict) and definition.get("partitionBy") not in (None, list(config.partition_by)):
            recorded = ",".join(definition["partitionBy"]) or "no columns"
            raise ConfigError(
                f"partitionBy={','.join(config.partition_by) or 'no columns'}, but the directory was written with "
                f"{recorded}: readers could not tell which columns are in the paths. Use a new directory"
            )


def _author(config: SinkConfig, writer: WriterIdentity) -> Author:
    if not isinstance(writer, StreamIdentity):
        return JobAuthor(writer.job_id)
    found = read_offsets(config.checkpoint, writer.batch_id)
    hash_and_offsets = (found.hash, found.offsets) if found else (None, None)
    return StreamAuthor(writer.query_id, writer.run_id, writer.batch_id, *hash_and_offsets)


def _adds(config: SinkConfig, messages: Sequence[TaskCommit], encoding: str) -> tuple[Add, ...]:
    """Give every part its final name: numbered within its bucket, in the order of partitions and of writing."""
    adds = []
    numbers: dict[str, int] = {}
    for message in messages:
        stem = message.identity.writer.name_stem
        for part in message.parts:
            number = numbers.get(part.bucket, 0)
            numbers[part.bucket] = number + 1
            name = f"part-{stem}-{number:05d}-{part.id[:12]}{config.format.extension}"
            adds.append(
                Add(
                    id=part.id,
                    kind="part",
                    path=part.path,
                    final_path=f"{part.bucket}/{name}" if part.bucket else name,
                    length=part.length,
                    logical_length=part.length,
                    checksum=part.checksum,
                    rows=part.rows,
                    bucket=part.bucket,
                    encoding=encoding,
                    origin=message.identity.origin(),
                )
            )
    return tuple(adds)


def _fingerprint(config: SinkConfig, messages: Sequence[TaskCommit]) -> Fingerprint:
    total = FingerprintAccumulator(config.fingerprint)
    for message in messages:
        total.merge(FingerprintAccumulator.from_json(message.fingerprint))
    return Fingerprint(total.kind, total.digest(), covers_content=True)


def _metrics(messages: Sequence[TaskCommit]) -> dict[str, Any]:
    parts = [part for message in messages for part in message.parts]
    return {
        "rows": sum(part.rows for part in parts),
        "bytes": sum(part.length for part in parts),
        "files": len(parts),
        "writeSecondsMax": round(max(message.metrics.get("writeSeconds", 0.0) for message in messages), 6),
    }
