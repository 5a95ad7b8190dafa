"""Changes that no record has yet, of all windows: what reads of one key see of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.kv.columns import DELETE, MERGE, SET
from ftfile.kv.key_ranges import overlap
from ftfile.kv.operator.windows import Buffer, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_ranges import KeyRange
    from ftfile.kv.key_values import Key
    from ftfile.kv.operator.windows import Changes


class KeyChanges(NamedTuple):
    """The changes of one key that are not recorded."""

    rows: list[tuple[int, tuple[Any, ...]]]  # operation and values, new to old; as `fold_key` takes them
    is_whole: bool  # recorded rows of the key count no more

    @property
    def is_deleted(self) -> bool:
        """Return True if the key has no row behind the last delete or purge."""
        return self.is_whole and all(op == DELETE for op, _ in self.rows)


class Pending:
    """Windows that have ended, old to new, and the changes since."""

    def __init__(self, definition: StoreDefinition, windows: list[Window]) -> None:
        self.definition = definition
        self.windows = windows  # that are not recorded
        self.buffer = Buffer()  # of the window that has not ended

    def end(self, number: int) -> Window:
        """Return the changes since the last window as a window; `take` makes it one of those that have ended."""
        buffer = self.buffer
        return Window(number, buffer.to_rows(self.definition), buffer.purges, buffer.changes)

    def take(self, window: Window) -> None:
        """Let a window be the last one that has ended."""
        if window.rows.num_rows or window.purges:
            self.windows.append(window)
        self.buffer = Buffer()

    def forget(self, recorded: int) -> None:
        """Forget the windows that are recorded."""
        self.windows = [window for window in self.windows if window.number > recorded]

    def of_key(self, key: Key) -> KeyChanges:
        """Return the changes of a key."""
        rows: list[tuple[int, tuple[Any, ...]]] = []
        for changes, purges in self._new_to_old():
            change = changes.get(key)
            if isinstance(change, tuple):
                return KeyChanges([*rows, (SET, change)], is_whole=True)
            if change is not None:
                rows += [(MERGE, values) for values in reversed(change.rows)]
                if change.op != MERGE:
                    base = (SET, change.rows[0]) if change.op == SET else (DELETE, ())
                    rows[len(rows) - (change.op == SET) :] = [base]
                    return KeyChanges(rows, is_whole=True)
            if overlap(purges, key, key):
                return KeyChanges([*rows, (DELETE, ())], is_whole=True)
        return KeyChanges(rows, is_whole=False)

    def _new_to_old(self) -> Iterator[tuple[Changes, tuple[KeyRange, ...]]]:
        yield self.buffer.changes, self.buffer.purges
        for window in reversed(self.windows):
            yield window.by_key(self.definition), window.purges
