"""The records of a writer, made from its arguments and windows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from msgspec import structs

from ftfile.core.errors import ConfigError, CorruptData, Fenced, ReplayMismatch, SchemaError
from ftfile.kv.config import StoreConfig
from ftfile.kv.definition import define
from ftfile.kv.driver import StoreChange, body_of, recorded_definition
from ftfile.kv.hashing import bucket_name, by_bucket
from ftfile.kv.operator.windows import fold_windows
from ftfile.kv.type_names import type_named
from ftfile.log.apply import ENTRIES_MAX
from ftfile.log.format import layout
from ftfile.log.format.model import BatchWriteAuthor, Transaction
from ftfile.log.protocol import commit
from ftfile.log.wal import OPERATORS, opening_of, recorded_window
from ftfile.rows.spark_types import arrow_schema, as_nullable, spark_schema_json
from ftfile.writing.messages import OperationIdentity, TaskIdentity, segment_of
from ftfile.writing.options import durability_of
from ftfile.writing.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ftfile.core.arguments import Access
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.operator.windows import Window
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Body
    from ftfile.log.state import LogState


_BINARY = pa.binary()
_NEW = define(pa.schema([("key", _BINARY), ("value", _BINARY)]), ["key"])  # defaults of a new store

_OF_SPARK = "it is for writes by Spark, and has no effect here: omit it"
# Writer options that an operator does not accept, in lower case, each with its replacement.
_REFUSED = {
    "path": "give the path as the first argument",
    "keycolumns": "give the columns as the argument keys={name: type}",
    "bucketby": "give the columns as the argument bucket_by=[name]",
    "buckets": "give the number as the argument buckets=",
    "merge": "give the functions as the argument merge=",
    "atleastversion": "give the version as the argument at_least_version=",
    "deletecolumn": "a KeyValueStore has no such column: call delete(key)",
    "sequencecolumn": (
        "only Spark can write a store with this column: write it with Spark, or create a store without the column"
    ),
    "tombstonettl": "it is for stores with a sequenceColumn, which only Spark can write: omit it",
    **dict.fromkeys(("badrecords", "maxrecordbytes", "maxopenbytes"), _OF_SPARK),
    **dict.fromkeys(("onnewquery", "ongap", "onreplaymismatch"), _OF_SPARK),
    **dict.fromkeys(("txnappid", "txnversion"), "it is for batches of Spark: give the argument writer= instead"),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class StoreColumns(NamedTuple):
    """The columns of a store as its user gives them; None is the store's value, or the default of a new store."""

    keys: Mapping[str, str | pa.DataType] | None = None
    values: Mapping[str, str | pa.DataType] | None = None
    buckets: int | None = None
    bucket_by: Sequence[str] = ()  # empty: as None
    merge: str | Mapping[str, str] | None = None

    def definition(self, recorded: StoreDefinition | None) -> StoreDefinition:
        """Return the definition, given the store's (None for a new store); names are spelled as in the store.

        Raises:
            ConfigError: the arguments are invalid.
            SchemaError: a column cannot be stored.
        """
        if recorded is not None and self == StoreColumns():
            return recorded
        base = _NEW if recorded is None else recorded
        names = () if recorded is None else recorded.schema.names
        keys, values = base.key_fields, base.value_fields
        if self.keys is not None:
            keys = _fields(self.keys, names)
        if self.values is not None:
            values = _fields(self.values, names)
        schema = arrow_schema(as_nullable(spark_schema_json(pa.schema([*keys, *values]))))
        key_names = schema.names[: len(keys)]
        has_same_keys = recorded is not None and key_names == [*recorded.keys]
        merge = self.merge
        if merge is None:
            merge = base.merge_of(schema.names)
        elif not isinstance(merge, str):
            merge = {_find_spelled(name, schema.names): function for name, function in merge.items()}
        bucket_by: Sequence[str] = [_find_spelled(name, schema.names) for name in self.bucket_by]
        if not bucket_by and has_same_keys:
            bucket_by = base.bucket_by
        definition = define(
            schema,
            key_names,
            bucket_by=bucket_by,
            buckets=base.buckets if self.buckets is None else self.buckets,
            merge=merge,
            code=() if self.merge is None else None,
        )
        if recorded is None or self.values is not None:
            return definition
        # A sum of decimals is stored in a wider type than its values; deriving the type again would widen it again.
        return replace(definition, schema=pa.schema([*definition.key_fields, *recorded.value_fields]))


def config_of(
    path: str, columns: StoreColumns, options: Mapping[str, str], access: Access, *, has_codec: bool
) -> StoreConfig:
    """Return the settings of a writer, with additional options; with a key provider, its files are encrypted.

    Raises:
        ConfigError: the arguments are invalid, or an option is a separate argument, or has no effect.
        SchemaError: a column cannot be stored.
        RolledBack: the newest version is before `at_least_version`.
        StorageError, CorruptData: the log cannot be read.
    """
    writer_options = {}
    for name, value in access.settings.items():
        writer_options[f"storage.{name}"] = value
    writer_options |= options
    for name in writer_options:
        if name.lower() in _REFUSED:
            raise ConfigError(f"option {name!r} of a KeyValueStore: {_REFUSED[name.lower()]}")
    keys = access.key_provider
    if keys is None:
        encryption = {}
    else:
        encryption = {"encryption": "aes-gcm", "keyProvider": keys}
    least = access.at_least_version
    if least is None:
        freshness = {}
    else:
        freshness = {"atLeastVersion": str(least)}
    settings = {**encryption, **freshness, **writer_options, "path": path}
    # a lost log must not be replaced by a new store
    recorded = recorded_definition(settings, access.context, durable=True)
    if recorded is not None:
        recorded = replace(recorded, sequence=None)  # a store with a sequence column is refused when it is opened
    definition = columns.definition(recorded)
    definition.require_code()
    if has_codec and definition.schema.types != [_BINARY, _BINARY]:
        raise ConfigError("a codec is for stores with one binary key column and one binary value column")
    return StoreConfig.from_options(settings, spark_schema_json(definition.schema), definition=definition)


def _fields(types: Mapping[str, str | pa.DataType], names: Collection[str]) -> list[pa.Field]:
    """Return columns by type, with names spelled as the store's columns."""
    for name, kind in types.items():
        if not isinstance(kind, (str, pa.DataType)):
            raise TypeError(f"column {name!r}: {kind!r} is not a type: give the name of a Spark type, or an Arrow type")
    fields = []
    for name, kind in types.items():
        arrow_type = kind
        if isinstance(kind, str):
            arrow_type = type_named(name, kind)
        fields.append(pa.field(_find_spelled(name, names), arrow_type))
    return fields


def _find_spelled(name: str, names: Collection[str]) -> str:
    """Return the name that equals a name ignoring case; the name itself if there is no match."""
    if name in names:
        return name
    for column in names:
        if column.lower() == name.lower():
            return column
    return name


def check_writer_name(writer: str) -> None:
    """Raise `ConfigError` for a name that is not portable as a directory name."""
    if not _NAME.fullmatch(writer):
        raise ConfigError(
            f"writer={writer!r}: it must have at most 100 letters, digits, points, hyphens and underscores, and begin "
            "with a letter or digit. After a restart, the process with the same name continues"
        )


def refuse_application(head: LogState, writer: str) -> None:
    """Raise `ConfigError` if batches of Spark were written with this writer's name as `txnAppId`."""
    # A full table has dropped the epochs of writers that opened the store long ago.
    if (
        opening_of(head, writer).epoch == 0
        and recorded_window(head, writer) >= 0
        and len(head.tables.get(OPERATORS, ())) < ENTRIES_MAX
    ):
        raise ConfigError(
            f"writer={writer!r}: Spark has written to the store with txnAppId={writer!r}, and its last txnVersion, "
            f"{recorded_window(head, writer)}, would count as a recorded window. Give another name as writer"
        )


def require_epoch(head: LogState, writer: str, epoch: int) -> None:
    """Raise `Fenced` if a newer process has opened the store as this writer; CorruptData if the epoch is lost."""
    newest = opening_of(head, writer).epoch
    if newest < epoch:
        raise CorruptData(
            layout.LOG,
            f"epoch {epoch} of writer {writer!r}, which this process recorded",
            f"epoch {newest}: the log was lost while the store was open",
            "End this process, restore the log from a copy, with all of _ftfile, and open the store again",
        )
    if newest != epoch:
        raise Fenced(
            f"another process has opened the store as writer {writer!r}, in epoch {newest}, and replaces this "
            f"process, which opened it in epoch {epoch}. This call has acknowledged and recorded nothing. If the call "
            "ran while the other process opened the store, that process may have the window: check its last_window. "
            "End this process"
        )


class _Moved(Exception):
    """Windows to be recorded are already in the log: an earlier attempt with an unknown outcome has succeeded."""


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Records the windows of one process."""

    log: CommitLog  # of the store
    config: StoreConfig  # settings of the writer; its definition is the store's
    writer: str  # name of the writer
    epoch: int  # of the process

    def head(self, *, durable: bool = False) -> LogState:
        """Return the newest state of the log, see `CommitLog.refresh`; raises the same errors as `require_epoch`."""
        head = self.log.refresh(durable=durable)
        require_epoch(head, self.writer, self.epoch)
        return head

    def record(self, number: int, windows: Sequence[Window]) -> int:
        """Record windows up to a number, each exactly once, and return the last recorded window of the log.

        The result differs from `number` if an earlier attempt with an unknown outcome has recorded later windows.
        Raises the same errors as `KeyValueStore.committed`.
        """
        # Files of recorded windows are deleted, so an earlier attempt's record must survive a power failure.
        while (last := recorded_window(self.head(durable=True), self.writer)) < number:
            remaining = [window for window in windows if window.number > last]
            if not remaining:
                break
            try:
                self._commit(number, remaining, last)
            except _Moved:
                continue
            except ReplayMismatch:
                self.head()
                raise
        return last

    def _commit(self, number: int, windows: Sequence[Window], last: int) -> None:
        operation_id = self.log.ids.unique()
        change = StoreChange(runs=tuple(self._stage_windows(operation_id, windows)))

        def prepare(head: LogState, _: object) -> Body:
            require_epoch(head, self.writer, self.epoch)
            if recorded_window(head, self.writer) != last:
                raise _Moved
            try:
                body = body_of(self.config, self.log, head, change)
            except (SchemaError, ConfigError) as error:
                raise SchemaError(
                    "the definition of the store has changed since it was opened, by an overwrite, kv.rebucket or new "
                    f"columns. Close the store and open it again; this restores windows that have ended. {error}"
                ) from error
            durability = durability_of(self.config.common.storage.durability, self.log.fs.capabilities)
            metrics = {"rows": sum(run.rows for run in change.runs), "durability": durability}
            return structs.replace(body, metrics=metrics | body.metrics)

        author = BatchWriteAuthor(operation_id, Transaction(self.writer, number))
        with self.log.lock:
            commit(self.log, author, prepare, self.config.common.policy)

    def _stage_windows(self, operation_id: str, windows: Sequence[Window]) -> list[Add]:
        """Write windows as runs, one for each bucket that they change."""
        config, definition = self.config, self.config.definition
        identity = TaskIdentity(OperationIdentity(operation_id), 0, 0)
        stage = Stage(self.log.fs, identity, config.common.storage.durability)
        rows, purges = fold_windows(windows, definition)
        rows_by_bucket = dict(by_bucket(rows, definition))
        if purges:
            for name in map(bucket_name, range(definition.buckets)):
                rows_by_bucket.setdefault(name, rows.slice(0, 0))
        runs = []
        for name in sorted(rows_by_bucket):
            runs.append((name, rows_by_bucket[name].to_batches(), purges))
        written = config.spool(stage, definition).write_all(runs)
        return [segment_of(run, "", identity.origin(), {}) for run in written]
