"""The head of a log, compared with the settings of a write that is to follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.attempt.kind_of_directory import refuse_store
from ftfile.attempt.options import check_staged_names
from ftfile.attempt.schema_change import (
    check_schema_change,
    misfits_of,
    refuse_misfits,
    refuse_respelled,
    respelled_of,
)
from ftfile.core.errors import ConfigError, SchemaError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.commit.log.state import LogState
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.fs.api import Capabilities
    from ftfile.sink.config import SinkConfig

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
    refuse_store(head, config.path)
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
            check_schema_change(recorded, new, config.on_schema_change, config.bucketing.partition_by)
            _check_older_rows(head, new, snapshot)
    if head.encoding is None:
        return
    encoding = head.definitions[head.encoding]
    known = encoding["format"]["name"]
    if known != config.format.name and config.on_format_change == "fail":
        raise ConfigError(
            f"fileFormat={config.format.name}, but the directory was written as {known}: plain readers would fail at "
            f"files of two formats, or read half of them. Set fileFormat={known}, use a new directory, or overwrite "
            "this one; if only ftfile reads it, set onFormatChange=accept"
        )
    # That of the newest rows is that of all rows: only an overwrite may change it.
    recorded, found = encoding["partitionBy"], list(config.bucketing.partition_by)
    if recorded != found:
        raise ConfigError(
            f"this write is {_partition_by(found)}, but the directory was written {_partition_by(recorded)}: "
            "readers could not tell which columns are in the paths. Use a new directory, or overwrite this one"
        )


def _partition_by(columns: Sequence[str]) -> str:
    return f"with partitionBy={','.join(columns)}" if columns else "without partitionBy"


def _check_older_rows(head: LogState, schema: str, snapshot: Callable[[], Snapshot]) -> None:
    """Refuse a column that the newest rows do not have, and older ones in another spelling, or a type that misfits."""
    older = {
        key: text["schema"]
        for key, text in head.definitions.items()
        if isinstance(text, dict) and "partitionBy" in text
    }
    for clauses_of, refuse in ((respelled_of, refuse_respelled), (misfits_of, refuse_misfits)):
        if found := {key: clauses for key, recorded in older.items() if (clauses := clauses_of(recorded, schema))}:
            live = {add.encoding for add in snapshot().adds.values()}
            refuse(sorted({clause for key in live & found.keys() for clause in found[key]}), " in older rows")


def check_paths(config: SinkConfig, store: Capabilities, planned_ms: int) -> None:
    """Raise a ConfigError for names, of parts or of the sink's own files, that the store keeps for no rows at all."""
    check_staged_names(config.path, config.hidden_chain, store)
    success = config.publishing.success
    if success is not None and (fault := store.fault_of(success.name)):
        raise ConfigError(f"successFile={success.name!r} {fault}")
    config.path_check(store).check(config.bucketing.only_directory(planned_ms))
