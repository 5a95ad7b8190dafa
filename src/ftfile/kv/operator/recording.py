"""A writer's side of records: its arguments as settings, the epoch that fences processes before, windows as runs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.errors import ConfigError, CorruptData, Fenced, ReplayMismatch, SchemaError
from ftfile.kv.config import StoreConfig
from ftfile.kv.driver import StoreChange, body_of, recorded_definition
from ftfile.kv.hashing import bucket_name, by_bucket
from ftfile.kv.operator.windows import folded
from ftfile.log.apply import ENTRIES_MAX
from ftfile.log.format import layout
from ftfile.log.format.model import JobAuthor, Transaction
from ftfile.log.protocol import commit
from ftfile.log.wal import OPERATORS, opening_of, recorded_window
from ftfile.rows.spark_types import arrow_schema, spark_schema_json
from ftfile.write.messages import JobIdentity, TaskIdentity, segment_of
from ftfile.write.options import durability_of
from ftfile.write.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ftfile.core.context import Context
    from ftfile.kv.operator.windows import Window
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Body
    from ftfile.log.state import LogState


_BINARY = pa.binary()
# In SQL, and in the JSON of schemas.
_SQL_NAMES = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}

_OF_SPARK = "it is for writes by Spark, and has no effect here: leave it out"
# Options of writers that an operator does not take, in lower case, each with what to do.
_REFUSED = {
    "path": "give the path as the first argument",
    "keycolumns": "give the columns as the argument keys={name: type}",
    "bucketby": "give the columns as the argument bucket_by=[name]",
    "buckets": "give the number as the argument buckets=",
    "merge": "give the functions as the argument merge=",
    "deletecolumn": "there is no such column: call delete(key)",
    "sequencecolumn": "a store with one is written by Spark alone: write it by Spark, or make a store without it",
    "tombstonettl": "it is for stores with a sequenceColumn, which Spark alone writes: leave it out",
    **dict.fromkeys(("badrecords", "maxrecordbytes", "maxopenbytes", "fingerprint"), _OF_SPARK),
    **dict.fromkeys(("onnewquery", "ongap", "onreplaymismatch"), _OF_SPARK),
    **dict.fromkeys(("txnappid", "txnversion"), "it is for batches of Spark: give the argument writer="),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Columns(NamedTuple):
    """The columns of a store as its user gives them; what is None, or empty, is as the store has it."""

    keys: Mapping[str, str | pa.DataType] | None
    values: Mapping[str, str | pa.DataType] | None
    buckets: int | None
    bucket_by: Sequence[str]
    merge: str | None


def config_of(
    path: str,
    columns: Columns,
    options: Mapping[str, str],
    context: Context,
    *,
    key_provider: str | None,
    has_codec: bool,
) -> StoreConfig:
    """Return the settings of a writer, with further options; with a key provider, what is written is encrypted.

    Raises:
        ConfigError: something does not fit, or an option is an argument of its own, or has no effect.
        SchemaError: a column cannot be stored.
        StorageError, CorruptData: the log cannot be read.
    """
    for name in options:
        if name.lower() in _REFUSED:
            raise ConfigError(f"option {name!r} of a KeyValueStore: {_REFUSED[name.lower()]}")
    encryption = {} if key_provider is None else {"encryption": "aes-gcm", "keyProvider": key_provider}
    settings = {**encryption, **options, "path": path}
    recorded = recorded_definition(settings, context, durable=True)  # a log that is lost is no new store
    if recorded is not None:
        recorded = replace(recorded, sequence=None)  # a store with one is refused when it is opened
    keys = _fields(columns.keys, "key", None if recorded is None else recorded.key_fields)
    values = _fields(columns.values, "value", None if recorded is None else recorded.value_fields)
    if has_codec and [field.type for field in (*keys, *values)] != [_BINARY, _BINARY]:
        raise ConfigError("a codec is for stores with one binary key column and one binary value column")
    defining = {
        "keyColumns": ",".join(field.name for field in keys),
        "bucketBy": ",".join(columns.bucket_by) or None,
        "buckets": None if columns.buckets is None else str(columns.buckets),
        "merge": columns.merge,
    }
    settings |= {name: value for name, value in defining.items() if value is not None}
    config = StoreConfig.from_options(settings, spark_schema_json(pa.schema([*keys, *values])), recorded=recorded)
    if recorded is None or columns.values:
        return config
    # The stored type of a sum of decimals is wider than that of its values, but not than itself.
    schema = pa.schema([*config.definition.key_fields, *recorded.value_fields])
    return replace(config, definition=replace(config.definition, schema=schema))


def _fields(
    types: Mapping[str, str | pa.DataType] | None, otherwise: str, recorded: Sequence[pa.Field] | None
) -> Sequence[pa.Field]:
    """Return columns by Spark's names of their types, or by Arrow's types; else the recorded ones, or a binary one."""
    if not types and recorded is not None:
        return recorded
    fields = []
    for name, kind in (types or {otherwise: _BINARY}).items():
        if isinstance(kind, pa.DataType):
            fields.append(pa.field(name, kind))
            continue
        if not isinstance(kind, str):
            raise TypeError(f"column {name!r}: {kind!r} is no type: it takes Spark's name of one, or one of Arrow")
        field: dict[str, Any] = {"name": name, "type": _SQL_NAMES.get(kind, kind), "nullable": True, "metadata": {}}
        fields += arrow_schema(json.dumps({"type": "struct", "fields": [field]}))
    return fields


def check_writer_name(writer: str) -> None:
    """Raise `ConfigError` for a name that directories cannot have everywhere."""
    if not _NAME.fullmatch(writer):
        raise ConfigError(
            f"writer={writer!r}: a name of at most 100 letters, digits, points, hyphens and underscores is needed, "
            "which begins with a letter or digit. It says who goes on after a restart"
        )


def refuse_application(head: LogState, writer: str) -> None:
    """Raise `ConfigError` if batches of Spark were written with this writer's name as `txnAppId`."""
    # A full table has forgotten the epochs of writers that opened the store long ago.
    if (
        opening_of(head, writer).epoch == 0
        and recorded_window(head, writer) >= 0
        and len(head.tables.get(OPERATORS, ())) < ENTRIES_MAX
    ):
        raise ConfigError(
            f"writer={writer!r}: Spark has written to the store with txnAppId={writer!r}, and its last txnVersion, "
            f"{recorded_window(head, writer)}, would count as a window that is recorded. Take another name as writer"
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
            f"another process has opened the store as writer {writer!r}, in epoch {newest}, and goes on in place of "
            f"this one, which opened it in epoch {epoch}. This call has acknowledged and recorded nothing. If it was "
            "under way while the other process opened the store, that one may have the window: its last_window says "
            "so. End this process"
        )


class _Moved(Exception):
    """The log has windows that are about to be recorded: an earlier try, whose outcome was unknown, is in it."""


@dataclass(frozen=True)
class Recorder:
    """Records what one process writes."""

    log: CommitLog  # of the store
    config: StoreConfig  # settings of the writer; its definition is that of the store
    writer: str  # name of the writer
    epoch: int  # of the process

    def head(self) -> LogState:
        """Return the newest state of the log; raises as `require_epoch` does."""
        head = self.log.refresh()
        require_epoch(head, self.writer, self.epoch)
        return head

    def record(self, number: int, windows: Sequence[Window]) -> int:
        """Record windows up to one, each of them once, and return the last one that the log has then.

        That is another one where an earlier try, whose outcome was unknown, has recorded them. It raises as
        `KeyValueStore.committed` does.
        """
        while (last := recorded_window(self.head(), self.writer)) < number:
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
        job_id = self.log.ids.unique()
        change = StoreChange(tuple(self._staged(job_id, windows)))

        def prepare(head: LogState, _: object) -> Body:
            require_epoch(head, self.writer, self.epoch)
            if recorded_window(head, self.writer) != last:
                raise _Moved
            try:
                body = body_of(self.config, self.log, head, change)
            except (SchemaError, ConfigError) as error:
                raise SchemaError(
                    "the store was defined anew since it was opened, by an overwrite, kv.rebucket or new columns: "
                    f"close it, open it again, and windows that have ended come back. {error}"
                ) from error
            durability = durability_of(self.config.storage.durability, self.log.fs.capabilities)
            metrics = {"rows": sum(run.rows for run in change.runs), "durability": durability}
            return replace(body, metrics=metrics | body.metrics)

        author = JobAuthor(job_id, Transaction(self.writer, number))
        with self.log.lock:
            commit(self.log, author, prepare, self.config.policy)

    def _staged(self, job_id: str, windows: Sequence[Window]) -> list[Add]:
        """Write windows as runs, one for each bucket that they change."""
        config, definition = self.config, self.config.definition
        identity = TaskIdentity(JobIdentity(job_id), 0, 0)
        stage = Stage(self.log.fs, identity, config.storage.durability)
        rows, purges = folded(windows, definition)
        rows_by_bucket = dict(by_bucket(rows, definition))
        if purges:
            rows_by_bucket |= {
                name: rows.slice(0, 0)
                for name in map(bucket_name, range(definition.buckets))
                if name not in rows_by_bucket
            }
        runs = ((name, rows_by_bucket[name].to_batches(), purges) for name in sorted(rows_by_bucket))
        written = config.spool(stage, definition).write_all(runs)
        return [segment_of(run, "", identity.origin(), {}) for run in written]
