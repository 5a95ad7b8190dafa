"""The versions of a directory as changes of a table, in order, up to the last published version."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.checksum import Decoding
from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.formats.partition_paths import path_column_values
from ftfile.log.format import layout
from ftfile.log.format.adds import parts_of
from ftfile.log.format.model import MaintenanceAuthor, StreamAuthor
from ftfile.log.read.snapshot import live_table, take_snapshot
from ftfile.log.read.times import created_ms
from ftfile.operate.export.tables import Exported, ExportedFile, TableChange
from ftfile.rows.spark_types import arrow_schema, recorded_schema
from ftfile.rows.statistics.columns import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Author
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.operate.export.limits import TableLimits
    from ftfile.operate.export.tables import ExportTable


_log = get_logger(__name__)


class Versions:
    """The versions of a directory up to a head; files that a format does not support are refused."""

    def __init__(self, log: CommitLog, head: LogState, limits: TableLimits) -> None:
        self.log, self.head = log, head
        self._limits = limits
        # The head does not contain definitions that only older rows use; snapshots add them.
        self._definitions = dict(head.definitions)
        self._values: dict[tuple[str, str, str], Mapping[str, pa.Scalar]] = {}
        self._file_columns: dict[str, pa.Schema] = {}  # by encoding
        self._warnings: set[str] = set()

    def snapshot(self, version: int) -> Snapshot:
        """Return the snapshot of a version, and remember its definitions."""
        snapshot = take_snapshot(self.log, version, as_recorded=True)
        self._definitions.update(snapshot.definitions)
        return snapshot

    def has_columns(self, version: int) -> bool:
        """Return False if no record up to a version had rows or columns, only openings of writers or positions."""
        if version == self.head.version or self.head.schema is None:
            return self.head.schema is not None
        return self.snapshot(version).schema is not None

    def know(self, version: int, keys: set[str]) -> None:
        """Read the definitions of a version, if some of the keys are unknown."""
        if not self._definitions.keys() >= keys:
            self.snapshot(version)

    def nonce(self, version: int) -> str:
        """Return the nonce of a version's record; empty if the record is no longer kept."""
        if version == self.head.version:
            return self.head.nonce
        record = self.log.read_record(version)
        if record is None:
            return ""
        return record.nonce

    def columns(self, schema: str) -> str:
        """Return the columns of a key as Spark's JSON; raise CorruptData for a schema that ftfile never writes."""
        with Decoding(layout.LOG, "the schema of a version"):
            schema_json: str = self._definitions[schema]
            recorded_schema(schema_json)
            return schema_json

    def encoding(self, key: str) -> dict[str, Any]:
        """Return an encoding, with checks of the fields that exports use; raise CorruptData if they are invalid."""
        with Decoding(layout.LOG, "an encoding of files"):
            encoding: dict[str, Any] = self._definitions[key]
            recorded_schema(encoding["schema"])
            names = [encoding["format"]["name"], *encoding["partitionBy"]]
            if encoding.get("fileName"):
                names.append(encoding["fileName"]["column"])
            if not all(isinstance(name, str) for name in names):
                raise TypeError(f"the names of a format and of columns are {names!r:.200}")
            return encoding

    def file_columns(self, adds: Iterable[Add]) -> list[str]:
        """Return the distinct sets of columns of files, as Spark's JSON."""
        schemas: set[str] = set()
        for key in set(map(attrgetter("encoding"), adds)):
            schemas.add(self.encoding(key)["schema"])
        return sorted(schemas)

    def statistics(self, encoding: str | None) -> Sequence[str]:
        """Return the keys of the columns in files of an encoding whose statistics are recorded."""
        if encoding is None:
            return ()
        definition = self.encoding(encoding)
        keys = dict.fromkeys(definition.get("statistics", ()))
        for name in definition["partitionBy"]:
            keys.pop(key_of((name,)), None)
        return [*keys]

    def partition_by(self, encoding: str) -> list[str]:
        """Return the partition columns of files of an encoding."""
        return [*self.encoding(encoding)["partitionBy"]]

    def partition_columns(self, snapshot: Snapshot) -> list[str]:
        """Return the partition columns of a version, which are the same for all of its rows."""
        some = next(iter(snapshot.adds.values()), None)
        key = self.head.encoding
        if some is not None:
            key = some.encoding
        assert key is not None
        return self.partition_by(key)

    def refuse(self, adds: Iterable[Add], schema: str) -> None:
        """Raise a ConfigError if the format does not support these adds or the columns."""
        columns = self.columns(schema)
        self._limits.refuse_columns(columns)
        parts = parts_of(adds)
        self._limits.refuse_paths(map(attrgetter("final_path"), parts))
        for key, has_filters in {(add.encoding, bool(add.filters)) for add in parts}:
            self._limits.refuse_encoding(self.encoding(key), columns, has_filters=has_filters)

    def warn(self, schema: str) -> None:
        """Log a warning, once, if a reader of the format reads partition values of the returned files wrongly."""
        columns = self.columns(schema)
        for key in sorted({encoding for _, encoding, _ in self._values}):
            warning = self._limits.misread_times(self.encoding(key), columns)
            if warning is not None and warning not in self._warnings:
                self._warnings.add(warning)
                _log.warning("%s", warning)

    def file(self, add: Add, schema: str, *, is_change: bool = True) -> ExportedFile:
        """Return a part of a version with these columns."""
        key = (schema, add.encoding, add.directory_key)
        if key not in self._values:
            directory, stem = layout.directory_of(add.directory_key), layout.stem_of(add.directory_key)
            columns = arrow_schema(self.columns(schema))
            self._values[key] = path_column_values(self.encoding(add.encoding), directory, stem, columns)
        if add.encoding not in self._file_columns:
            self._file_columns[add.encoding] = arrow_schema(self.encoding(add.encoding)["schema"])
        assert add.final_path is not None
        return ExportedFile(
            path=add.final_path,
            size_bytes=add.length,
            rows=add.rows,
            values=self._values[key],
            is_change=is_change,
            statistics=add.statistics,
            columns=self._file_columns[add.encoding],
        )

    def files(self, snapshot: Snapshot, tracker: Tracker | None = None) -> list[ExportedFile]:
        """Return all finished parts of a version, and count them; ConfigError if the format does not support a part."""
        schema = snapshot.schema
        assert schema is not None
        self.refuse(snapshot.adds.values(), schema)
        files: list[ExportedFile] = []
        for adds in live_table(snapshot).with_statistics(self.log.fs):
            parts = parts_of(adds)
            files += [self.file(add, schema) for add in parts]
            if tracker is not None:
                tracker.add(len(parts))
        return files

    def time_ms(self, version: int) -> int:
        """Return the creation time of a version, or of the oldest kept version if later, in ms since 1970 UTC."""
        return created_ms(self.log, max(version, self.head.log_start)) or 0

    def require_own(self, version: int, nonce: str, directory: str) -> None:
        """Refuse to continue an export of another history, such as of a directory whose log was restored.

        Raises:
            AlreadyExists: another export is ahead of this head.
            ConfigError: the version belongs to another history.
        """
        if self.head.version < version <= self.log.refresh().version:
            raise AlreadyExists("export", directory, "another export is ahead")
        is_known: bool | None = version <= self.head.version
        if is_known:
            is_known = self.head.includes(version, nonce)
        if is_known is None and version >= self.head.log_start:
            record = self.log.read_record(version)
            is_known = record is not None and record.nonce == nonce
        if is_known is False:
            raise ConfigError(
                f"{directory!r} is an export of another history: its version {version} differs from the version of "
                "this directory. Delete it to export again"
            )


class _DueVersions(NamedTuple):
    """The versions to export: none if the first one is after the last one."""

    first: int
    last: int
    newest: Exported | None  # of the table


class Exporter:
    """Exports the versions up to a head to a table, as far as their files are published."""

    def __init__(self, versions: Versions, table: ExportTable, context: Context) -> None:
        self._versions, self._table, self._context = versions, table, context

    def plan(self) -> int:
        """Return how many versions `run` would export at most; ConfigError if it would refuse them or the table."""
        first, last, newest = self._find_due()
        if first > last:
            return 0
        whole = self._export_whole(last, 0, "")
        if newest is not None:
            self._table.refuse(whole)
        if newest is None or first < self._versions.head.log_start:
            return 1
        return last + 1 - first

    def run(self, progress: OnProgress | None = None) -> int:
        """Return the number of exported versions; AlreadyExists if another process exports."""
        first, last, newest = self._find_due()
        if newest is not None and newest.version >= self._versions.head.log_start:
            self._follow_up(newest)  # an earlier export may have crashed before this step
        if first > last:
            return 0
        clock = self._context.clock
        # Each file counts twice: when it is described, and when it is written.
        files = Tracker("export", clock, progress, 0, unit="steps")
        if newest is None:
            whole = self._export_whole(last, 0, self._context.ids.unique(), files)
            self._append(whole, files)
            self._versions.warn(whole.exported.schema)
            return 1
        if first < self._versions.head.log_start:
            self._append_difference(newest, last, files)
            return 1
        tracker = Tracker("export", clock, progress, last + 1 - first, unit="versions")
        for version in range(first, last + 1):
            try:
                newest = self._append_version(newest, version, files)
                tracker.add()
            except ConfigError as error:
                if version == last:
                    raise
                self._append_difference(newest, last, files)
                _log.warning(
                    "versions %d to %d become one commit, because some of them cannot be exported: %s",
                    version,
                    last,
                    error,
                )
                return version + 1 - first
        return last + 1 - first

    def _find_due(self) -> _DueVersions:
        """Return the first and the last version to export, and the newest version of the table.

        If nothing is due, the first version is after the last one.
        """
        first, last = 0, last_published(self._versions.head)
        newest = self._table.newest()
        if newest is not None:
            self._versions.require_own(newest.version, newest.nonce, self._table.limits.directory)
            first = newest.version + 1
        if last < self._versions.head.log_start:
            first = last + 1  # no published version is kept: a later one will be published
        elif newest is None and not self._versions.has_columns(last):
            first = last + 1  # a table needs columns
        return _DueVersions(first, last, newest)

    def _append_difference(self, newest: Exported, version: int, files: Tracker) -> Exported:
        """Append one commit that changes the files of the table to the files of a version."""
        whole, before = self._export_whole(version, newest.commit + 1, newest.table, files), self._table.live_paths()
        paths = set(map(attrgetter("path"), whole.adds))
        whole.removes.extend(sorted(before - paths))
        is_described_anew = whole.exported.statistics != newest.statistics
        changed_files = []
        for file in whole.adds:
            if file.path not in before:
                changed_files.append(file)
            elif is_described_anew:
                changed_files.append(replace(file, is_change=False))
        whole.adds[:] = changed_files
        self._append(whole, files)
        self._versions.warn(whole.exported.schema)
        return whole.exported

    def _append_version(self, newest: Exported, version: int, files: Tracker) -> Exported:
        versions = self._versions
        record = versions.log.read_record(version)
        if record is None:
            raise CorruptData(
                self._table.limits.directory,
                f"the record of version {version}",
                "no record",
                "Export again: the log no longer contains it",
            )
        removes = [remove.final_path for remove in record.removes if remove.final_path is not None]
        if any(path.startswith(f"{layout.RETIRED}/") for path in removes):
            # A repair removes files under names that were never used.
            return self._append_difference(newest, version, files)
        schema, partition_by = record.schema or newest.schema, newest.partition_by
        adds = parts_of(record.adds)
        versions.know(version, {schema, record.encoding or schema, *map(attrgetter("encoding"), adds)})
        recorded: Sequence[str] = newest.statistics
        if record.encoding is not None:
            partition_by = versions.partition_by(record.encoding)
            recorded = versions.statistics(record.encoding)
        versions.refuse(adds, schema)
        statistics = self._table.statistics_columns(versions.columns(schema), recorded)
        is_described_anew = statistics != newest.statistics
        is_redefined = is_described_anew or (schema, partition_by) != (newest.schema, newest.partition_by)
        if is_redefined:
            snapshot = versions.snapshot(version)
            versions.refuse(snapshot.adds.values(), schema)
        is_change = record.is_change or not isinstance(record.author, MaintenanceAuthor)
        exported = newest._replace(
            commit=newest.commit + 1,
            version=version,
            nonce=record.nonce,
            schema=schema,
            partition_by=partition_by,
            statistics=statistics,
        )
        new_files = []
        for add in adds:
            # The rows of open files are new to readers when a maintenance operation finishes them.
            new_files.append(versions.file(add, schema, is_change=is_change or bool(add.ranges)))
        if is_described_anew:
            new_files.extend(_earlier_files(versions.files(snapshot), [*new_files]))
        change = TableChange(
            exported=exported,
            operation=_operation(record.author),
            time_ms=versions.time_ms(version),
            table_time_ms=versions.time_ms(0),
            columns=versions.columns(schema),
            is_redefined=is_redefined,
            is_change=is_change,
            file_columns=versions.file_columns(adds),
            adds=new_files,
            removes=removes,
        )
        self._append(change)
        if is_redefined or record.encoding in record.definitions:
            versions.warn(schema)
        return exported

    def _append(self, change: TableChange, files: Tracker | None = None) -> None:
        """Append a commit, and count its files if it may have many."""
        if files is not None:
            files.expect(len(change.adds), 0)
        self._table.append(change, None if files is None else files.add)
        self._follow_up(change.exported)

    def _follow_up(self, exported: Exported) -> None:
        whole = partial(
            self._export_whole, exported.version, exported.commit, table=exported.table, recorded=exported.statistics
        )
        self._table.follow_up(exported, whole)

    def _export_whole(
        self,
        version: int,
        commit: int,
        table: str,
        tracker: Tracker | None = None,
        recorded: Sequence[str] | None = None,
    ) -> TableChange:
        """Return a commit with all live files of a version.

        `recorded` contains the keys of the columns with statistics, by default of the newest files.
        """
        versions = self._versions
        snapshot = versions.snapshot(version)
        if tracker is not None:
            tracker.expect(2 * len(snapshot.adds), 0)
        files, schema = versions.files(snapshot, tracker), snapshot.schema
        assert schema is not None
        columns = versions.columns(schema)
        if recorded is None:
            recorded = versions.statistics(versions.head.encoding)
        exported = Exported(
            commit=commit,
            version=version,
            nonce=versions.nonce(version),
            schema=schema,
            partition_by=versions.partition_columns(snapshot),
            table=table,
            statistics=self._table.statistics_columns(columns, recorded),
        )
        return TableChange(
            exported=exported,
            operation="EXPORT",
            time_ms=versions.time_ms(version),
            table_time_ms=versions.time_ms(0),
            columns=columns,
            is_redefined=True,
            file_columns=versions.file_columns(snapshot.adds.values()),
            adds=files,
            removes=[],
        )


def _earlier_files(files: Iterable[ExportedFile], new_files: Iterable[ExportedFile]) -> Iterator[ExportedFile]:
    """Yield the files except the new ones. Their rows are not new to readers."""
    paths = set(map(attrgetter("path"), new_files))
    for file in files:
        if file.path not in paths:
            yield replace(file, is_change=False)


def last_published(head: LogState) -> int:
    """Return the newest version up to which all files are published; -1 if there is no such version."""
    return min(head.unpublished, default=head.version + 1) - 1


def _operation(author: Author) -> str:
    if isinstance(author, StreamAuthor):
        return "STREAMING UPDATE"
    if isinstance(author, MaintenanceAuthor):
        return author.operation.upper()
    return "WRITE"
