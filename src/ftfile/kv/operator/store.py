"""`KeyValueStore`, a store that one process writes by windows, without Spark."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

from ftfile.core.arguments import Access, check_arguments
from ftfile.core.errors import CallOrder, ConfigError, WindowOrder
from ftfile.core.logs import get_logger
from ftfile.core.per_process import PerProcess
from ftfile.kv.operator.codecs import Codec
from ftfile.kv.operator.opening import open_writer
from ftfile.kv.operator.recording import StoreColumns, check_writer_name, config_of
from ftfile.kv.operator.upkeep import Upkeep, keep_up
from ftfile.kv.operator.windows import Buffer, Pending, WindowReader
from ftfile.kv.user_keys import require_range
from ftfile.log.wal import recorded_window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments
    from ftfile.kv.operator.windows import Window
    from ftfile.kv.reading.view import View


WINDOW_MAX = (1 << 63) - 1  # 64 bits, because other programs may read the number from the log

_CLOSED = "the store is closed: open it again"
_INHERITED = (
    "the store was opened by another process, of which this one is a copy (os.fork, or a pool of multiprocessing): "
    "open it in this process, as another writer"
)

_log = get_logger(__name__)


class _ClosedBuffer(Buffer):
    """Has no effect."""

    def put(self, *_: object, **__: object) -> NoReturn:
        raise ConfigError(_CLOSED)

    merge = delete = purge = put


class _InheritedBuffer(Buffer):
    """The changes of a store in a forked process."""

    def put(self, *_: object, **__: object) -> NoReturn:
        raise CallOrder(_INHERITED)

    merge = delete = purge = put


class _InheritedView:
    """The version of a store in a forked process."""

    def __getattr__(self, name: str) -> NoReturn:
        raise CallOrder(_INHERITED)


class KeyValueStore(WindowReader):
    """A store that one process writes, as one *writer*, by windows or by single commits. Not thread-safe.

    Changes are in memory until `end_window`, which makes them durable. `committed` records all windows up to a number
    exactly once; from then on, readers see them. `get`, `multi_get`, `lookup` and `scan` read committed rows;
    `get_uncommitted` reads uncommitted changes; `read` reads both::

        with KeyValueStore("/data/counts", writer="counter", keys={"word": "string"}, values={"n": "long"},
                           merge="sum", restore=checkpoint) as store:
            store.begin_window(window)
            for word in words:
                store.merge(word, 1)
            store.end_window()
            ...
            store.committed(window)

    Opening the store creates it if necessary, and records that this process writes as `writer`. After a crash, a new
    process continues as the same writer. Its windows that had ended are restored, all or up to `restore`. It fences the
    previous process, which raises `Fenced` from then on.

    Args:
        path: a URL or a local path; see `ftfile.open`.
        writer: a name that stays the same over restarts, and is unique among the writers of the store.
        keys: the types of the key columns, by name: Spark or SQL type names, or Arrow types. This argument, and the
            next four, may be omitted if the store exists. The default of a new store is `{"key": "binary"}`.
        values: the types of the value columns, in tuple order; default `{"value": "binary"}`. With `{}`, the store
            contains only keys, and its rows are `()`.
        buckets: a power of two; default 16.
        bucket_by: key columns whose hash selects a row's bucket; default all.
        merge: the merge function of each column, by name, default `last`; or a text in the syntax of the option
            `merge`.
        codec: converts the user's keys and values to bytes; requires one binary key column and one binary value column.
        restore: the last window to restore; later windows are permanently discarded. None for all.
        expect_window: a window with changes that is known to have ended, such as one in the source's checkpoint. If
            neither it nor a later window exists, opening fails. Not with `restore`.
        maintenance: when runs are compacted and unused files deleted: in a thread after commits (`background`), within
            commits (`inline`), or not by this process (`none`).
        options: further options of `format("ftkv")`, such as `compression`; not options that are arguments here, or
            only apply to batches of Spark.
        **access: how the store is opened, as `ftfile.open` opens a directory. With a `key_provider`, a new store is
            encrypted; commits also check `at_least_version`.

    Raises:
        RolledBack: the newest version is before `at_least_version`; nothing was written.
        ConfigError: the arguments are invalid, or contradict an existing store.
        WindowOrder: windows after `restore` are recorded.
        SchemaError: the store was redefined, and ended windows do not fit; they stay. See `kv.read_windows`.
        CorruptData: the log, or an ended window, is damaged; or windows up to `expect_window` are missing.
        StorageError: the storage failed.

    Attributes:
        writer: the name.
        last_window: the last window that has ended, or is recorded; -1 for none.
        recorded_window: the last window that is recorded; -1 for none.
    """

    @check_arguments
    def __init__(  # noqa: PLR0913 - all by name
        self,
        path: str | os.PathLike[str],
        *,
        writer: str,
        keys: Mapping[str, str | pa.DataType] | None = None,
        values: Mapping[str, str | pa.DataType] | None = None,
        buckets: int | None = None,
        bucket_by: Sequence[str] = (),
        merge: str | Mapping[str, str] | None = None,
        codec: Codec | None = None,
        restore: int | None = None,
        expect_window: int | None = None,
        maintenance: Literal["background", "inline", "none"] = "background",
        options: Mapping[str, str] | None = None,
        **access: Unpack[AccessArguments],
    ) -> None:
        check_writer_name(writer)
        _check_windows(restore, expect_window)
        if codec is not None and (isinstance(codec, type) or not isinstance(codec, Codec)):
            raise TypeError(f"codec={codec!r}: it must be a codec, such as Pairs(Text(), Json()), or None")
        if maintenance not in {"background", "inline", "none"}:
            raise ConfigError(f"maintenance={maintenance!r}: it must be background, inline or none")
        columns = StoreColumns(keys, values, buckets=buckets, bucket_by=bucket_by, merge=merge)
        place = Access.of(access)
        config = config_of(os.fspath(path), columns, options or {}, place, has_codec=codec is not None)
        self._recorder, self._wal, windows = open_writer(
            config, writer, context=place.context, restore=restore, expect_window=expect_window
        )
        config, log = self._recorder.config, self._recorder.log
        self.writer = writer
        self.recorded_window = recorded_window(self._recorder.head(), writer)
        self.last_window = self._last_window_of(windows, restore)
        super().__init__(log, config.path, Pending(config.definition, windows), codec)
        self._begun: int | None = None
        self._is_open = True
        self._is_inherited = False
        work = None
        if maintenance != "none":
            work = functools.partial(keep_up, log, config)
        self._upkeep = Upkeep(work, in_background=maintenance == "background")
        _stores.here.add(self)

    def __enter__(self) -> KeyValueStore:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __repr__(self) -> str:
        return f"KeyValueStore({self.path!r}, writer={self.writer!r}, last_window={self.last_window})"

    # ------------------------------------------------------------------------------------------------ changes

    def put(self, key: Any, value: Any) -> None:  # noqa: ANN401 - the user's
        """Set the row of a key.

        Args:
            key: a value, or a tuple with a value for each key column.
            value: a value, or a tuple or dict with the values of several value columns.

        Raises:
            TypeError, ConfigError: see `get`.
            EncodingError: the type of a value does not match its column.
        """
        self._pending.buffer.put(self._to_key(key), self._take_row(value))

    def merge(self, key: Any, value: Any) -> None:  # noqa: ANN401
        """Merge a row into the row of a key, with the store's merge functions; raises the same errors as `put`."""
        self._pending.buffer.merge(self._to_key(key), self._take_row(value))

    def delete(self, key: Any) -> None:  # noqa: ANN401
        """Delete the row of a key, if there is one; raises the same errors as `put`."""
        self._pending.buffer.delete(self._to_key(key))

    @check_arguments
    def purge(
        self,
        start: Any = None,  # noqa: ANN401
        end: Any = None,  # noqa: ANN401
        prefix: tuple[Any, ...] = (),
        *,
        everything: bool = False,
    ) -> None:
        """Delete all rows in a key range (end exclusive); later changes are kept.

        Args:
            start: a key, or a tuple of its first values; None for the first key.
            end: a key, or a tuple of its first values; None for no end.
            prefix: the first values of the keys to delete; `start` and `end` then omit these values.
            everything: delete all keys; not with a start, an end or a prefix.

        Raises:
            TypeError, ConfigError: see `get`; or the range is empty, or it is missing and `everything` is not set.
        """
        require_range((start, end, prefix), everything=everything)
        if prefix and self._codec is not None:
            raise ConfigError(
                "a store with a codec has one key column, so a prefix would be the whole key: give start and end"
            )
        if self._codec is not None:
            if start is not None:
                start = self._to_key(start)
            if end is not None:
                end = self._to_key(end)
        self._pending.buffer.purge(*self._user_keys.range_of(start, end, prefix))

    # ------------------------------------------------------------------------------------------------ windows

    @check_arguments
    def begin_window(self, window: int) -> None:
        """Begin a window: its number is greater than the numbers of all previous windows.

        Raises:
            WindowOrder: the number is not greater; a window has not ended; or there are changes outside of a window.
            ConfigError: the number is greater than 2**63 - 1.
        """
        self._require_open()
        _require_number(window)
        if self._begun is not None:
            raise WindowOrder(
                f"window {window} cannot begin, because window {self._begun} has not ended: call end_window() first"
            )
        if window <= self.last_window or window < 0:
            raise WindowOrder(f"window {window} cannot begin after window {self.last_window}: numbers must increase")
        if self._pending.buffer:
            raise WindowOrder(
                f"window {window} cannot begin, because there are changes without a window: call commit() first"
            )
        self._begun = window

    def end_window(self) -> None:
        """Make the changes of the window durable; a failed call may be repeated.

        Raises:
            WindowOrder: no window has begun.
            Fenced: a newer process has opened the store as this writer, and the window does not count here. If this
                call began after the newer process had opened the store, the window is never restored. If the call was
                in progress at that time, that process may have the window: check its `last_window`. The window counts
                once.
            StorageError: the storage failed; if the process ends before a retry, the window may be restored.
            FtfileError: an error of maintenance since the last window; the window has not ended, and the next call
                retries.
        """
        self._require_sound()
        if self._begun is None:
            raise WindowOrder("no window has begun: call begin_window() first")
        window = self._pending.end(self._begun)
        # Windows that a failed commit left in memory must be as durable as later windows.
        windows = [*self._windows_in_memory(), *([window] if self._pending.buffer else ())]
        if windows:
            # A newer process has read the files that existed when its fence was recorded, and maybe later files.
            self._wal.append(windows, self._recorder.head)
        self._end_window(window)

    @check_arguments
    def checkpointed(self, window: int) -> None:
        """Check that a window is durable, because the source has a checkpoint at this window.

        Raises:
            WindowOrder: the window has not ended; or it, or an earlier window, is only in memory after a failed
                `commit`. A restore to it would lose changes.
        """
        self._require_open()
        if window > self.last_window:
            raise WindowOrder(
                f"checkpointed({window}): this window has not ended; the last ended window is {self.last_window}"
            )
        in_memory = [ended.number for ended in self._windows_in_memory() if ended.number <= window]
        if in_memory:
            raise WindowOrder(
                f"checkpointed({window}): window {in_memory[0]} is only in memory, because its commit failed. Call "
                f"committed({in_memory[-1]}), or end another window, and then call checkpointed({window})"
            )

    @check_arguments
    def committed(self, window: int) -> None:
        """Record all windows up to `window`, exactly once, so that readers see them; repeatable.

        Raises:
            WindowOrder: the window has not ended.
            Fenced: a newer process has opened the store as this writer; nothing was recorded.
            SchemaError: the store was redefined meanwhile, for example by an overwrite or kv.rebucket: open it again.
            CommitError, StorageError: see each class; a failed call may be repeated.
            EncodingError, UserCodeError: values cannot be merged; nothing was recorded.
        """
        self._require_sound()
        if window > self.last_window:
            raise WindowOrder(
                f"window {window} cannot be recorded, because it has not ended; the last ended window is "
                f"{self.last_window}"
            )
        self._record(window)

    @check_arguments
    def commit(self, window: int | None = None) -> None:
        """Record the changes so far, and all ended windows, in one record, without a log of windows.

        Args:
            window: its number; None for the number of the window that has begun, or else the next number.

        Raises:
            WindowOrder: the number is not greater than the previous numbers, or not that of the window that has begun.
            ConfigError: the number is greater than 2**63 - 1.
            others: see `committed`. A failed call may be repeated, without new changes.
        """
        self._require_sound()
        if window is not None and window == self.last_window and not self._pending.buffer and self._begun is None:
            self._record(window)
            return
        if self._begun is not None and window not in {None, self._begun}:
            raise WindowOrder(f"commit({window}): window {self._begun} has begun: commit that window")
        if self._begun is not None:
            number = self._begun
        elif window is None:
            number = self.last_window + 1
        else:
            number = window
        if number <= self.last_window:
            raise WindowOrder(f"commit({number}): the number must be greater than the last window, {self.last_window}")
        _require_number(number)
        self._end_window(self._pending.end(number))
        self._record(number)

    def close(self) -> None:
        """Wait for maintenance, and close; idempotent. Ended windows stay, other changes are lost."""
        if not self._is_open or self._is_inherited:
            return  # the windows and the thread belong to the process that opened the store
        self._is_open = False
        self._upkeep.stop()
        if self._pending.buffer:
            _log.warning("the store is closed, and changes of a window that has not ended are lost")
        if in_memory := self._windows_in_memory():
            _log.warning(
                "the store is closed, and windows %d to %d, whose commit failed, are only in memory: they are lost, "
                "unless the log contains their record",
                in_memory[0].number,
                in_memory[-1].number,
            )
        self._pending.buffer = _ClosedBuffer()
        self._wal.trim(self.recorded_window)
        super().close()

    # ---------------------------------------------------------------------------------------------------------

    def _last_window_of(self, windows: Sequence[Window], restore: int | None) -> int:
        """Return the last window, given the restored windows."""
        last_window = self.recorded_window
        for window in windows:
            last_window = max(last_window, window.number)
        if restore is not None and restore > last_window:
            _log.warning(
                "restore=%d: the store at %s has windows of writer %r up to %s. Windows without changes leave no "
                "trace; if a later window had changes, they are missing",
                restore,
                self._recorder.config.path,
                self.writer,
                last_window if last_window >= 0 else "none",
            )
        if restore is None:
            return last_window
        return restore

    def _windows_in_memory(self) -> list[Window]:
        """Return the windows that a failed commit left: neither durable nor known to be recorded."""
        return self._pending.windows_behind(self._wal.last)

    def _end_window(self, window: Window) -> None:
        self._pending.take(window)
        self._begun, self.last_window = None, window.number

    def _record(self, number: int) -> None:
        windows = [window for window in self._pending.windows if window.number <= number]
        if number > self.recorded_window and windows:
            self.recorded_window = self._recorder.record(number, windows)
        if windows:
            self.refresh()
            self._pending.forget(self.recorded_window)
            self._wal.trim(self.recorded_window)
            self._upkeep.after_commit()

    def _require_sound(self) -> None:
        """Raise an error if the store is closed or inherited, or the error of maintenance since the last call."""
        self._require_open()
        self._upkeep.raise_error()

    def _require_open(self) -> None:
        if self._is_inherited:
            raise CallOrder(_INHERITED)
        if not self._is_open:
            raise ConfigError(_CLOSED)

    def _leave_to_parent(self) -> None:
        """Refuse calls in a forked process: another thread of the parent can have used the store during the fork."""
        self._is_inherited = True
        self._pending.buffer = _InheritedBuffer()
        self._lock = threading.Lock()
        self.view = cast("View", _InheritedView())


def _leave_all_to_parent(stores: weakref.WeakSet[KeyValueStore]) -> weakref.WeakSet[KeyValueStore]:
    for store in stores:
        store._leave_to_parent()  # noqa: SLF001 - not a call of users
    return weakref.WeakSet()


_stores: PerProcess[weakref.WeakSet[KeyValueStore]] = PerProcess(weakref.WeakSet, _leave_all_to_parent)


def _check_windows(restore: int | None, expect_window: int | None) -> None:
    """Raise a ConfigError for an invalid `restore` or `expect_window`, or if both are given."""
    if restore is not None and expect_window is not None:
        raise ConfigError("restore discards windows, and expect_window forbids this: give only one of them")
    for number in (restore, expect_window):
        if number is not None:
            _require_number(number)


def _require_number(window: int) -> None:
    if window > WINDOW_MAX:
        raise ConfigError(f"window {window}: the number of a window is at most {WINDOW_MAX}")
