"""Reads of an operator's store: committed rows, changes that are not committed, and both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError, UserCodeError
from ftfile.kv.definition import SET
from ftfile.kv.operator.values import row_maker
from ftfile.kv.reading.bucket import fold_key
from ftfile.kv.reading.reader import Reader
from ftfile.kv.user_keys import UserKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.commit.log.log import CommitLog
    from ftfile.kv.key_columns import Key
    from ftfile.kv.operator.codecs import Codec
    from ftfile.kv.operator.windows import Pending

    Rows = list[tuple[int, tuple[Any, ...]]]


class _Deleted:
    """The type of `DELETED`."""

    def __repr__(self) -> str:
        return "DELETED"

    def __bool__(self) -> bool:
        return False


# What `get_uncommitted` returns for a key that a window has deleted.
DELETED = _Deleted()
_NOTHING = object()


class WindowReader(Reader):
    """A reader of a store that also knows the changes of windows, and the codec of a user."""

    def __init__(self, log: CommitLog, path: str, pending: Pending, codec: Codec | None) -> None:
        super().__init__(log, path)
        definition = pending.definition
        self._pending = pending
        self._codec = codec
        self._user_keys = UserKeys(definition)
        self._to_key: Callable[[Any], Key] = self._user_keys.to_stored
        self._take_row = row_maker(definition.value_fields)
        if codec is not None:
            self._to_key = lambda key: (_encoded(codec.key_to_bytes, key),)
            self._take_row = lambda value: (_encoded(codec.value_to_bytes, value),)

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401
        """Return the committed row of a key, or `default`; see `Reader.get`."""
        if self._codec is None:
            return super().get(key, default)
        stored = self._to_key(key)
        found = super().get(stored, _NOTHING)
        return default if found is _NOTHING else self._shown(stored, self._values_of(found))

    def multi_get(self, keys: Sequence[Any]) -> list[Any]:
        """Return the committed rows of keys; see `Reader.multi_get`."""
        if self._codec is None:
            return super().multi_get(keys)
        stored = [self._to_key(key) for key in keys]
        found = super().multi_get(stored)
        return [
            None if row is None else self._shown(key, self._values_of(row))
            for key, row in zip(stored, found, strict=True)
        ]

    def get_uncommitted(self, key: Any) -> Any:  # noqa: ANN401
        """Return the row of a key by the changes that are not committed alone.

        Merges into a committed row give what they add to it; `DELETED` says that it was deleted, None that there is no
        change.
        """
        stored = self._to_key(key)
        changes = self._pending.of_key(stored)
        if changes.is_deleted:
            return DELETED
        rows = self._widened(changes.rows)
        return self._shown(stored, fold_key(rows, stored, self.definition)) if rows else None

    def read(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401
        """Return the row of a key, by all changes, committed or not; `default` if there is none."""
        stored = self._to_key(key)
        rows, is_whole = self._pending.of_key(stored)
        rows = self._widened(rows)
        if not is_whole:
            found = super().get(self._user_keys.to_user(stored), _NOTHING)
            if found is not _NOTHING:
                rows = [*rows, (SET, self._values_of(found))]
        values = fold_key(rows, stored, self.definition) if rows else None
        return default if values is None else self._shown(stored, values)

    def _values_of(self, row: Any) -> tuple[Any, ...]:  # noqa: ANN401
        return (row,) if len(self.definition.values) == 1 else tuple(row)

    def _widened(self, rows: Rows) -> Rows:
        """Return changes with the columns of the version that is read: others may have added some at the end."""
        own, stored = self._pending.definition.values, self.definition.values
        if stored[: len(own)] != own:
            raise ConfigError(f"the store has the columns {stored} by now, and had {own}: close it, and open it again")
        more = (None,) * (len(stored) - len(own))
        return [(op, (*values, *more)) for op, values in rows] if more else rows

    def _shown(self, key: Key, values: tuple[Any, ...] | None) -> Any:  # noqa: ANN401
        if self._codec is None or values is None:
            return None if values is None else self.view.to_row(values)
        (data,) = key
        assert isinstance(data, bytes)
        return self._codec.from_key_value(data, values[0])


def _encoded(encode: Callable[[Any], bytes], value: Any) -> bytes:  # noqa: ANN401
    data = encode(value)
    if type(data) is not bytes:
        raise UserCodeError(f"the codec made {type(data).__name__} of {value!r}, and no bytes")
    return data
