"""An ftfile directory in Python: `ftfile.open(path)`."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from ftfile.core.arguments import check_arguments, check_count
from ftfile.core.checksum import Decoding
from ftfile.core.errors import ConfigError, CorruptData, HistoryGone, StorageError
from ftfile.log.directory import check_is_files, store_of
from ftfile.log.format import layout
from ftfile.log.opening import open_log
from ftfile.log.publish import skip_published
from ftfile.log.read.dead_letters import DeadLetter, read_dead_letters
from ftfile.log.read.history import Version, read_history
from ftfile.log.read.snapshot import Snapshot, oldest_readable, take_snapshot
from ftfile.log.read.times import parsed_version_at
from ftfile.read.new_rows import follow_log
from ftfile.read.selection import Selection
from ftfile.read.shares import FinishedFile, finished_files, part_named
from ftfile.rows.moments import with_clock_values
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.value_text import UTC
from ftfile.storage.calls import by_threads
from ftfile.storage.registry import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from ftfile.core.arguments import Access
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.read.selection import ChosenAdd

    Where: TypeAlias = Mapping[str, object] | str | pc.Expression | None
    Rows: TypeAlias = Callable[[ChosenAdd], Iterator[pa.RecordBatch]]


class Directory:
    """Reader of the committed rows of a directory, without Spark. Each call reads the head of the log again."""

    def __init__(self, path: str | os.PathLike[str], access: Access, *, statistics: bool = True) -> None:
        self.path = normalise(os.fspath(path))
        self._log = open_log(path, access)
        self._access = access._replace(storage=dict(access.settings))
        self._uses_statistics = statistics
        self.file_system = self._log.fs

    def __repr__(self) -> str:
        return f"ftfile.open({self.path!r})"

    def require_files(self) -> None:
        """Raise a ConfigError if the directory is a store of keys and values.

        If the log cannot be read, nothing is raised. A later read of rows raises the error, and `verify` reports the
        damage.
        """
        with contextlib.suppress(CorruptData, StorageError):
            check_is_files(self._log.refresh(), self.path)

    def is_store(self) -> bool:
        """Return True for a store of keys and values; False if it is not a store or the log cannot be read."""
        with contextlib.suppress(CorruptData, StorageError):
            return store_of(self._log.refresh()) is not None
        return False

    def version(self) -> int:
        """Return the newest version; -1 if nothing has been committed yet."""
        return self._log.refresh().version

    @check_arguments
    def version_at(self, time: str | datetime) -> int:
        """Return the newest version that was created at or before a time, by the storage's clock.

        A text is in ISO 8601, such as `2024-07-01T12:00:00Z`; without a zone it is UTC.

        Raises:
            ConfigError: `time` is not a time, or is before the oldest version.
        """
        version, head = parsed_version_at(self._log, time), self._log.refresh()
        oldest = oldest_readable(self._log, head)
        if version < oldest:
            raise ConfigError(
                f"version {version} was the newest at this time, and vacuum has deleted it: the oldest remaining "
                f"version is {oldest}"
            )
        return version

    @check_arguments
    def files(
        self, version: int | None = None, limit: int | None = None, *, statistics: bool = False
    ) -> list[FinishedFile]:
        """Return the finished files of a version in the order of their commits.

        Lists each directory of these files once to find missing files. If `limit` selects a small share of the files,
        each file is checked by a separate call instead.

        Args:
            version: by default the newest one.
            limit: the maximum number of files, from the newest commits; None for all files. A lower limit reads less.
            statistics: also return the bounds and the numbers of nulls of columns, as the log contains them.

        Raises:
            ConfigError: the version does not exist, or `limit` is negative.
        """
        return finished_files(self._log, version, limit, statistics=statistics)

    def oldest_version(self) -> int:
        """Return the oldest version whose files are all kept by vacuum; 0 if nothing has been committed.

        `history` may begin earlier, since it also contains versions whose files were deleted.
        """
        return oldest_readable(self._log, self._log.refresh())

    @check_arguments
    def history(self, limit: int | None = None) -> list[Version]:
        """Return the kept commits, oldest first.

        The first commit is the oldest kept record; see `oldest_version` for the versions that can be read.

        Args:
            limit: the maximum number of commits, which are the newest; None for all. No older records are read.

        Raises:
            ConfigError: `limit` is negative.
            CorruptData: the log is damaged.
        """
        return read_history(self._log, limit)

    def time_zone(self) -> str:
        """Return the `timeZone` of the newest writer. Times without an offset in a condition are in this zone."""
        head = self._log.refresh()
        zone: str = UTC if head.encoding is None else head.definitions[head.encoding].get("timeZone", UTC)
        return zone

    @check_arguments
    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the live adds of a version with the definitions that are needed to read them."""
        return take_snapshot(self._log, version)

    def unpublished(self) -> list[Add]:
        """Return the adds of all versions that may not be at their final names yet."""
        head = self._log.refresh()
        skip_published(self._log, head)
        return [*chain.from_iterable(entry.adds for entry in head.unpublished.values())]

    @check_arguments
    def spark_schema(self, version: int | None = None) -> str:
        """Return the rows' schema as Spark's JSON.

        Raises:
            ConfigError: nothing has been committed, so the schema is unknown.
        """
        return self._schema_of(take_snapshot(self._log, version))

    @check_arguments
    def to_arrow(
        self,
        version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Where = None,
        file: str | None = None,
    ) -> pa.Table:
        """Return the rows of a version as a table with its schema, which can be empty. Several threads read the files.

        Files whose partition values or statistics contradict `where` are not opened. From the other Parquet, ORC and
        Arrow files, only the needed columns are read. Row groups of Parquet that cannot match are skipped.

        Args:
            version: the version to read; by default the newest one.
            columns: the columns to return, in this order; None for all. If empty, the table only has a number of rows.
            where: a condition on the rows: values by column, such as `{"month": 7}` or `{"month": [7, 8]}`; a text,
                such as `"month >= 7 AND city IN ('a', 'b')"`; or a `pyarrow.compute.Expression`. None for all rows.
            file: the path of one finished file, as in `files`, to read only its rows. None for all files.

        Raises:
            ConfigError: nothing has been committed; the version, a column or the file does not exist; or `where` is not
                a condition.
            CorruptData: a file differs from the committed file.
            HistoryGone: the version was vacuumed.
        """
        selection, rows = self._reading(version, columns, where, file)
        with self._missing_file_as_history_gone(version):
            batch_lists = by_threads(self.file_system, lambda chosen: list(rows(chosen)), selection.adds())
            batches = chain.from_iterable(batch_lists)
            return pa.Table.from_batches(batches, selection.schema)

    @check_arguments
    def to_batches(
        self,
        version: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        where: Where = None,
        file: str | None = None,
    ) -> pa.RecordBatchReader:
        """Return an iterator over the rows of a version, file by file; see `to_arrow`. Memory holds one row group.

        The result is a `pyarrow.RecordBatchReader`, which DuckDB, Polars and other engines can read directly, once.
        """
        selection, rows = self._reading(version, columns, where, file)

        def read() -> Iterator[pa.RecordBatch]:
            with self._missing_file_as_history_gone(version):
                for chosen in selection.adds():
                    yield from rows(chosen)

        return pa.RecordBatchReader.from_batches(selection.schema, read())

    @check_arguments
    def tail(
        self, rows: int = 10, version: int | None = None, *, columns: Sequence[str] | None = None, where: Where = None
    ) -> pa.Table:
        """Return the last rows of a version, in the order of their commits. Only the newest files are read.

        Args:
            rows: the maximum number of rows.
            version: the version to read; by default the newest one.
            columns: see `to_arrow`.
            where: see `to_arrow`.

        Raises:
            ConfigError, CorruptData, HistoryGone: see `to_arrow`; or `rows` is negative.
        """
        check_count("rows", rows)
        selection, rows_of = self._reading(version, columns, where)
        tail_batches: list[pa.RecordBatch] = []
        missing = rows
        with self._missing_file_as_history_gone(version):
            for chosen in reversed([*selection.adds()] if missing else []):
                batches: list[pa.RecordBatch] = []
                rows_kept = 0
                for batch in rows_of(chosen):
                    batches.append(batch)
                    rows_kept += batch.num_rows
                    while batches and rows_kept - batches[0].num_rows >= missing:
                        rows_kept -= batches.pop(0).num_rows
                tail_batches[:0] = batches
                missing -= rows_kept
                if missing <= 0:
                    break
        table = pa.Table.from_batches(tail_batches, selection.schema)
        return table.slice(max(0, table.num_rows - rows))

    @check_arguments
    def count(self, version: int | None = None, *, where: Where = None) -> int:
        """Return the number of rows of a version for which `where` is true; see `to_arrow`.

        The log contains the number of rows of each file. Files are not read if `where` names only partition columns,
        or if all or none of their rows match by their statistics.

        Raises:
            ConfigError, CorruptData, HistoryGone: see `to_arrow`.
        """
        selection, rows = self._reading(version, (), where)

        def count(chosen: ChosenAdd) -> int:
            if chosen.where is None:
                return chosen.add.rows
            return sum(batch.num_rows for batch in rows(chosen))

        if where is None:
            return sum(chosen.add.rows for chosen in selection.adds())
        with self._missing_file_as_history_gone(version):
            return sum(by_threads(self.file_system, count, selection.adds()))

    @check_arguments
    def dataset(self, version: int | None = None) -> ds.Dataset:
        """Return a `pyarrow.dataset.Dataset` of the files of a version, which engines read in parallel.

        The dataset has the recorded schema, including partition columns, and the partition values of each file. DuckDB,
        Polars, pandas and pyarrow therefore read only the needed files and columns. For a filter, files are also
        excluded by their statistics, like files for a `pyarrow.compute.Expression` in `to_arrow`.

        The dataset stays at its version: later files are not in it. Replaced files are read from their hidden place
        until vacuum deletes them; then engines raise a `FileNotFoundError`.

        Raises:
            ConfigError: nothing has been committed; the version does not exist; or pyarrow cannot read some files.
                These are open or encrypted files, files of a format other than Parquet, ORC and Arrow, or files with
                decimals where the version has floating-point numbers. `to_batches` reads them.
            CorruptData: a file is missing.
            HistoryGone: the version was vacuumed.
        """
        from ftfile.read.arrow_dataset import dataset_of  # noqa: PLC0415 - imports much

        snapshot = take_snapshot(self._log, version)
        schema = recorded_schema(self._schema_of(snapshot))
        with self._missing_file_as_history_gone(version):
            return dataset_of(
                self.file_system,
                self.path,
                snapshot,
                schema,
                is_old=version is not None,
                statistics=self._uses_statistics,
            )

    def follow(
        self, offset: dict[str, Any] | None = None, **options: object
    ) -> Iterator[tuple[dict[str, Any], Iterator[pa.RecordBatch]]]:
        """Yield rows that were not read before, batch by batch, each with the offset after the batch.

        The iterator ends at the head that the log had at the start. Store the offset, plain JSON, together with the
        results of the rows, and pass it to the next call: each row is then read once. Without an offset, all existing
        rows are read first.

        Args:
            offset: an offset that an earlier call yielded.
            options: options of a stream, such as `maxRowsPerTrigger=1000` or `startingVersion="latest"`.

        Raises:
            ConfigError: an option is wrong, or nothing has been committed, so the columns are unknown.
            SourceError: the log cannot be followed from the offset: `HistoryGone`, `AnotherLog`, `ChangedRows`.
        """
        columns = recorded_schema(self._schema_of(self._log.refresh()))
        return follow_log(self._log, self.path, columns=columns, offset=offset, options=options)

    def dead_letters(self) -> Iterator[DeadLetter]:
        """Yield the dead letters of all batches with the reasons. `badRecords=deadLetter` writes them.

        Raises:
            CorruptData: a file of dead letters differs from the committed file, or has more than 128 MiB as JSON, or
                2,000,000 brackets, braces and commas. Dead letters of earlier files have been yielded by then.
        """
        return read_dead_letters(self._log)

    @contextlib.contextmanager
    def _missing_file_as_history_gone(self, version: int | None) -> Iterator[None]:
        """Raise HistoryGone instead of CorruptData if vacuum deleted the files of this version."""
        try:
            yield
        except CorruptData as error:
            oldest = self.oldest_version()
            if version is None or version >= oldest:
                raise
            raise HistoryGone(
                f"version {version} was vacuumed, and {error.path!r} is deleted",
                f"The oldest version with all of its files is {oldest}. To keep versions longer, vacuum with a longer "
                "retention",
            ) from error

    def _reading(
        self, version: int | None, columns: Sequence[str] | None, where: Where, file: str | None = None
    ) -> tuple[Selection, Rows]:
        """Return the selection of a read, and the function that reads the rows of an add."""
        snapshot = take_snapshot(self._log, version)
        if file is not None:
            part = part_named(snapshot, file)
            snapshot = replace(snapshot, adds={part.id: part})
        # Only a condition depends on a time zone. Without one, the log is not read a second time.
        zone = UTC if where is None else self.time_zone()
        where = with_clock_values(where, self._log.clock.now_ms(), zone)
        selection = Selection(
            snapshot,
            recorded_schema(self._schema_of(snapshot)),
            columns=columns,
            where=where,
            time_zone=zone,
            fs=self.file_system if self._uses_statistics else None,
        )
        return selection, partial(selection.rows, self.file_system, is_old=version is not None)

    def _schema_of(self, version: Snapshot | LogState) -> str:
        if version.schema is None:
            raise ConfigError(
                f"no rows have been committed to {self.path!r} yet, so its columns are unknown. Commit rows first; an "
                "empty table with columns is enough"
            )
        with Decoding(layout.LOG, "the schema of a version"):
            schema: str = version.definitions[version.schema]
        return schema
