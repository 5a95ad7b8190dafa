"""`KeyValueStore`: a store for one process that writes by windows, without Spark."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from ftfile.core.arguments import Access, checked
from ftfile.core.errors import ConfigError, WindowOrder
from ftfile.core.logs import get_logger
from ftfile.kv.operator.codecs import Codec
from ftfile.kv.operator.opening import open_writer
from ftfile.kv.operator.recording import Columns, check_writer_name, config_of
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


WINDOW_MAX = (1 << 63) - 1  # 64 bits, as others may read the number from the log

_log = get_logger(__name__)


class _ClosedBuffer(Buffer):
    """Takes nothing."""

    def put(self, *_: object, **__: object) -> NoReturn:
        raise ConfigError("the store is closed: open it again")

    merge = delete = purge = put


class KeyValueStore(WindowReader):
    """A store that one process writes, as one *writer*, by windows or by single commits. For one thread.

    Changes are in memory until `end_window`, which makes them durable, and are seen by readers from `committed` on,
    which records all windows up to one exactly once. `get`, `multi_get`, `lookup` and `scan` read what is committed;
    `get_uncommitted` reads what is not; `read` reads both::

        with KeyValueStore("/data/counts", writer="counter", keys={"word": "string"}, values={"n": "long"},
                           merge="sum", restore=checkpoint) as store:
            store.begin_window(window)
            for word in words:
                store.merge(word, 1)
            store.end_window()
            ...
            store.committed(window)

    Opening the store, which need not exist yet, records that this process writes as `writer`. After a crash, a new
    process goes on as the same writer: windows that had ended come back, or those up to `restore`. It fences the
    process before it, which raises `Fenced` from then on.

    Args:
        path: a URL or a local path; see `ftfile.open`.
        writer: a name, which stays over restarts; other writers of the store have others.
        keys: the types of the key columns, by name: names as Spark and SQL have them, or Arrow types. This argument,
            and the next four, may be left out where the store exists. A new one has `{"key": "binary"}` by default.
        values: likewise, of the value columns, in the order in which tuples have them; `{"value": "binary"}`. `{}` is a
            store of keys alone, whose rows are `()`.
        buckets: a power of two; 16.
        bucket_by: key columns whose hash gives a row's bucket; all of them.
        merge: the merge function of each column, by name, `last` for those that are left out; or a text as the option
            `merge` has it.
        codec: turns keys and values of the user's into bytes, where both are one binary column.
        restore: the last window that is to come back; those behind it are forgotten for ever. None for all.
        expect_window: a window with changes that is known to have ended, as what feeds the store remembers it: an
            opening that finds none up to it, nor a later one, is refused. Not with `restore`.
        maintenance: how runs are merged, and files deleted that nobody needs: after commits in a thread, within
            them, or not here.
        options: further options of `format("ftkv")`, such as `compression`; not those that are arguments here, or for
            batches of Spark.
        **access: how the store is opened, as `ftfile.open` opens a directory. With a `key_provider`, a new store is
            encrypted; commits look at `at_least_version`, too.

    Raises:
        RolledBack: the newest version is before `at_least_version`; nothing was written.
        ConfigError: the arguments, or what they say of a store that exists, do not fit.
        WindowOrder: windows behind `restore` are recorded.
        SchemaError: the store was defined anew, and windows that had ended do not fit; they stay. See
            `kv.read_windows`.
        CorruptData: the log, or a window that had ended, is damaged; or those up to `expect_window` are not here.
        StorageError: the store failed.

    Attributes:
        writer: the name.
        last_window: the last one that has ended, or is recorded; -1 for none.
        recorded_window: the last one that is recorded; -1 for none.
    """

    @checked
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
        columns = Columns(keys, values, buckets, bucket_by, merge)
        place = Access.of(access)
        config = config_of(os.fspath(path), columns, options or {}, place, has_codec=codec is not None)
        self._recorder, self._wal, windows = open_writer(config, writer, place.context, restore, expect_window)
        config, log = self._recorder.config, self._recorder.log
        self.writer = writer
        self.recorded_window = recorded_window(self._recorder.head(), writer)
        self.last_window = self._last_window_of(windows, restore)
        super().__init__(log, config.path, Pending(config.definition, windows), codec)
        self._begun: int | None = None
        self._is_open = True
        work = functools.partial(keep_up, log, config) if maintenance != "none" else None
        self._upkeep = Upkeep(work, in_background=maintenance == "background")

    def __enter__(self) -> KeyValueStore:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __repr__(self) -> str:
        return f"KeyValueStore({self.path!r}, writer={self.writer!r}, last_window={self.last_window})"

    # ------------------------------------------------------------------------------------------------ changes

    def put(self, key: Any, value: Any) -> None:  # noqa: ANN401 - the user's
        """Set the row of a key.

        Args:
            key: a value, or a tuple with a value for each key column.
            value: a value, or a tuple or dict with those of several value columns.

        Raises:
            TypeError, ConfigError: see `get`.
            EncodingError: a value is of another type than its column.
        """
        self._pending.buffer.put(self._to_key(key), self._take_row(value))

    def merge(self, key: Any, value: Any) -> None:  # noqa: ANN401
        """Merge a row into that of a key, by the store's merge functions; raises as `put` does."""
        self._pending.buffer.merge(self._to_key(key), self._take_row(value))

    def delete(self, key: Any) -> None:  # noqa: ANN401
        """Delete the row of a key, if there is one; raises as `put` does."""
        self._pending.buffer.delete(self._to_key(key))

    @checked
    def purge(
        self,
        start: Any = None,  # noqa: ANN401
        end: Any = None,  # noqa: ANN401
        prefix: tuple[Any, ...] = (),
        *,
        everything: bool = False,
    ) -> None:
        """Delete all rows from one key on and before another, in the order of keys; later changes count.

        Args:
            start: a key, or a tuple of its first values; None for the first key.
            end: likewise; None for all keys behind.
            prefix: the first values of the keys meant, which `start` and `end` then leave out.
            everything: all keys, without a start, an end or a prefix.

        Raises:
            TypeError, ConfigError: see `get`; or no key lies in the range, or it is not given without `everything`.
        """
        require_range((start, end, prefix), everything=everything)
        if prefix and self._codec is not None:
            raise ConfigError(
                "a store with a codec has one key column, so a prefix would be the whole key: give start and end"
            )
        if self._codec is not None:
            start, end = (None if bound is None else self._to_key(bound) for bound in (start, end))
        self._pending.buffer.purge(*self._user_keys.range_of(start, end, prefix))

    # ------------------------------------------------------------------------------------------------ windows

    @checked
    def begin_window(self, window: int) -> None:
        """Begin a window: its number is greater than those of all windows before.

        Raises:
            WindowOrder: the number is not greater; a window has not ended; or there are changes of none.
            ConfigError: the number is greater than 2**63 - 1.
        """
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
            Fenced: a newer process has opened the store as this writer, and the window does not count here. It never
                comes back if this call began after the newer process had opened the store. If the call was under way
                meanwhile, that process may have the window: its `last_window` says so, and the window counts once.
            StorageError: the store failed; the window may come back if the process ends before a repetition.
            FtfileError: what upkeep raised since the last window; the window has not ended, and the next call goes on.
        """
        self._require_sound()
        if self._begun is None:
            raise WindowOrder("no window has begun: call begin_window() first")
        window = self._pending.end(self._begun)
        # Windows that a failed commit left in memory must be as durable as those behind them.
        windows = [*self._in_memory(), *([window] if self._pending.buffer else ())]
        if windows:
            # A newer process has read the files that were there when its fence was recorded, and perhaps later ones.
            self._wal.append(windows, self._recorder.head)
        self._ended(window)

    @checked
    def checkpointed(self, window: int) -> None:
        """Take note that what feeds the store has a checkpoint at a window: it must be durable.

        Raises:
            WindowOrder: it is not: it has not ended, or a failed `commit` left it, or one before it, in memory alone.
                A restore to it would lack changes.
        """
        if window > self.last_window:
            raise WindowOrder(
                f"checkpointed({window}): this window has not ended; the last ended window is {self.last_window}"
            )
        if in_memory := [ended.number for ended in self._in_memory() if ended.number <= window]:
            raise WindowOrder(
                f"checkpointed({window}): window {in_memory[0]} is only in memory, because its commit failed. Call "
                f"committed({in_memory[-1]}), or end another window, and then call checkpointed({window})"
            )

    @checked
    def committed(self, window: int) -> None:
        """Record all windows up to one, exactly once, so that readers see them; repeatable.

        Raises:
            WindowOrder: the window has not ended.
            Fenced: a newer process has opened the store as this writer; nothing was recorded.
            SchemaError: the store was defined anew meanwhile, as by an overwrite or kv.rebucket: open it again.
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

    @checked
    def commit(self, window: int | None = None) -> None:
        """Record the changes so far, and all windows that have ended, in one record, without a log of windows.

        Args:
            window: its number; None for that of the window that has begun, or else the next one.

        Raises:
            WindowOrder: the number is not greater than those of all windows before, or not that of the one begun.
            ConfigError: the number is greater than 2**63 - 1.
            others: see `committed`. A failed call may be repeated, without new changes.
        """
        self._require_sound()
        if window is not None and window == self.last_window and not self._pending.buffer and self._begun is None:
            self._record(window)
            return
        if self._begun is not None and window not in {None, self._begun}:
            raise WindowOrder(f"commit({window}): window {self._begun} has begun: commit that window")
        number = self._begun if self._begun is not None else self.last_window + 1 if window is None else window
        if number <= self.last_window:
            raise WindowOrder(f"commit({number}): the number must be greater than the last window, {self.last_window}")
        _require_number(number)
        self._ended(self._pending.end(number))
        self._record(number)

    def close(self) -> None:
        """Wait for upkeep, and close; idempotent. Windows that `end_window` has ended stay, others are lost."""
        if not self._is_open:
            return
        self._is_open = False
        self._upkeep.stop()
        if self._pending.buffer:
            _log.warning("the store is closed, and changes of a window that has not ended are lost")
        if in_memory := self._in_memory():
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
        """Return the last window, given those that came back."""
        last_window = max([self.recorded_window, *(window.number for window in windows)])
        if restore is not None and restore > last_window:
            _log.warning(
                "restore=%d: the store at %s has windows of writer %r up to %s. Windows without changes leave no "
                "trace; if a later window had changes, they are missing",
                restore,
                self._recorder.config.path,
                self.writer,
                last_window if last_window >= 0 else "none",
            )
        return last_window if restore is None else restore

    def _in_memory(self) -> list[Window]:
        """Return the windows that a failed commit left: neither durable nor known to be recorded."""
        return self._pending.behind(self._wal.last)

    def _ended(self, window: Window) -> None:
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
        """Raise a ConfigError if the store is closed, or what upkeep has raised since the last call."""
        if not self._is_open:
            raise ConfigError("the store is closed: open it again")
        self._upkeep.raise_error()


def _check_windows(restore: int | None, expect_window: int | None) -> None:
    """Raise a ConfigError for a number of an opening that is out of range, or for both."""
    if restore is not None and expect_window is not None:
        raise ConfigError("restore discards windows, and expect_window forbids this: give only one of them")
    for number in (restore, expect_window):
        if number is not None:
            _require_number(number)


def _require_number(window: int) -> None:
    if window > WINDOW_MAX:
        raise ConfigError(f"window {window}: the number of a window is at most {WINDOW_MAX}")
