"""Windows of unrecorded changes by key, with reads of these changes and of recorded rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.kv.definition import DELETE, MERGE, OP, SET
from ftfile.kv.fold import fold, fold_values
from ftfile.kv.key_columns import KeyRange, StoredKeys, arrays_named, key_array, overlap, union
from ftfile.kv.operator.codecs import RowMaker
from ftfile.kv.reading.reader import Reader
from ftfile.kv.user_keys import UserKeys
from ftfile.rows.buffers import from_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key
    from ftfile.kv.operator.codecs import Codec
    from ftfile.log.commit_log import CommitLog

    Values = tuple[Any, ...]
    Rows = list[tuple[int, Values]]  # operation and values, new to old; input of `fold_values`

WindowChanges = dict["Key", "KeyChange | Values"]  # plain values are a single set
_NOTHING = object()


@dataclass(slots=True)
class KeyChange:
    """The changes of one key in one window, unless they are a single set."""

    op: int  # `SET` or `DELETE` if older rows of the key do not count; `MERGE` if they count
    rows: list[Values]  # values of the set, if any, then of merges, old to new


@dataclass(slots=True)
class Buffer:
    """The changes since the last window ended, by key: plain values for a single set, else a `KeyChange`.

    A purge deletes the rows of all earlier windows, and the earlier changes of this window.
    """

    changes: WindowChanges = field(default_factory=dict)
    purges: tuple[KeyRange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.purges)

    def put(self, key: Key, row: Values) -> None:
        """Set the values of a key."""
        self.changes[key] = row

    def merge(self, key: Key, row: Values) -> None:
        """Merge values into the values of a key."""
        change = self.changes.get(key)
        if change is None:
            self.changes[key] = KeyChange(MERGE, [row])
        elif isinstance(change, tuple):
            self.changes[key] = KeyChange(SET, [change, row])
        else:
            change.rows.append(row)

    def delete(self, key: Key) -> None:
        """Delete a key."""
        self.changes[key] = KeyChange(DELETE, [])

    def purge(self, start: Key, end: Key | None) -> None:
        """Delete all keys of a range (end exclusive)."""
        remaining: WindowChanges = {}
        for key, change in self.changes.items():
            if key < start or (end is not None and key >= end):
                remaining[key] = change
        self.changes = remaining
        self.purges = union((*self.purges, (start, end)))

    def to_rows(self, definition: StoreDefinition) -> pa.RecordBatch:
        """Return a row for each change, the changes of a key from old to new."""
        keys: list[Key] = [*self.changes]
        rows: list[Any] = [*self.changes.values()]
        ops = np.full(len(rows), SET, np.int8)
        if KeyChange in set(map(type, rows)):
            keys, rows, ops = _list_unfolded(self.changes, (None,) * len(definition.values))
        columns = []
        key_types, value_fields = definition.key_types, definition.value_fields
        for values, kind in zip(_parts(keys, len(key_types)), key_types, strict=True):
            columns.append(key_array(values, kind))
        for values, value_field in zip(_parts(rows, len(value_fields)), value_fields, strict=True):
            columns.append(pa.array(values, value_field.type))
        return pa.RecordBatch.from_arrays([*columns, from_numpy(ops, pa.int8())], schema=row_schema(definition))


@dataclass(slots=True)
class Window:
    """A window that has ended and is not recorded yet."""

    number: int  # ascends from window to window of a writer
    rows: pa.RecordBatch  # see `Buffer.to_rows`
    purges: tuple[KeyRange, ...]  # delete the rows of all earlier windows
    changes: WindowChanges | None = None  # by key; None until first used

    def by_key(self, definition: StoreDefinition) -> WindowChanges:
        """Return the changes by key."""
        if self.changes is None:
            buffer, rows = Buffer(), self.rows
            keys = StoredKeys([rows.column(name) for name in definition.keys])
            values = [rows.column(name).to_pylist() for name in definition.values]
            for row, op in enumerate(rows.column(OP).to_pylist()):
                if op == DELETE:
                    buffer.delete(keys[row])
                else:
                    take = buffer.put if op == SET else buffer.merge
                    take(keys[row], tuple([column[row] for column in values]))
            self.changes = buffer.changes
        return self.changes


def row_schema(definition: StoreDefinition) -> pa.Schema:
    """Return the schema of the rows of windows."""
    return pa.schema([*definition.schema, pa.field(OP, pa.int8(), nullable=False)])


def align_rows(rows: pa.RecordBatch, definition: StoreDefinition) -> pa.RecordBatch:
    """Return rows of windows with the current columns of the store."""
    schema = row_schema(definition)
    if rows.schema == schema:
        return rows
    table = definition.align(pa.Table.from_batches([rows])).combine_chunks()
    return pa.RecordBatch.from_arrays(arrays_named(table, table.column_names), schema=schema)


def fold_windows(windows: Sequence[Window], definition: StoreDefinition) -> tuple[pa.Table, tuple[KeyRange, ...]]:
    """Return the rows of windows, old to new, as one table, and the purges that delete the rows of all earlier runs."""
    tables = []
    purges = []
    for window in windows:
        tables.append(pa.Table.from_batches([window.rows]))
        purges.append(window.purges)
    rows = fold(tables, definition, is_bottommost=False, purges=purges)
    return rows, union(chain.from_iterable(purges))


class _UnfoldedChanges(NamedTuple):
    """Key, values and operation of each row of a window."""

    keys: list[Key]
    rows: list[Values]
    ops: NDArray[np.int8]


def _list_unfolded(changes: WindowChanges, nothing: Values) -> _UnfoldedChanges:
    """Return key, values and operation of each row."""
    keys: list[Key] = []
    rows: list[Values] = []
    ops: list[int] = []
    for key, change in changes.items():
        if isinstance(change, tuple):
            op, change_rows = (SET, [change])
        else:
            op, change_rows = (change.op, change.rows)
        if op == DELETE:
            change_rows = [nothing, *change_rows]
        keys += [key] * len(change_rows)
        rows += change_rows
        ops += [op, *[MERGE] * (len(change_rows) - 1)]
    return _UnfoldedChanges(keys, rows, np.array(ops, np.int8))


def _parts(tuples: list[Any], count: int) -> list[list[Any]]:
    """Return the values of tuples by column, for a number of columns."""
    if count == 1:
        return [[value for (value,) in tuples]]
    if tuples:
        return [*map(list, zip(*tuples, strict=True))]
    return [[] for _ in range(count)]


class KeyChanges(NamedTuple):
    """The unrecorded changes of one key."""

    rows: Rows
    is_whole: bool  # recorded rows of the key do not count


class Pending:
    """Windows that have ended, old to new, and the later changes."""

    def __init__(self, definition: StoreDefinition, windows: list[Window]) -> None:
        self.definition = definition
        self.windows = windows  # not recorded
        self.buffer = Buffer()  # of the window that has not ended

    def end(self, number: int) -> Window:
        """Return the changes since the last window as a window; `take` then adds it to the ended windows."""
        buffer = self.buffer
        return Window(number, buffer.to_rows(self.definition), buffer.purges, buffer.changes)

    def take(self, window: Window) -> None:
        """Append a window to the ended windows unless it is empty, and clear the buffer."""
        if window.rows.num_rows or window.purges:
            self.windows.append(window)
        self.buffer = Buffer()

    def windows_behind(self, number: int) -> list[Window]:
        """Return the windows after a number."""
        return [window for window in self.windows if window.number > number]

    def forget(self, recorded: int) -> None:
        """Drop the windows that are recorded."""
        self.windows = self.windows_behind(recorded)

    def of_key(self, key: Key) -> KeyChanges:
        """Return the changes of a key."""
        rows: Rows = []
        for changes, purges in self._list_new_to_old():
            change = changes.get(key)
            if isinstance(change, tuple):
                return KeyChanges([*rows, (SET, change)], is_whole=True)
            if change is not None:
                for values in reversed(change.rows):
                    rows.append((MERGE, values))
                if change.op != MERGE:
                    if change.op == SET:
                        base = (SET, change.rows[0])
                    else:
                        base = (DELETE, ())
                    rows[len(rows) - (change.op == SET) :] = [base]
                    return KeyChanges(rows, is_whole=True)
            if overlap(purges, key, key):
                return KeyChanges([*rows, (DELETE, ())], is_whole=True)
        return KeyChanges(rows, is_whole=False)

    def _list_new_to_old(self) -> Iterator[tuple[WindowChanges, tuple[KeyRange, ...]]]:
        yield self.buffer.changes, self.buffer.purges
        for window in reversed(self.windows):
            yield window.by_key(self.definition), window.purges


class _Deleted:
    """The type of `DELETED`."""

    def __repr__(self) -> str:
        return "DELETED"

    def __bool__(self) -> bool:
        return False


# The result of `get_uncommitted` for a key that a window has deleted.
DELETED = _Deleted()


class WindowReader(Reader):
    """A reader of a store that also reads the changes of windows, with an optional codec."""

    def __init__(self, log: CommitLog, path: str, pending: Pending, codec: Codec | None) -> None:
        super().__init__(log, path, pending.definition.code)
        definition = pending.definition
        self._pending = pending
        self._codec = codec
        self._user_keys = UserKeys(definition)
        self._to_key: Callable[[Any], Key] = self._user_keys.to_stored
        self._take_row: Callable[[Any], tuple[Any, ...]] = RowMaker(definition.value_fields).make
        if codec is not None:
            self._to_key = lambda key: (_encode_value(codec.key_to_bytes, key),)
            self._take_row = lambda value: (_encode_value(codec.value_to_bytes, value),)

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401
        """Return the committed row of a key, or `default`; see `Reader.get`."""
        if self._codec is None:
            return super().get(key, default)
        stored = self._to_key(key)
        row = super().get(stored, _NOTHING)
        if row is _NOTHING:
            return default
        return self._user_value_of(stored, self._values_of(row))

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return the committed rows of keys; see `Reader.multi_get`."""
        if self._codec is None:
            return super().multi_get(keys)
        stored = [self._to_key(key) for key in keys]
        rows = super().multi_get(stored)
        shown = []
        for key, row in zip(stored, rows, strict=True):
            shown.append(None if row is None else self._user_value_of(key, self._values_of(row)))
        return shown

    def get_uncommitted(self, key: Any) -> Any:  # noqa: ANN401
        """Return the row of a key from only its uncommitted changes.

        For merges into a committed row, return the merged change without the committed row. `DELETED` is returned for a
        deleted key, None without a change.
        """
        stored = self._to_key(key)
        rows, is_whole = self._pending.of_key(stored)
        if is_whole and all(op == DELETE for op, _ in rows):
            return DELETED
        rows = self._widen_rows(rows)
        if rows:
            return self._user_value_of(stored, fold_values(rows, stored, self.definition))
        return None

    def read(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401
        """Return the row of a key from all changes, committed or not; `default` if there is no row."""
        stored = self._to_key(key)
        rows, is_whole = self._pending.of_key(stored)
        rows = self._widen_rows(rows)
        if not is_whole:
            row = super().get(self._user_keys.to_user(stored), _NOTHING)
            if row is not _NOTHING:
                rows = [*rows, (SET, self._values_of(row))]
        values = None
        if rows:
            values = fold_values(rows, stored, self.definition)
        if values is None:
            return default
        return self._user_value_of(stored, values)

    def _values_of(self, row: Any) -> tuple[Any, ...]:  # noqa: ANN401
        if len(self.definition.values) == 1:
            return (row,)
        return tuple(row)

    def _widen_rows(self, rows: Rows) -> Rows:
        """Return changes with the columns of the version that is read: other writers may have appended columns."""
        columns, stored = self._pending.definition.values, self.definition.values
        if stored[: len(columns)] != columns:
            raise ConfigError(
                f"the columns of the store changed from {columns} to {stored}: close the store and open it again"
            )
        more = (None,) * (len(stored) - len(columns))
        if more:
            return [(op, (*values, *more)) for op, values in rows]
        return rows

    def _user_value_of(self, key: Key, values: tuple[Any, ...] | None) -> Any:  # noqa: ANN401
        if self._codec is None or values is None:
            if values is None:
                return None
            return self.view.row_of(values)
        (data,) = key
        assert isinstance(data, bytes)
        return self._codec.from_key_value(data, values[0])


def _encode_value(encode: Callable[[Any], bytes], value: Any) -> bytes:  # noqa: ANN401
    data = encode(value)
    if type(data) is not bytes:
        raise UserCodeError(f"the codec encoded {value!r} as {type(data).__name__}, and bytes are required")
    return data
