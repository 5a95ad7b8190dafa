"""The opening of a store by a writer, which fences the previous process.

Between the two records, the log still names the previous process as the owner of the windows. If the process dies
there, the next opening takes over all of these windows. If the store's new definition does not accept the windows, they
can be read as they were logged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from ftfile.core.arguments import Access, check_arguments
from ftfile.core.errors import ConfigError, CorruptData, SchemaError, WindowOrder
from ftfile.kv.definition import row_misfits
from ftfile.kv.driver import StoreChange, body_of, definition_after, how_written, open_store_log
from ftfile.kv.key_columns import key_scalars
from ftfile.kv.operator.recording import Recorder, refuse_application, require_epoch
from ftfile.kv.operator.wal import Wal, read_wal
from ftfile.kv.operator.windows import align_rows
from ftfile.log.directory import check_foreign_tables, check_outside_directories, list_new_directory, store_of
from ftfile.log.format import layout
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.log.wal import Opening, WalFiles, list_wal, opening_of, recorded_window, set_opening

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pyarrow as pa
    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments
    from ftfile.core.context import Context
    from ftfile.kv.config import StoreConfig
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key
    from ftfile.kv.operator.wal import WalFile
    from ftfile.kv.operator.windows import Window
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState

_OPERATION = "openWriter"


class OpenedWriter(NamedTuple):
    """A writer as which a process has opened a store."""

    recorder: Recorder
    wal: Wal
    windows: list[Window]  # windows that were taken over, by number


class _Fence(NamedTuple):
    """The first record of an opening."""

    opening: Opening
    definition: StoreDefinition  # definition of the store from this record on


def open_writer(
    config: StoreConfig, writer: str, context: Context, restore: int | None, expect_window: int | None
) -> OpenedWriter:
    """Fence the previous process, and take over its windows; windows after `restore` are permanently discarded.

    The first record contains the definition if the store is new. The second one is omitted if there are no windows to
    take over. Errors before the first record change nothing, and the previous process continues.

    Raises:
        ConfigError: the directory contains files, a table of another program, or a store with another definition or a
            sequence column; or the writer's name is the `txnAppId` of batches; nothing changes.
        WindowOrder: windows after `restore` are recorded; nothing changes.
        SchemaError: the store was redefined, and rows of ended windows do not fit; the previous process is fenced, and
            the windows stay.
        CorruptData: the log has lost records, and nothing changes. Or an ended window is damaged or missing, or the
            last window is before `expect_window`; the previous process is fenced.
        Fenced: a newer process has opened the store meanwhile.
    """
    log = config.log(context)
    config = config.for_storage(log.fs.capabilities)
    head = log.refresh()
    if head.version < 0:
        check_outside_directories(config.path, dict(config.common.storage.client_settings), context)
        list_new_directory(log.fs, config.path)
    else:
        check_foreign_tables(log, head, config.path)
    # Listed before the fence reads the head, so that the log must contain their openings.
    names = list_wal(log.fs, writer)
    opening, definition = record_fence(log, config, writer=writer, names=names, restore=restore)
    recorder = Recorder(log=log, config=replace(config, definition=definition), writer=writer, epoch=opening.epoch)
    # Final for windows of older processes: their commits need their epoch.
    recorded = recorded_window(recorder.head(), writer)
    files = WalFiles(log.fs, writer, config.hidden_chain, opening.wal_id)
    if opening.is_owner:
        windows = []
    else:
        windows = _read_windows(recorder, files, epoch=opening.wal_epoch, recorded=recorded, restore=restore)
    _require_window(files, expect_window, windows[-1].number if windows else recorded)
    wal = Wal(files, opening.epoch, definition, recorded)
    wal.begin(windows)
    if not opening.is_owner:
        record_take_over(recorder)
    wal.trim_older()
    return OpenedWriter(recorder, wal, windows)


def record_fence(
    log: CommitLog, config: StoreConfig, writer: str, names: Sequence[layout.WalName], restore: int | None
) -> _Fence:
    """Record the next epoch of a writer; from then on, older processes cannot record or acknowledge windows."""
    fences: list[_Fence] = []

    def prepare(head: LogState, _: object) -> Body:
        refuse_application(head, writer)
        before, recorded = opening_of(head, writer), recorded_window(head, writer)
        if restore is not None and restore < recorded:
            raise WindowOrder(
                f"restore={restore}: windows up to {recorded} are recorded and cannot be undone. Reset the source of "
                f"the store to window {recorded} or a later one"
            )
        has_windows_to_read = restore is None or restore > recorded
        if has_windows_to_read and (lost_epoch := before.lost_epoch(names)) is not None:
            raise CorruptData(
                layout.wal_directory(writer),
                "files of processes whose opening is in the log",
                f"files of process {lost_epoch}, and no opening after {before.wal_epoch} in the log: the log has lost "
                "records",
                f"Restore the newest records of the store from a copy. Or open the store with restore={recorded}, "
                "which discards all later windows, and reset its source to this window",
            )
        epoch = before.epoch + 1
        for name in names:
            epoch = max(epoch, name.epoch + 1)
        # A writer without an opening has no files: `lost_epoch` above has refused them.
        wal_epoch = epoch
        if has_windows_to_read and before.epoch > 0:
            wal_epoch = before.wal_epoch
        opening = Opening(epoch, wal_epoch, before.wal_id or log.ids.unique())
        fences[:] = [_Fence(opening, _definition_after(config, head))]
        return structs.replace(body_of(config, log, head, StoreChange(runs=())), tables=set_opening(writer, opening))

    with log.lock:
        commit(log, MaintenanceAuthor(_OPERATION, log.ids.unique()), prepare, config.common.policy)
    return fences[0]


def _read_windows(recorder: Recorder, files: WalFiles, epoch: int, recorded: int, restore: int | None) -> list[Window]:
    """Return the unrecorded windows of an epoch, up to `restore`, with the current columns of the store."""
    try:
        wal_files = read_wal(files, epoch, recorded)
    except CorruptData:
        recorder.head()  # raises `Fenced` if a newer process owns the windows and deletes the files
        raise
    restored_files = []
    for file in wal_files:
        windows = [window for window in file.windows if restore is None or window.number <= restore]
        if windows:
            restored_files.append(file._replace(windows=windows))
    _require_rows_fit(restored_files, recorder, recorded)
    definition = recorder.config.definition
    restored = []
    for file in restored_files:
        for window in file.windows:
            restored.append(replace(window, rows=align_rows(window.rows, definition)))
    return restored


def _require_window(files: WalFiles, expected: int | None, last: int) -> None:
    """Raise CorruptData if the last window is before a window that is known to have ended."""
    if expected is not None and last < expected:
        raise CorruptData(
            files.directory,
            f"a window with the number {expected} or a later one",
            f"{last} as the last one" if last >= 0 else "none",
            "Files were deleted, or an older copy was restored: restore the newest copy. Or open the store with "
            f"restore={last}, and reset its source to this window",
        )


def _require_rows_fit(wal_files: Sequence[WalFile], recorder: Recorder, recorded: int) -> None:
    """Raise a SchemaError if the rows of windows do not fit the store, because it was redefined after they ended."""
    for file in wal_files:
        if misfits := row_misfits(file.definition, recorder.config.definition):
            path, writer = recorder.config.path, recorder.writer
            raise SchemaError(
                f"windows {wal_files[0].windows[0].number} to {wal_files[-1].windows[-1].number} of writer {writer!r} "
                "have ended and are not recorded. The definition of the store has changed since, and their rows do "
                f"not fit: {'; '.join(misfits)}. Read them with kv.read_windows({path!r}, {writer!r}), and discard "
                f"them by opening the store with restore={recorded}"
            )


def record_take_over(recorder: Recorder) -> None:
    """Record that a process owns all windows that count: from then on, files of older processes are ignored."""
    log, writer, epoch = recorder.log, recorder.writer, recorder.epoch

    def prepare(head: LogState, _: object) -> Body:
        require_epoch(head, writer, epoch)
        return Body(tables=set_opening(writer, opening_of(head, writer)._replace(wal_epoch=epoch)))

    with log.lock:
        commit(log, MaintenanceAuthor(_OPERATION, log.ids.unique()), prepare, recorder.config.common.policy)


def _definition_after(config: StoreConfig, head: LogState) -> StoreDefinition:
    """Return the definition of the store after this writer has opened it; see `driver.definition_after`."""
    store = store_of(head)
    if store is not None and store["sequenceColumn"] is not None:
        raise ConfigError(
            f"the store at {config.path!r} has sequenceColumn={store['sequenceColumn']}: only Spark can write it, and "
            "kv.open reads it. Write it with Spark, or open a KeyValueStore without that column at another path"
        )
    definition = definition_after(config, head)
    requested, stored = config.definition.values, definition.values
    if requested != stored:
        raise ConfigError(
            f"values: the store has the columns in the order {stored}, and {requested} is given, so the values of "
            "tuples would be in the wrong columns. Give the columns in the store's order, with new columns at the end"
        )
    return definition


class EndedWindow(NamedTuple):
    """A window that is not recorded.

    Attributes:
        number: of the window.
        rows: its changes by key, the changes of a key from old to new, with the columns of the store when it ended;
            then `_op`: 0 for a set, 1 for a merge, 2 for a delete, whose values are null.
        purges: key ranges (end exclusive) whose rows of earlier windows are deleted. Bounds are tuples of the first
            values of a key, `()` for the first key, None for no end. A value that Python cannot represent, such as the
            day after the last one, is an Arrow scalar.
    """

    number: int
    rows: pa.RecordBatch
    purges: list[tuple[tuple[Any, ...], tuple[Any, ...] | None]]


@check_arguments
def read_windows(path: str | os.PathLike[str], writer: str, **access: Unpack[AccessArguments]) -> list[EndedWindow]:
    """Return the ended windows of a writer that are not recorded, old to new; the writer may continue meanwhile.

    Writes nothing. Also returns windows whose rows do not fit the store any more, because it was redefined.

    Args:
        path: of the store.
        writer: the name of the `KeyValueStore`.
        **access: how the store is opened, as `ftfile.open` opens a directory.

    Raises:
        ConfigError: the store does not exist, its keys are unknown, or no `KeyValueStore` has opened it as this writer.
        CorruptData: the log is damaged, or a window is damaged or missing.
        StorageError: the storage failed.
    """
    log = open_store_log(path, Access.of(access))
    head = log.refresh()
    if opening_of(head, writer).epoch == 0:
        raise ConfigError(f"writer={writer!r}: no KeyValueStore has opened the store as this writer")
    shown = []
    for file in read_ended(log, head, writer):
        for window in file.windows:
            shown.append(_ended_window_of(window, file.definition))
    return shown


def read_ended(log: CommitLog, head: LogState, writer: str) -> Sequence[WalFile]:
    """Return the files of a writer's unrecorded windows while the writer may run; `head` is a recent state of the log.

    Raises:
        CorruptData: a file is damaged, missing, or of another store; or the log is damaged.
    """
    while True:
        opening, recorded = state = _state_of(head, writer)
        files = WalFiles(log.fs, writer, how_written(head, log.fs).chain, opening.wal_id)
        damage: CorruptData | None = None
        wal_files: Sequence[WalFile] = ()
        try:
            wal_files = read_wal(files, opening.wal_epoch, recorded)
        except CorruptData as error:
            damage = error
        head = log.refresh()
        if _state_of(head, writer) != state:
            continue  # the writer has recorded windows or reopened the store meanwhile, and deleted files
        if damage is not None:
            raise damage
        return wal_files


def _state_of(head: LogState, writer: str) -> tuple[Opening, int]:
    """Return the newest opening of a writer, and the last recorded window."""
    return opening_of(head, writer), recorded_window(head, writer)


def _ended_window_of(window: Window, definition: StoreDefinition) -> EndedWindow:
    purges = []
    for start, end in window.purges:
        purges.append((_bound_of(start, definition), None if end is None else _bound_of(end, definition)))
    return EndedWindow(window.number, window.rows, purges)


def _bound_of(key: Key, definition: StoreDefinition) -> tuple[Any, ...]:
    return tuple(map(_python_value, key_scalars(key, definition.key_types)))


def _python_value(scalar: pa.Scalar) -> Any:  # noqa: ANN401 - of a key
    """Return the value of a scalar; the scalar if Python cannot represent it, such as the day after the last one.

    A string that is not UTF-8 is returned as its bytes.
    """
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return scalar.as_buffer().to_pybytes()
    except (OverflowError, ValueError):
        return scalar
