"""Export: other programs read a directory's newest version as a table of their own format, in the same files."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.attempt.kind_of_directory import refuse_store
from ftfile.commit.format.model import MaintenanceAuthor, StreamAuthor
from ftfile.commit.log.times import created_ms
from ftfile.commit.opening import maintaining
from ftfile.commit.protocol import catch_up
from ftfile.commit.publish import skip_published
from ftfile.commit.read.snapshot import take_snapshot
from ftfile.core.context import SYSTEM
from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData
from ftfile.core.logs import get_logger
from ftfile.exporting.delta import CHECKPOINT_EVERY, LOG, DeltaLog, Exported, Files, table_actions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.commit.format.model import Add, Author
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.read.snapshot import Snapshot
    from ftfile.core.context import Context

__all__ = ("ExportReport", "export")

TRIES = 100
# Delta takes other names in tables that map them, which takes a field id in each file.
_REFUSED_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")
_TYPES = re.compile(
    r"string|byte|short|integer|long|float|double|boolean|binary|date|timestamp|timestamp_ntz|decimal\(\d+,\s*-?\d+\)"
)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export.

    Attributes:
        version: of the directory that readers see now; None where nothing has been committed.
        versions: how many versions were exported by this call.
        open_rows: number of committed rows in open files, which other programs cannot see before these are finished.
        waiting: committed versions that are not exported, as files of the first of them are not published yet.
        dry_run: True if nothing was written.
    """

    version: int | None = None
    versions: int = 0
    open_rows: int = 0
    waiting: int = 0
    dry_run: bool = False


def export(
    path: str | os.PathLike[str],
    to: str = "delta",
    *,
    dry_run: bool = False,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> ExportReport:
    """Write the metadata of another table format beside the files, so that its readers see the newest version.

    With `to="delta"`, `_delta_log` gets a commit for each version since the last export, the first one for all rows
    that are there. Files must be Parquet, without encryption. The table is for reading: programs that know Delta's
    protocol refuse to write to it. Incremental, idempotent, safe beside running queries and other exports, and at any
    crash: a commit is created whole, once. With `dry_run`, it writes nothing, and returns what it would export now.

    Raises:
        ConfigError: `to` is unknown, the path is no ftfile directory, or rows are in it that Delta cannot describe: the
            error names them. Or `_delta_log` is of another program, or of another history of the directory.
        CorruptData: the log, or that of the export, is damaged.
        StorageError: the store failed.
    """
    if to != "delta":
        raise ConfigError(f"to={to!r}: there is an export to 'delta' alone")
    with maintaining("export", path, None, storage, context) as (log, author):
        refuse_store(log.read_on(), os.fspath(path))
        for _ in range(TRIES):
            if dry_run:
                head = log.read_on()
                skip_published(log, head)
            else:
                head, _ = catch_up(log, author)
            exporter = _Exporter(log, head, context)
            try:
                versions = exporter.plan() if dry_run else exporter.run()
            except AlreadyExists:
                continue  # another export is on its way
            last = _last_published(head)
            open_rows = sum(add.rows for add in head.segments.values())
            report = ExportReport(last if last >= 0 else None, versions, open_rows, head.version - last, dry_run)
            if not dry_run:
                _log.info("exported to %s: %s", to, report)
            if report.waiting:
                _log.warning("%d versions wait for files of version %d to be published", report.waiting, last + 1)
            return report
    raise CorruptData(LOG, "a commit that others do not create first", f"{TRIES} of them", "Export again later")


class _Exporter:
    """Exports the versions up to a head to Delta, as far as their files are published."""

    def __init__(self, log: CommitLog, head: LogState, context: Context) -> None:
        self._log, self._head, self._context = log, head, context
        self._table = DeltaLog(log.fs)
        # The head forgets those that only older rows have; snapshots add them.
        self._definitions = dict(head.definitions)

    def plan(self) -> int:
        """Return how many versions `run` would export at most; ConfigError if it would refuse the newest of them."""
        last, newest = _last_published(self._head), self._table.newest()
        if newest is not None:
            self._require_own(newest)
        first = 0 if newest is None else newest.version + 1
        if first > last:
            return 0
        self._files(self._snapshot(last), 0)
        return 1 if newest is None or first < _oldest_kept(self._head) else last + 1 - first

    def run(self) -> int:
        """Return how many versions were exported; AlreadyExists if somebody else exports."""
        last, newest = _last_published(self._head), self._table.newest()
        if newest is None:
            if last < 0:
                return 0
            self._append_all(last)
            return 1
        self._require_own(newest)
        first = newest.version + 1
        if first > last:
            return 0
        if first < _oldest_kept(self._head):
            self._append_difference(newest, last)
            return 1
        for version in range(first, last + 1):
            try:
                newest = self._append_version(newest, version)
            except ConfigError as error:
                if version == last:
                    raise
                self._append_difference(newest, last)
                _log.warning("versions %d to %d are one commit, as not each can be exported: %s", version, last, error)
                return version + 1 - first
        return last + 1 - first

    def _append_all(self, version: int) -> None:
        snapshot, time_ms = self._snapshot(version), self._time_ms(version)
        table, files = self._context.ids.unique(), self._files(snapshot, time_ms)
        actions = [*self._table_actions(snapshot, table), *map(files.add, _parts(snapshot))]
        self._table.append(self._exported(0, snapshot, table), "EXPORT", time_ms, actions)

    def _append_difference(self, newest: Exported, version: int) -> None:
        """Append one commit where the records between are no longer kept."""
        snapshot, time_ms = self._snapshot(version), self._time_ms(version)
        files, before = self._files(snapshot, time_ms), self._table.live_paths()
        now = [files.add(add) for add in _parts(snapshot)]
        paths = {action["add"]["path"] for action in now}
        removes = [files.remove_path(gone) for gone in sorted(before - paths)]
        adds = [action for action in now if action["add"]["path"] not in before]
        exported = self._exported(newest.commit + 1, snapshot, newest.table)
        self._table.append(exported, "EXPORT", time_ms, [*self._table_actions(snapshot, newest.table), *removes, *adds])

    def _append_version(self, newest: Exported, version: int) -> Exported:
        record = self._log.read_record(version)
        if record is None:
            raise CorruptData(LOG, f"the record of version {version}", "none", "Export again: it is no longer kept")
        schema, partition_by = record.schema or newest.schema, newest.partition_by
        adds = [add for add in record.adds if add.kind == "part"]
        if not self._definitions.keys() >= {schema, record.encoding or schema, *(add.encoding for add in adds)}:
            self._snapshot(version)
        if record.encoding is not None:
            partition_by = self._definitions[record.encoding]["partitionBy"]
        time_ms = self._time_ms(version)
        is_change = not isinstance(record.author, MaintenanceAuthor) or bool(
            record.overwrite or record.restored is not None or not record.adds
        )
        files = Files(self._definitions, self._definitions[schema], time_ms)
        self._refuse(adds, schema)
        actions: list[dict[str, Any]] = []
        if (schema, partition_by) != (newest.schema, newest.partition_by):
            self._refuse(self._snapshot(version).adds.values(), schema)
            actions += table_actions(self._definitions[schema], partition_by, newest.table, self._time_ms(0))
        actions += [files.remove(each, is_change=is_change) for each in record.removes if each.kind == "part"]
        # The rows of open files are new to readers when a maintenance operation finishes them.
        actions += [files.add(add, is_change=is_change or bool(add.ranges)) for add in adds]
        exported = Exported(newest.commit + 1, version, record.nonce, schema, partition_by, newest.table)
        self._table.append(exported, _operation(record.author), time_ms, actions)
        if exported.commit % CHECKPOINT_EVERY == 0:
            self._write_checkpoint(exported, time_ms)
        return exported

    def _write_checkpoint(self, exported: Exported, time_ms: int) -> None:
        snapshot = self._snapshot(exported.version)
        files = self._files(snapshot, time_ms)
        adds = [files.add(add, is_change=False) for add in _parts(snapshot)]
        self._table.write_checkpoint(exported.commit, [*self._table_actions(snapshot, exported.table), *adds])

    def _exported(self, commit: int, snapshot: Snapshot, table: str) -> Exported:
        assert snapshot.schema is not None
        nonce = self._head.nonce
        if snapshot.version != self._head.version:
            record = self._log.read_record(snapshot.version)
            nonce = "" if record is None else record.nonce
        return Exported(commit, snapshot.version, nonce, snapshot.schema, self._partition_by(snapshot), table)

    def _require_own(self, newest: Exported) -> None:
        """Refuse to go on after an export of another history, such as of a directory whose log was restored."""
        if newest.version > self._head.version and newest.version <= self._log.read_on().version:
            raise AlreadyExists("export", LOG, "another export is further")
        is_known: bool | None = newest.version <= self._head.version
        if is_known:
            is_known = self._head.includes(newest.version, newest.nonce)
        if is_known is None and newest.version >= self._head.log_start:
            record = self._log.read_record(newest.version)
            is_known = record is not None and record.nonce == newest.nonce
        if is_known is False:
            raise ConfigError(
                f"{LOG!r} is an export of another history: its version {newest.version} is not that of this directory. "
                "Delete it to export anew"
            )

    def _files(self, snapshot: Snapshot, time_ms: int) -> Files:
        assert snapshot.schema is not None
        self._refuse(snapshot.adds.values(), snapshot.schema)
        return Files(self._definitions, self._definitions[snapshot.schema], time_ms)

    def _snapshot(self, version: int) -> Snapshot:
        """Return a version with what is live, whose definitions are known from then on."""
        snapshot = take_snapshot(self._log, version, as_recorded=True)
        self._definitions.update(snapshot.definitions)
        return snapshot

    def _table_actions(self, snapshot: Snapshot, table: str) -> list[dict[str, Any]]:
        assert snapshot.schema is not None
        schema = self._definitions[snapshot.schema]
        return table_actions(schema, self._partition_by(snapshot), table, self._time_ms(0))

    def _partition_by(self, snapshot: Snapshot) -> list[str]:
        """Return the partition columns of a version, which all of its rows have."""
        some = next(iter(snapshot.adds.values()), None)
        key = some.encoding if some is not None else self._head.encoding
        assert key is not None
        columns: list[str] = self._definitions[key]["partitionBy"]
        return columns

    def _refuse(self, adds: Iterable[Add], schema: str) -> None:
        """Raise a ConfigError for what Delta cannot say of these adds, or of the columns."""
        definitions = self._definitions
        _refuse_columns(json.loads(definitions[schema]))
        for key, has_filters in {(add.encoding, bool(add.filters)) for add in adds if add.kind == "part"}:
            _refuse_encoding(definitions[key], definitions[schema], has_filters=has_filters)

    def _time_ms(self, version: int) -> int:
        return created_ms(self._log, max(version, self._head.log_start)) or 0


def _oldest_kept(head: LogState) -> int:
    return head.log_start


def _last_published(head: LogState) -> int:
    return min(head.unpublished, default=head.version + 1) - 1


def _parts(snapshot: Snapshot) -> list[Add]:
    return [add for add in snapshot.adds.values() if add.kind == "part"]


def _operation(author: Author) -> str:
    if isinstance(author, StreamAuthor):
        return "STREAMING UPDATE"
    return author.operation.upper() if isinstance(author, MaintenanceAuthor) else "WRITE"


def _refuse_columns(schema: dict[str, Any]) -> None:
    for field in schema["fields"]:
        if _REFUSED_IN_NAMES.search(field["name"]):
            raise ConfigError(
                f"column {field['name']!r}: Delta takes no blank and none of ,;{{}}()= in a name: rename it"
            )
        if (kind := _unknown_type(field["type"])) is not None:
            raise ConfigError(f"column {field['name']!r} is of type {kind}, which Delta does not have")


def _unknown_type(kind: Any) -> str | None:  # noqa: ANN401 - JSON
    """Return the name of a type in one, in Spark's JSON, that Delta does not have."""
    if isinstance(kind, str):
        return None if _TYPES.fullmatch(kind) else kind
    inner = [kind[key] for key in ("elementType", "keyType", "valueType") if key in kind]
    inner += [field["type"] for field in kind.get("fields", ())]
    return next((found for each in inner if (found := _unknown_type(each)) is not None), None)


def _refuse_encoding(encoding: Mapping[str, Any], schema: str, *, has_filters: bool) -> None:
    form = encoding["format"]
    if form["name"] != "parquet":
        raise ConfigError(f"files are {form['name']}, and a Delta table has Parquet alone")
    if has_filters or form.get("encryptionKeyId") is not None:
        raise ConfigError("files are encrypted, or went through filters, which Delta's readers cannot undo")
    if encoding.get("fileName"):
        raise ConfigError(
            f"column {encoding['fileName']['column']!r} is in the names of files alone, where Delta's readers do not "
            "look: write it into a partition column"
        )
    now = {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
    for field in json.loads(encoding["schema"])["fields"]:
        if now.get(field["name"], field["type"]) != field["type"]:
            raise ConfigError(
                f"column {field['name']!r} is {now[field['name']]}, and older files have it as {field['type']}, which "
                "a Delta table has no place for: an overwrite with all rows writes them anew"
            )
