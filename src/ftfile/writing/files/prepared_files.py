"""The driver's part of a commit, which checks the settings against the head and builds one record from the messages."""

from __future__ import annotations

import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from ftfile.core.codecs import CODECS, ENCRYPTION_FILTER
from ftfile.core.errors import ConfigError, SchemaError, StorageError
from ftfile.core.logs import get_logger
from ftfile.core.options.kinds import columns_text
from ftfile.log.checks import Accepted, accept_rewrites
from ftfile.log.directory import check_is_files
from ftfile.log.format.adds import parts_of
from ftfile.log.format.model import APPLICATIONS, UNREPORTED_BATCHES, Body, Remove, StreamAuthor
from ftfile.log.format.record import definition_key
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.namer import Namer
from ftfile.writing.files.publishing import mark_unreported
from ftfile.writing.files.rolling_rules import ALL_END
from ftfile.writing.files.segment_statistics import keep_within_limit
from ftfile.writing.messages import StreamIdentity, add_of, segments_of
from ftfile.writing.options import check_staged_names
from ftfile.writing.schema_change import check_misfits, check_respelled, check_schema_change, misfits_of, respelled_of
from ftfile.writing.sink import PreparedBatch
from ftfile.writing.spark_checkpoint import checkpoint_table_change

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Author
    from ftfile.log.protocol import Committed
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import Capabilities
    from ftfile.writing.files.replacement import Replacement
    from ftfile.writing.files.rolling_plan import RollingPlanner
    from ftfile.writing.messages import TaskCommit


_log = get_logger(__name__)

_SOME_STAY = (
    "This overwrite replaces only some partitions, and the rows of the other partitions stay. With the option "
    "partitionOverwriteMode=static and without replaceWhere, it replaces all rows"
)


def check_head(config: SinkConfig, head: LogState, snapshot: Callable[[], Snapshot]) -> None:
    """Raise an error if the recorded schema or partition columns do not allow these settings.

    The snapshot is only created if the schema changes and a column had another type before the newest rows.

    Raises:
        SchemaError: see `check_schema_change`.
        ConfigError: `partitionBy`, `fileFormat` or a setting of the format changed, or the directory is a store.
    """
    check_is_files(head, config.path)
    _refuse_application(config, head)
    if config.overwrite and config.replacement is None:
        return  # all existing rows are replaced
    try:
        _check_followed(config, head, snapshot)
    except (ConfigError, SchemaError) as error:
        if config.replacement is None or isinstance(error, StorageError):
            raise
        raise type(error)(f"{error}. {_SOME_STAY}") from error


def _refuse_application(config: SinkConfig, head: LogState) -> None:
    """Raise a ConfigError for a batch write whose `txnAppId` is the app_id of an open writer."""
    transaction = config.common.transaction
    if transaction is not None and transaction.app_id in head.tables.get(APPLICATIONS, ()):
        raise ConfigError(
            f"txnAppId={transaction.app_id!r} is the app_id of an ftfile.writer, whose batches have other numbers: use "
            "another txnAppId"
        )


def _check_followed(config: SinkConfig, head: LogState, snapshot: Callable[[], Snapshot]) -> None:
    if head.schema is not None:
        recorded, new = head.definitions[head.schema], config.recorded_schema_json
        if recorded != new:
            check_schema_change(recorded, new, config.common.on_schema_change, config.directories.partition_by)
            _check_older_rows(head, new, snapshot)
    if head.encoding is None:
        return
    encoding = head.definitions[head.encoding]
    if config.recorded is not None and head.encoding != config.encoding_key:
        config.recorded.check(config.encoding, encoding)
    recorded_format = encoding["format"]["name"]
    if recorded_format != config.format.name and config.on_format_change == "fail":
        raise ConfigError(
            f"fileFormat={config.format.name}, but the directory was written as {recorded_format}: plain readers would "
            f"fail at files of two formats, or read only the files of one format. Set fileFormat={recorded_format}, "
            "use a new directory, or overwrite this directory. If only ftfile reads it, set onFormatChange=accept"
        )
    # The partition columns of the newest rows are those of all rows, because only an overwrite can change them.
    recorded, partition_by = encoding["partitionBy"], list(config.directories.partition_by)
    if recorded != partition_by:
        raise ConfigError(
            f"this write is {_partition_by(partition_by)}, but the directory was written {_partition_by(recorded)}: "
            "readers could not find out which columns are in the paths. Use a new directory, or overwrite this "
            "directory"
        )
    if partition_by:
        _check_zone(config, recorded_zone(head))
    if recorded_format == config.format.name and config.on_format_change == "fail":
        _check_settings(config, encoding)


def _check_settings(config: SinkConfig, recorded: Mapping[str, Any]) -> None:
    """Refuse settings of the format, and filters, with which plain readers cannot read all files the same way."""
    own, differences = config.encoding, []
    names = own["format"].keys() | recorded["format"].keys()
    for name in sorted(names - config.format.settings_of_writers):
        mine, theirs = own["format"].get(name), recorded["format"].get(name)
        if mine != theirs:
            differences.append(f"{name} is {mine!r:.80} here, and {theirs!r:.80} in the newest files")
    if _filters_of_users(own) != _filters_of_users(recorded):
        differences.append(
            f"filters are {_filters_of_users(own)} here, and {_filters_of_users(recorded)} in the newest files"
        )
    if differences:
        raise ConfigError(
            f"this write would store {config.format.name} in another way than the newest files of the directory: "
            f"{'; '.join(differences)}. Plain readers read all files with the same settings, so they would misread "
            "some. Set the option to the value of the directory, use a new directory, or overwrite this directory. If "
            "only ftfile reads it, set onFormatChange=accept"
        )


def _filters_of_users(encoding: Mapping[str, Any]) -> list[str]:
    """Return the names of the filters that readers do not recognise by the ending of the file."""
    names = []
    for definition in encoding["filters"]:
        if definition["name"] not in CODECS and definition["name"] != ENCRYPTION_FILTER:
            names.append(definition["name"])
    return names


def _check_zone(config: SinkConfig, recorded: str | None) -> None:
    directories = config.directories
    is_other = recorded not in {None, directories.time_zone} and not directories.takes_zone
    if is_other and config.on_format_change == "fail" and directories.has_instants(config.schema):
        raise ConfigError(
            f"timeZone={directories.time_zone}, but the times in the names of directories are in {recorded}: plain "
            f"readers would misread the times of one zone. Set timeZone={recorded}, or overwrite the directory. If "
            "only ftfile reads it, set onFormatChange=accept"
        )


def recorded_zone(head: LogState) -> str | None:
    """Return the time zone of directory names; None for a directory without rows."""
    zone: str | None = None if head.encoding is None else head.definitions[head.encoding].get("timeZone")
    return zone


def _partition_by(columns: Sequence[str]) -> str:
    if columns:
        return f"with partitionBy={columns_text(columns)}"
    return "without partitionBy"


def _check_older_rows(head: LogState, schema: str, snapshot: Callable[[], Snapshot]) -> None:
    """Refuse a column that the newest rows do not have, and older ones in another spelling, or a type that misfits."""
    older = {}
    for key, text in head.definitions.items():
        if isinstance(text, dict) and "partitionBy" in text:
            older[key] = text["schema"]
    for clauses_of, refuse in ((respelled_of, check_respelled), (misfits_of, check_misfits)):
        if clauses_by_key := {
            key: clauses for key, recorded in older.items() if (clauses := clauses_of(recorded, schema))
        }:
            live = {add.encoding for add in snapshot().adds.values()}
            refuse(
                sorted(set(chain.from_iterable(clauses_by_key[key] for key in live & clauses_by_key.keys()))),
                " in older rows",
            )


def check_paths(config: SinkConfig, storage: Capabilities, planned_ms: int) -> None:
    """Raise a ConfigError if the storage does not support the names of parts or of the sink's other files."""
    check_staged_names(config.path, config.hidden_chain, storage)
    success = config.publishing.success
    if success is not None and (fault := storage.fault_of(success.name)):
        raise ConfigError(f"successFile={success.name!r} {fault}")
    config.path_check(storage).check(config.directories.only_directory(planned_ms))


# The reason of a part that a task wrote directly because it was large, although other files stay open.
LARGE = "large"


class PreparedFiles(PreparedBatch[SinkConfig]):
    """The parts and segments of the checked messages of all tasks. Without a planner, due jobs stay due."""

    def __init__(
        self,
        config: SinkConfig,
        author: Author,
        messages: Sequence[TaskCommit],
        log: CommitLog,
        planner: RollingPlanner | None = None,
    ) -> None:
        super().__init__(config, author, messages, log)
        self._planner = planner
        if config.rolling is not None and isinstance(author, StreamAuthor):
            large = sum(len(message.parts) for message in messages)
            self.metrics |= {"partsByReason": {LARGE: large}} if large else {}
        key = config.encoding_key
        parts: list[Add] = []
        for message in messages:
            origin = message.identity.origin()
            parts += [add_of(part, key, origin) for part in message.parts]
        self._parts = tuple(parts)

    def body(self, head: LogState, snapshot: Callable[[], Snapshot]) -> Body:
        """See `PreparedBatch.body`."""
        config, messages, letters, log = self.config, self.messages, self.letters, self.log
        if config.directories.takes_zone:  # if no task had rows, the zone is not known, and the recorded zone is used
            config = config.in_zone(recorded_zone(head))
        check_head(config, head, snapshot)
        is_stream = isinstance(self.author, StreamAuthor)
        schema, key, settings, definitions = _definitions(config, is_stream=is_stream)
        namer = _namer(config, messages[0], {key: config.extension})
        named = namer.name(
            log, head, rewrites=() if config.overwrite else self.rewrites, adds=self._parts, definitions=definitions
        )
        accepted = Accepted()
        if named.rewrites or named.refused:
            accepted = accept_rewrites(
                log, head, rewrites=named.rewrites, own_adds=(*named.adds, *letters), refused=named.refused
            )
        segments = keep_within_limit(segments_of(messages, key, {"committedMs": self.committed_ms}), len(head.segments))
        adds = (*named.adds, *segments, *accepted.adds)
        if config.replacement is None:
            replacement = None
        else:
            replacement = config.replacement.with_clock_values(messages[0].planned_ms)
        if config.overwrite:
            replaced = _list_replaced(replacement, (*named.adds, *segments), snapshot())
        else:
            replaced = []
        success = None
        if is_stream:
            success = config.publishing.success
        if success is None:
            marks = {}
        else:
            marks = success.mark(log, head, adds, config.directories.end_ms)
        place = checkpoint_table_change(head, self.author, config.common.checkpoint)
        unreported: dict[str, Any] = {}
        if self._is_reported_later and parts_of(adds):
            unreported = mark_unreported(UNREPORTED_BATCHES, head.version + 1, messages[0].identity.writer.owner)
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
            user_metadata=config.common.user_metadata,
            metrics=self.metrics | accepted.metrics(self.metrics.get("partsByReason")),
            tables=named.tables | marks | place | unreported,
        )
        if self._planner is None:
            return body
        jobs = self._planner.plan(head, body, author=self.author, now_ms=log.clock.now_ms(), failed=self.failed)
        return structs.replace(body, jobs=jobs)

    @property
    def _is_reported_later(self) -> bool:
        """Return True for an application, which calls the user's function itself; see `report_pending`.

        Its batches are not repeated by another process, so their records note that their parts are unreported.
        """
        return self.config.common.is_application and self.config.publishing.on_publish is not None

    def after_commit(self, done: Committed) -> None:
        """Write the marker of a batch write, and call the user's function, also for replays and unreported flushes."""
        config, writer, log = self.config, self.messages[0].identity.writer, self.log
        if self._planner is not None and self._planner.in_progress and config.rolling is not None:
            _log_files_in_progress(config, self._planner)
        hook, success, path = config.publishing.on_publish, config.publishing.success, config.path
        is_stream = isinstance(writer, StreamIdentity)
        if success is not None and not is_stream:
            success.put(log.fs, "", done.version)
        if hook is None or self._is_reported_later:
            return
        from ftfile.log.read.snapshot import added_by  # noqa: PLC0415 - few writers have such a function
        from ftfile.writing.files.publishing import call_on_publish, report_pending_flushes  # noqa: PLC0415 - likewise

        if done.record is not None:
            call_on_publish(hook, path, done.version, done.record.adds)
        elif isinstance(writer, StreamIdentity):
            last = log.refresh().queries[writer.query_id]
            # Spark starts a batch only after the function of the previous batch was called.
            if last.last_batch == writer.batch_id:
                call_on_publish(hook, path, last.version, added_by(log, last.version))
        if is_stream:
            with log.lock:
                report_pending_flushes(log, hook, path, writer.owner)


def _log_files_in_progress(config: SinkConfig, planner: RollingPlanner) -> None:
    """Log the number of files that are not visible yet; with a warning the first time, if no listener ends them."""
    if config.common.is_attached:
        _log.info("%d files are in progress", planner.in_progress)
        return
    remedy = "If no batch runs, ftfile.spark.attach(spark), called before the query starts, or"
    if config.common.is_application:
        remedy = "If the writer commits no more rows, a commit without rows, once their time has passed, or"
    _log.log(
        logging.INFO if planner.has_warned else logging.WARNING,
        "%d files are in progress and stay open over batches. %s ftfile.flush(%r) finishes them",
        planner.in_progress,
        remedy,
        config.path,
    )
    planner.has_warned = True


def _namer(config: SinkConfig, message: TaskCommit, extensions: dict[str, str]) -> Namer:
    writer = message.identity.writer
    return Namer(
        naming=config.publishing.naming,
        batch=writer.name_stem,
        time_ms=message.planned_ms,
        query_id=writer.owner,
        extensions=extensions,
    )


def _list_replaced(replacement: Replacement | None, written: Sequence[Add], snapshot: Snapshot) -> list[Add]:
    live = list(snapshot.adds.values())
    if replacement is None:
        return live
    return replacement.select_replaced(written, live, snapshot.definitions)


class _Definitions(NamedTuple):
    """The definitions that a record refers to."""

    schema_key: str
    encoding_key: str
    settings_key: str | None  # of the query
    by_key: dict[str, Any]


def _definitions(config: SinkConfig, *, is_stream: bool) -> _Definitions:
    """Return the keys of the schema, the encoding and the query's settings, if any, and the definitions by key."""
    key, schema = config.encoding_key, config.recorded_schema_json
    schema_key = definition_key(schema)
    definitions: dict[str, Any] = {key: config.encoding, schema_key: schema}
    if not is_stream:
        return _Definitions(schema_key, key, None, definitions)
    # Recorded for all queries, because segments of an earlier configuration may still be open.
    rolling = msgspec.to_builtins(config.rolling or ALL_END)
    settings = {"rolling": rolling, "encoding": key, **config.publishing.to_json(), **config.common.storage.to_json()}
    settings_key = definition_key(settings)
    return _Definitions(schema_key, key, settings_key, {**definitions, settings_key: settings})
