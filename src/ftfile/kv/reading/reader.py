"""The reader of a store, and `kv.open(path)`, which returns it."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.arguments import Access, check_arguments
from ftfile.core.errors import ConfigError, CorruptData, NotFound, StaleFiles
from ftfile.core.per_process import PerProcess
from ftfile.kv.definition import FOUND, StoreDefinition
from ftfile.kv.fold import SortedRows, windows_of
from ftfile.kv.hashing import buckets_of, hash_rows, rows_by_number
from ftfile.kv.key_columns import sorted_by
from ftfile.kv.merge_functions import code_of
from ftfile.kv.planning.runs import definition_of_runs, segments_of
from ftfile.kv.reading.bucket import batch_of, in_order, schema_to_show
from ftfile.kv.reading.levels import Sources, open_parts
from ftfile.kv.reading.view import StoreStats, View, stats_of, view_of
from ftfile.kv.run.pages import Cache
from ftfile.kv.run_files import OpenFiles
from ftfile.kv.user_keys import NO_PYTHON_VALUE, chosen_columns, key_columns_of, python_values, require_keys
from ftfile.log.directory import check_is_store
from ftfile.log.opening import NO_ROWS, NO_STORE, open_log
from ftfile.log.read.dead_letters import read_dead_letters
from ftfile.log.read.history import read_history
from ftfile.log.read.snapshot import take_snapshot
from ftfile.log.read.times import parsed_version_at
from ftfile.rows.buffers import bools_from, from_numpy, is_valid
from ftfile.storage.calls import parallel
from ftfile.storage.registry import normalise

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments
    from ftfile.kv.key_columns import Key
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.reading.bucket import Bucket
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.read.dead_letters import DeadLetter
    from ftfile.log.read.history import Version
    from ftfile.log.state import LogState


_SCAN_BYTES = 32 << 20  # for all runs of a scan together; each run holds at least one block
# For fewer keys of a bucket, single reads are faster if a storage call takes no longer than starting a thread.
_FEW_KEYS = 1024

CACHE = PerProcess(lambda: Cache(256 << 20), in_fork=lambda cache: Cache(cache.capacity_bytes))


class Reader:
    """Reads a store as of one version. Thread-safe; only `refresh` changes the version.

    A key is a value, or a tuple with one value for each key column. A row is the value of the only value column, or a
    named tuple of all value columns. In addition to its documented errors, every call that reads rows raises:

    - StaleFiles: the version is no longer kept: call `refresh`.
    - CorruptData: a run is damaged; the error names file and block. Other keys can still be read.
    - ConfigError: a class merges rows, and `merge` of `kv.open` does not name it.
    - EncodingError, UserCodeError: the values of a key cannot be merged.
    - StorageError: the storage failed.

    Attributes:
        path: of the store.
        log: of the store, for internal use.
        view: the version with its buckets and runs, for internal use.
    """

    def __init__(self, log: CommitLog, path: str, code: Collection[str] = ()) -> None:
        """Read the head of an open log, for a caller who has named some classes; see `open_store` for errors."""
        self.path = path
        self.log = log
        self._code = code
        self._files = OpenFiles(log.fs)
        self._lock = threading.Lock()
        self.view = self._view_of_head(None)

    def __repr__(self) -> str:
        return f"kv.open({self.path!r}, version={self.version})"

    def __enter__(self) -> Reader:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def version(self) -> int:
        """Return the version that is read."""
        return self.view.version

    @property
    def definition(self) -> StoreDefinition:
        """Return keys, columns, buckets and merge functions of the store."""
        return self.view.definition

    def refresh(self) -> int:
        """Switch to the newest version, and return it; running reads finish with the previous version."""
        with self._lock:
            before, self.view = self.view, self._view_of_head(self.view)
            _release(before, self.view)
            return self.view.version

    @check_arguments
    def at(self, version: int) -> Reader:
        """Return a reader of another version, which shares files and cache with this reader.

        Raises:
            ConfigError: the version does not exist, or is no longer kept.
        """
        snapshot = take_snapshot(self.log, version)
        adds = segments_of(snapshot.adds.values())
        definition = definition_of_runs(adds, snapshot.definitions) or self._definition_at(self.log.refresh())
        definition = definition.naming(self._code)
        if snapshot.schema is not None:
            # No run may have the columns that were added last.
            definition = definition.with_columns(snapshot.definitions[snapshot.schema])
        reader = object.__new__(Reader)
        reader.path, reader.log, reader._code = self.path, self.log, self._code
        reader._files, reader._lock = self._files, threading.Lock()
        reader.view = view_of(version, adds, Sources(self._files, CACHE.here, definition), self.view)
        return reader

    def close(self) -> None:
        """Remove its data from the cache; idempotent. The reader can still be used."""
        _release(self.view, None)

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401 - values of the user
        """Return the row of a key, or `default` if the key has no row.

        Raises:
            TypeError: the type of a value does not match its key column.
            ConfigError: the number of values differs from the number of key columns; a value is out of its column's
                range; or Python cannot represent a value of the row (a day after the year 9999, a string that is not
                UTF-8).
        """
        view = self.view
        try:
            return view.get(key, default)
        except NotFound as error:
            raise self._error_of_gone(error) from error
        except NO_PYTHON_VALUE:  # of one of the merged rows, maybe not of the result
            return self._user_rows(view, [key], default)[0]

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return the rows of keys, in key order, None for a key without a row; missing data is fetched in parallel.

        Raises:
            TypeError: `keys` is not a list of keys; see also `get`.
            ConfigError: see `get`.
        """
        require_keys(keys)
        keys, view = [*keys], self.view
        if self.log.fs.capabilities.concurrency == 1 and len(keys) <= _FEW_KEYS * len(view.buckets):
            with self._missing_file_as_stale(), suppress(*NO_PYTHON_VALUE):
                return [view.get(key, None) for key in keys]
        return self._user_rows(view, keys, None)

    def _user_rows(self, view: View, keys: Sequence[Any], default: Any) -> list[Any]:  # noqa: ANN401
        """Return the rows of keys, in key order, or the default for keys without a row."""
        user_rows: list[Any] = [default] * len(keys)
        for numbers, rows in self._looked_up(view, view.keys.columns_of(keys), view.definition.values):
            row_keys = [keys[number] for number in numbers.tolist()]
            columns = []
            for name in rows.column_names:
                columns.append(python_values(name, rows[name], row_keys))
            values = zip(*columns, strict=True) if columns else repeat(())
            for number, stored_row in zip(numbers.tolist(), values, strict=False):
                user_rows[number] = view.row_of(stored_row)
        return user_rows

    @check_arguments
    def lookup(
        self, keys: pa.Array | pa.ChunkedArray | pa.Table | pa.RecordBatch, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return a row for each key, in key order: key columns, value columns, and whether the key has a row.

        Keys may repeat. If a key has no row or contains a null, all value columns are null, and `_found` is False.

        Args:
            keys: an array for one key column, else a table with the key columns; other columns are ignored.
            columns: the value columns to return; None for all.

        Raises:
            TypeError: `keys` is not Arrow data, or `columns` is not a list of strings.
            ConfigError: a column is missing, named twice, or of another type.
        """
        view = self.view
        definition = view.definition
        shown = chosen_columns(columns, definition.values, "the value columns of the store are")
        batch = key_columns_of(keys, definition)
        numbers = np.flatnonzero(np.logical_and.reduce([*map(is_valid, batch.columns)]))
        if len(numbers) == batch.num_rows:
            complete_keys = batch
        else:
            complete_keys = batch.take(from_numpy(numbers, pa.int64()))
        places = [numbers[:0]]
        tables = [pa.Table.from_batches([], pa.schema([*map(definition.schema.field, shown)]))]
        for indices, rows in self._looked_up(view, complete_keys, shown):
            places.append(numbers[indices])
            tables.append(rows)
        has_row, value_columns = in_order(batch.num_rows, np.concatenate(places), pa.concat_tables(tables))
        names = [*definition.keys, *shown, FOUND]
        return pa.table([*batch.columns, *value_columns, bools_from(has_row)], names=names)

    def _looked_up(self, view: View, keys: pa.RecordBatch, columns: Sequence[str]) -> list[tuple[np.ndarray, pa.Table]]:
        """Return, for each bucket, the indexes of the keys that have rows, and the rows; no key contains a null."""
        hashes = hash_rows(keys.columns)
        definition, parts = view.definition, hashes
        if definition.bucket_by != definition.keys:
            parts = hash_rows(keys.select(definition.bucket_by).columns)
        by_bucket = rows_by_number(buckets_of(parts, definition.buckets))

        def read(bucket: int) -> tuple[np.ndarray, pa.Table]:
            indices = by_bucket[bucket]
            places, rows = view.buckets[bucket].lookup(keys.take(from_numpy(indices, pa.int64())), hashes[indices])
            return indices[places], rows.select(columns)

        with self._missing_file_as_stale():
            return parallel(self.log.fs, read, [bucket for bucket in by_bucket if bucket in view.buckets])

    @check_arguments
    def scan(
        self,
        start: Any = None,  # noqa: ANN401 - a value or tuple of the user
        end: Any = None,  # noqa: ANN401
        columns: Sequence[str] | None = None,
        *,
        buckets: Collection[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a key range (end exclusive), sorted by key, in bounded memory.

        All rows are of the version at the time of the call, even if `refresh` is called meanwhile.

        Args:
            start: a key, or a tuple of its first values; None for the first key.
            end: a key, or a tuple of its first values; None for no end.
            columns: the columns to return, in this order; None for all.
            buckets: numbers of the buckets to read; None for all.

        Raises:
            TypeError, ConfigError: see `get`; or a column or bucket does not exist, or a column is named twice.
        """
        first = behind = None
        if start is not None:
            first = self.view.keys.prefix(start)
        if end is not None:
            behind = self.view.keys.prefix(end)
        return self.scan_range(first, behind, columns, buckets)

    @check_arguments
    def scan_range(
        self,
        start: Key | None,
        end: Key | None,
        columns: Sequence[str] | None = None,
        buckets: Collection[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows between stored keys, or prefixes of stored keys, as `scan` does."""
        view = self.view
        names = chosen_columns(columns, view.definition.schema.names, "the store has the columns")
        if buckets is None:
            buckets = view.buckets.keys()
        missing = []
        for number in buckets:
            if not 0 <= number < view.definition.buckets:
                missing.append(number)
        if missing:
            raise ConfigError(f"buckets {missing}: the store has {view.definition.buckets} buckets, numbered from 0")
        chosen = [bucket for number, bucket in sorted(view.buckets.items()) if number in buckets]
        return self._rows(view, chosen, (start or None, end), names)

    @check_arguments
    def preload(self, buckets: Collection[int]) -> None:
        """Open the runs of buckets in parallel before each bucket is scanned; see `open_parts`."""
        view = self.view
        parts = []
        for number in buckets:
            if number in view.buckets:
                parts += view.buckets[number].parts_between(None, None)
        with self._missing_file_as_stale():
            open_parts(parts, view.sources)

    def stats(self) -> StoreStats:
        """Return the numbers of runs, rows and bytes of the version, and of due jobs at the newest version."""
        return stats_of(self.view, self.log.refresh(), CACHE.here)

    @check_arguments
    def history(self, limit: int | None = None) -> list[Version]:
        """Return the commits that are kept, oldest first, independent of the version that is read.

        Args:
            limit: maximum number of commits, the newest ones; None for all. No more records are read.

        Raises:
            ConfigError, CorruptData: `limit` is negative, the log is damaged.
        """
        return read_history(self.log, limit)

    def dead_letters(self) -> Iterator[DeadLetter]:
        """Yield the dead letters of all batches, with the reason of each (see `badRecords=deadLetter`).

        Raises:
            CorruptData: a file of dead letters differs from the committed file, or a dead letter has more than 128 MiB
                as JSON, or 2,000,000 brackets, braces and commas. Earlier dead letters are yielded first.
        """
        return read_dead_letters(self.log)

    def runs(self) -> list[Run]:
        """Return the runs of the version, with their keys and sizes."""
        return self.view.runs

    def _rows(
        self, view: View, buckets: Sequence[Bucket], bounds: tuple[Key | None, Key | None], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        window_bytes = _SCAN_BYTES // max(len(buckets), 1)
        start, end = bounds
        sources, parts = [], []
        for bucket in buckets:
            sources.append(bucket.scan(start, end, columns, window_bytes))
            parts += bucket.parts_between(start, end)
        keys = view.definition.keys
        with self._missing_file_as_stale():
            open_parts(parts, view.sources)
            if len(sources) == 1:
                for batch in sources[0]:
                    yield batch.select(columns)
                return
            schema = schema_to_show(view.definition, columns)
            for window in windows_of([SortedRows(source, schema, len(keys)) for source in sources], _SCAN_BYTES):
                rows = pa.concat_tables(window)
                if rows.num_rows:
                    yield batch_of(sorted_by(rows, keys)).select(columns)

    def _view_of_head(self, before: View | None) -> View:
        head = self.log.refresh()
        if before is not None and before.version == head.version:
            return before
        check_is_store(head, self.path)
        sources = Sources(self._files, CACHE.here, self._definition_at(head))
        return view_of(head.version, head.segments.values(), sources, before)

    def _definition_at(self, head: LogState) -> StoreDefinition:
        if head.encoding is None:
            raise ConfigError(f"{self.path!r} is {NO_ROWS}")
        return StoreDefinition.from_json(head.definitions[head.encoding]["store"]).naming(self._code)

    @contextmanager
    def _missing_file_as_stale(self) -> Iterator[None]:
        try:
            yield
        except NotFound as error:
            raise self._error_of_gone(error) from error

    def _error_of_gone(self, error: NotFound) -> StaleFiles | CorruptData:
        """Return the error for a missing file."""
        if any(add.path == error.path for add in self.log.refresh().segments.values()):
            return CorruptData(
                error.path, "a file with runs", "none", "Another program deleted it: restore it from a copy"
            )
        return StaleFiles(
            f"version {self.version} of {self.path!r} is no longer kept: vacuum has deleted {error.path!r}. Read a "
            "newer version with refresh(), or keep versions longer with the option `grace`"
        )


def _release(before: View, after: View | None) -> None:
    """Remove the data of parts that only the first view contains from the cache."""
    if after is None:
        live_ids = set()
    else:
        live_ids = {*map(id, after.all_parts)}
    for part in before.all_parts:
        if id(part) not in live_ids:
            part.release()


def open_store(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    merge: str | Mapping[str, str] | None = None,
    cache_bytes: int | None = None,
    **access: Unpack[AccessArguments],
) -> Reader:
    """Return a reader of a store, at its newest version by default. Writes nothing.

    Args:
        path: a URL or a local path; see `ftfile.open`.
        version: the version to read.
        timestamp: read the newest version created at or before this time, by the storage's clock: a datetime, or ISO
            8601 text; without a zone it is UTC.
        merge: the option `merge` of the writers, required if it names your own classes: a class is never imported only
            because a directory names it.
        cache_bytes: capacity of the cache of all readers of this process, from now on; 256 MiB by default.
        **access: how the store is opened, as `ftfile.open` opens a directory.

    Raises:
        RolledBack: the newest version is before `at_least_version`; `refresh` raises it, too.
        ConfigError: the store or the version does not exist, or its keys are unknown.
        CorruptData: the log is damaged.
        StorageError: the storage failed.
    """
    if version is not None and timestamp is not None:
        raise ConfigError("version and timestamp both select a version: give only one of them")
    if cache_bytes is not None and cache_bytes <= 0:
        raise ConfigError(f"cache_bytes={cache_bytes}: it must be positive")
    log = open_log(path, Access.of(access), NO_STORE)
    if cache_bytes is not None:
        CACHE.here.resize(cache_bytes)
    reader = Reader(log, normalise(os.fspath(path)), code_of(merge))
    if timestamp is not None:
        version = parsed_version_at(log, timestamp)
    if version is None:
        return reader
    return reader.at(version)
