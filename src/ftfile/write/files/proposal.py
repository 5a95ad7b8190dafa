"""The driver's side: the head of the log compared with the settings, and from messages to one commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec import structs

from ftfile.core.errors import ConfigError, SchemaError, StorageError
from ftfile.formats.reading import TimeFormats
from ftfile.log.checks import Accepted, accept_rewrites
from ftfile.log.directory import check_is_files
from ftfile.log.format.model import Body, Remove, StreamAuthor
from ftfile.log.format.record import definition_key
from ftfile.rows.value_text import UTC
from ftfile.write.files.namer import Namer
from ftfile.write.files.rolling_groups import Moment
from ftfile.write.files.rolling_rules import ALL_END
from ftfile.write.messages import StreamIdentity, add_of, batch_metrics, letters_of, segments_of
from ftfile.write.options import check_staged_names, durability_of
from ftfile.write.schema_change import check_misfits, check_respelled, check_schema_change, misfits_of, respelled_of
from ftfile.write.spark_checkpoint import checkpoint_table_change

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Author
    from ftfile.log.protocol import Prepare
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import Capabilities
    from ftfile.write.files.file_options import SinkConfig
    from ftfile.write.files.replacement import Replacement
    from ftfile.write.files.rolling_plan import RollingPlanner
    from ftfile.write.messages import TaskCommit


_SOME_STAY = (
    "This overwrite replaces some partitions only, and the rows of the others stay: with the option "
    "partitionOverwriteMode=static, and without replaceWhere, it replaces everything"
)


def check_head(config: SinkConfig, head: LogState, snapshot: Callable[[], Snapshot]) -> None:
    """Refuse to follow records of a schema or of partition columns that do not agree with these.

    The snapshot is only taken where the schema changes, and a column was of another type before the newest rows.

    Raises:
        SchemaError: see `check_schema_change`.
        ConfigError: `partitionBy` or `fileFormat` changed, or the directory is a store.
    """
    check_is_files(head, config.path)
    if config.overwrite and config.replacement is None:
        return  # nothing that was written before stays
    try:
        _check_followed(config, head, snapshot)
    except (ConfigError, SchemaError) as error:
        if config.replacement is None or isinstance(error, StorageError):
            raise
        raise type(error)(f"{error}. {_SOME_STAY}") from error


def _check_followed(config: SinkConfig, head: LogState, snapshot: Callable[[], Snapshot]) -> None:
    if head.schema is not None:
        recorded, new = head.definitions[head.schema], config.recorded_schema_json
        if recorded != new:
            check_schema_change(recorded, new, config.common.on_schema_change, config.directories.partition_by)
            _check_older_rows(head, new, snapshot)
    if head.encoding is None:
        return
    encoding = head.definitions[head.encoding]
    recorded_format = encoding["format"]["name"]
    if recorded_format != config.format.name and config.on_format_change == "fail":
        raise ConfigError(
            f"fileFormat={config.format.name}, but the directory was written as {recorded_format}: plain readers would "
            "fail at files of two formats, or read half of them. "
            f"Set fileFormat={recorded_format}, use a new directory, or overwrite this one; if only ftfile reads it, "
            "set onFormatChange=accept"
        )
    # That of the newest rows is that of all rows: only an overwrite may change it.
    recorded, partition_by = encoding["partitionBy"], list(config.directories.partition_by)
    if recorded != partition_by:
        raise ConfigError(
            f"this write is {_partition_by(partition_by)}, but the directory was written {_partition_by(recorded)}: "
            "readers could not tell which columns are in the paths. Use a new directory, or overwrite this one"
        )
    if partition_by:
        _check_zone(config, recorded_zone(head))


def _check_zone(config: SinkConfig, recorded: str | None) -> None:
    directories = config.directories
    is_other = recorded not in {None, directories.time_zone} and not directories.takes_zone
    if is_other and config.on_format_change == "fail" and directories.has_instants(config.schema):
        raise ConfigError(
            f"timeZone={directories.time_zone}, but names of directories have instants by the clocks of {recorded}: "
            f"plain readers would misread those of one zone. Set timeZone={recorded}, or overwrite the directory; if "
            "only ftfile reads it, set onFormatChange=accept"
        )


def recorded_zone(head: LogState) -> str | None:
    """Return the zone by which names of directories are written; None in a directory without rows."""
    zone: str | None = None if head.encoding is None else head.definitions[head.encoding].get("timeZone")
    return zone


def session_zone(schema: pa.Schema) -> str:
    """Return the zone of the session, by the types of columns that Spark sends; UTC where no type says it.

    Raises:
        ConfigError: Arrow does not know it.
    """
    name = next((kind.tz for kind in schema.types if pa.types.is_timestamp(kind) and kind.tz is not None), UTC)
    try:
        return TimeFormats.from_options({"timeZone": name}).zone
    except ConfigError as error:
        raise ConfigError(f"spark.sql.session.timeZone={name!r} is the zone of instants in paths. {error}") from error


def _partition_by(columns: Sequence[str]) -> str:
    return f"with partitionBy={','.join(columns)}" if columns else "without partitionBy"


def _check_older_rows(head: LogState, schema: str, snapshot: Callable[[], Snapshot]) -> None:
    """Refuse a column that the newest rows do not have, and older ones in another spelling, or a type that misfits."""
    older = {
        key: text["schema"]
        for key, text in head.definitions.items()
        if isinstance(text, dict) and "partitionBy" in text
    }
    for clauses_of, refuse in ((respelled_of, check_respelled), (misfits_of, check_misfits)):
        if clauses_by_key := {
            key: clauses for key, recorded in older.items() if (clauses := clauses_of(recorded, schema))
        }:
            live = {add.encoding for add in snapshot().adds.values()}
            refuse(
                sorted({clause for key in live & clauses_by_key.keys() for clause in clauses_by_key[key]}),
                " in older rows",
            )


def check_paths(config: SinkConfig, store: Capabilities, planned_ms: int) -> None:
    """Raise a ConfigError for names, of parts or of the sink's own files, that the store keeps for no rows at all."""
    check_staged_names(config.path, config.hidden_chain, store)
    success = config.publishing.success
    if success is not None and (fault := store.fault_of(success.name)):
        raise ConfigError(f"successFile={success.name!r} {fault}")
    config.path_check(store).check(config.directories.only_directory(planned_ms))


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
    is_stream, committed_ms = isinstance(author, StreamAuthor), log.clock.now_ms()
    schema, key, settings, definitions = _definitions(config, is_stream=is_stream)
    parts = tuple(add_of(part, key, message.identity.origin()) for message in messages for part in message.parts)
    letters = letters_of(messages)
    rewrites = [rewrite for message in messages for rewrite in message.rewritten]
    failed = frozenset(job for message in messages for job in message.failed)
    metrics = _metrics(config, messages, log.fs.capabilities)
    namer = _namer(config, messages[0], {key: config.extension})
    success = config.publishing.success if is_stream else None
    replacement = None if config.replacement is None else config.replacement.with_clock_values(messages[0].planned_ms)

    def prepare(head: LogState, snapshot: Callable[[], Snapshot]) -> Body:
        check_head(config, head, snapshot)
        named = namer.name(log, head, () if config.overwrite else rewrites, parts, definitions)
        accepted = Accepted()
        if named.rewrites or named.refused:
            accepted = accept_rewrites(log, head, named.rewrites, (*named.adds, *letters), named.refused)
        segments = segments_of(messages, key, Moment(committed_ms, head.version + 1).stats())
        adds = (*named.adds, *segments, *accepted.adds)
        replaced = _replaced(replacement, (*named.adds, *segments), snapshot()) if config.overwrite else []
        marks = {} if success is None else success.mark(log, head, adds, config.directories.end_ms)
        place = checkpoint_table_change(head, author, config.common.checkpoint)
        body = Body(
            adds=adds,
            removes=(*map(Remove.of, replaced), *accepted.removes),
            overwrite=config.overwrite and replacement is None,
            replaces=None if replacement is None else replacement.recorded,
            rows_removed=sum(add.rows for add in replaced),
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
        return structs.replace(body, assembly_tasks=jobs)

    return prepare


def make_proposal_without_zone(
    config: SinkConfig, author: Author, messages: Sequence[TaskCommit], log: CommitLog, planner: RollingPlanner | None
) -> Prepare:
    """Return the proposal of tasks without rows, none of which knows the zone of names: it keeps the recorded one."""

    def prepare(head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
        return make_proposal(config.in_zone(recorded_zone(head)), author, messages, log, planner)(head, snapshot)

    return prepare


def _namer(config: SinkConfig, message: TaskCommit, extensions: dict[str, str]) -> Namer:
    writer = message.identity.writer
    return Namer(config.publishing.naming, writer.name_stem, message.planned_ms, writer.owner, extensions)


def _replaced(replacement: Replacement | None, written: Sequence[Add], snapshot: Snapshot) -> list[Add]:
    live = list(snapshot.adds.values())
    return live if replacement is None else replacement.replaced(written, live, snapshot.definitions)


def _definitions(config: SinkConfig, *, is_stream: bool) -> tuple[str, str, str | None, dict[str, Any]]:
    """Return the keys of the schema, the encoding and the query's settings, if any, and the definitions by key."""
    key, schema = config.encoding_key, config.recorded_schema_json
    schema_key = definition_key(schema)
    definitions: dict[str, Any] = {key: config.encoding, schema_key: schema}
    if not is_stream:
        return schema_key, key, None, definitions
    # Also of a query that keeps nothing open: segments of an earlier configuration may still be open.
    rolling = msgspec.to_builtins(config.rolling or ALL_END)
    settings = {"rolling": rolling, "encoding": key, **config.publishing.to_json(), **config.common.storage.to_json()}
    settings_key = definition_key(settings)
    return schema_key, key, settings_key, {**definitions, settings_key: settings}


def _metrics(config: SinkConfig, messages: Sequence[TaskCommit], store: Capabilities) -> dict[str, Any]:
    is_rolling = config.rolling is not None and isinstance(messages[0].identity.writer, StreamIdentity)
    large = sum(len(message.parts) for message in messages) if is_rolling else 0
    metrics = batch_metrics(messages, durability_of(config.common.storage.durability, store))
    return metrics | ({"partsByReason": {LARGE: large}} if large else {})
