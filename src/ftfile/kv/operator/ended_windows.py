"""Windows that have ended and that no record has, as they were logged: for those whose store cannot take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.arguments import checked
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.kv.driver import how_written, open_store_log
from ftfile.kv.key_columns import to_scalar
from ftfile.kv.operator.wal import read_wal
from ftfile.log.wal import WalFiles, opening_of, recorded_window

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.context import Context
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_columns import Key
    from ftfile.kv.operator.wal import WalFile
    from ftfile.kv.operator.windows import Window
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState
    from ftfile.log.wal import Opening


class EndedWindow(NamedTuple):
    """A window that no record has.

    Attributes:
        number: of the window.
        rows: its changes by key, those of a key from old to new, with the columns that the store had when it ended;
            then `_op`: 0 for a set, 1 for a merge, 2 for a delete, whose values are null.
        purges: ranges of keys whose rows of earlier windows end, each from a bound on and before another: tuples of
            the first values of a key, `()` for the first key, None for behind the last one. A value that Python does
            not have, such as the day behind the last one, is a scalar of Arrow.
    """

    number: int
    rows: pa.RecordBatch
    purges: list[tuple[tuple[Any, ...], tuple[Any, ...] | None]]


@checked
def read_windows(
    path: str | os.PathLike[str],
    writer: str,
    *,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    at_least_version: int | None = None,
    context: Context = SYSTEM,
) -> list[EndedWindow]:
    """Return the windows of a writer that have ended and are not recorded, old to new; the writer goes on meanwhile.

    It writes nothing. Windows whose rows do not fit the store any more, since it was defined anew, are read, too.

    Args:
        path: of the store.
        writer: the name of the `KeyValueStore`.
        key_provider: where keys are, for an encrypted store.
        storage: settings of the file system, as the options `storage.<name>`.
        at_least_version: see `ftfile.open`.
        context: clock, ids and retries; the machine's by default.

    Raises:
        ConfigError: there is no store, its keys are not known, or no `KeyValueStore` has opened it as this writer.
        CorruptData: the log, or a window, is damaged, or gone.
        StorageError: the store failed.
    """
    log = open_store_log(path, key_provider, storage, context, at_least_version)
    head = log.refresh()
    if opening_of(head, writer).epoch == 0:
        raise ConfigError(f"writer={writer!r}: no KeyValueStore has opened the store as this writer")
    return [_shown(window, file.definition) for file in read_ended(log, head, writer) for window in file.windows]


def read_ended(log: CommitLog, head: LogState, writer: str) -> Sequence[WalFile]:
    """Return the files of a writer's windows that no record has, beside the writer; `head` is one as last read.

    Raises:
        CorruptData: a file is damaged, gone, or of another store; or the log is damaged.
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
            continue  # the writer has recorded windows meanwhile, or opened the store again, and deleted files
        if damage is not None:
            raise damage
        return wal_files


def _state_of(head: LogState, writer: str) -> tuple[Opening, int]:
    """Return the newest opening of a writer, and the last window that a record has."""
    return opening_of(head, writer), recorded_window(head, writer)


def _shown(window: Window, definition: StoreDefinition) -> EndedWindow:
    purges = [
        (_bound(start, definition), None if end is None else _bound(end, definition)) for start, end in window.purges
    ]
    return EndedWindow(window.number, window.rows, purges)


def _bound(key: Key, definition: StoreDefinition) -> tuple[Any, ...]:
    scalars = (to_scalar(value, kind) for value, kind in zip(key, definition.key_types, strict=False))
    return tuple([_python_value(scalar) for scalar in scalars])


def _python_value(scalar: pa.Scalar) -> Any:  # noqa: ANN401 - of a key
    """Return the value of a scalar; itself if Python has no such value, such as the day behind the last one."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return scalar
