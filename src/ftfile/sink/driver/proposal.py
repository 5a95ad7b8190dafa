"""The driver's side: from messages to one commit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ftfile.attempt.batch import batch_metrics, letters_of, segments_of
from ftfile.attempt.identity import StreamIdentity
from ftfile.attempt.message import add_of
from ftfile.attempt.options import durability_of
from ftfile.attempt.spark_checkpoint import recorded_place
from ftfile.commit.format.model import Body, Remove, StreamAuthor
from ftfile.commit.format.record import definition_key
from ftfile.commit.rewrites import Accepted, accept_rewrites
from ftfile.sink.driver.head import check_head
from ftfile.sink.naming.namer import Namer
from ftfile.sink.rolling.settings import ALL_END, ROLLING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.attempt.message import TaskCommit
    from ftfile.commit.format.model import Add, Author
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.protocol import Prepare
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.fs.api import Capabilities
    from ftfile.sink.buckets.replacement import Replacement
    from ftfile.sink.config import SinkConfig
    from ftfile.sink.rolling.plan import RollingPlanner

# Why parts ended that a task wrote at once, where others stay open.
LARGE = "large"


def make_proposal(
    config: SinkConfig,
    author: Author,
    messages: Sequence[TaskCommit],
    log: CommitLog,
    planner: RollingPlanner | None = None,
) -> Prepare:
    """Return how the record of the checked messages of all tasks is prepared; without a planner, due jobs stay due."""
    writer = messages[0].identity.writer
    is_stream = isinstance(author, StreamAuthor)
    schema, key, settings, definitions = _definitions(config, is_stream=is_stream)
    parts = tuple(add_of(part, key, message.identity.origin()) for message in messages for part in message.parts)
    letters = letters_of(messages)
    segments = segments_of(messages, key, log.clock.now_ms())
    rewrites = [rewrite for message in messages for rewrite in message.rewritten]
    failed = frozenset(job for message in messages for job in message.failed)
    metrics = _metrics(config, messages, log.fs.capabilities)
    extensions = {key: config.extension}
    namer = Namer(config.publishing.naming, writer.name_stem, messages[0].planned_ms, writer.owner, extensions)
    success = config.publishing.success if is_stream else None
    replacement = None if config.replacement is None else config.replacement.settled(messages[0].planned_ms)

    def prepare(head: LogState, snapshot: Callable[[], Snapshot]) -> Body:
        check_head(config, head, snapshot)
        named = namer.name(log, head, () if config.overwrite else rewrites, parts, definitions)
        accepted = Accepted()
        if named.rewrites or named.refused:
            accepted = accept_rewrites(log, head, named.rewrites, (*named.adds, *letters), named.refused)
        adds = (*named.adds, *segments, *accepted.adds)
        replaced = _replaced(replacement, (*named.adds, *segments), snapshot()) if config.overwrite else []
        marks = {} if success is None else success.mark(log, head, adds, config.bucketing.end_ms)
        place = recorded_place(head, author.query_id, config.checkpoint) if isinstance(author, StreamAuthor) else {}
        body = Body(
            adds=adds,
            removes=(*map(Remove.of, replaced), *accepted.removes),
            overwrite=config.overwrite and replacement is None,
            replaces=None if replacement is None else replacement.recorded,
            dead_letters=letters,
            tasks=len(messages),
            schema=schema,
            settings=settings,
            encoding=key,
            definitions=definitions,
            metrics=metrics | accepted.metrics(metrics.get("partsByReason")),
            tables=named.tables | marks | place,
        )
        jobs = None if planner is None else planner.plan(head, body, author, log.clock.now_ms(), failed)
        return replace(body, assembly_jobs=jobs)

    return prepare


def _replaced(replacement: Replacement | None, written: Sequence[Add], snapshot: Snapshot) -> list[Add]:
    live = list(snapshot.adds.values())
    return live if replacement is None else replacement.replaced(written, live, snapshot.definitions)


def _definitions(config: SinkConfig, *, is_stream: bool) -> tuple[str, str, str | None, dict[str, Any]]:
    """Return the keys of the schema, the encoding and the query's settings, if any, and the definitions by key."""
    key, schema = config.encoding_key, config.recorded_schema_json
    found: dict[str, Any] = {key: config.encoding, definition_key(schema): schema}
    if not is_stream:
        return definition_key(schema), key, None, found
    # Also of a query that keeps nothing open: segments of an earlier configuration may still be open.
    rolling = ROLLING.to_json(config.rolling or ALL_END)
    settings = {"rolling": rolling, "encoding": key, **config.publishing.to_json()}
    return definition_key(schema), key, definition_key(settings), {**found, definition_key(settings): settings}


def _metrics(config: SinkConfig, messages: Sequence[TaskCommit], store: Capabilities) -> dict[str, Any]:
    is_rolling = config.rolling is not None and isinstance(messages[0].identity.writer, StreamIdentity)
    large = sum(len(message.parts) for message in messages) if is_rolling else 0
    metrics = batch_metrics(messages, durability_of(config.publishing.storage.durability, store))
    return metrics | ({"partsByReason": {LARGE: large}} if large else {})
