"""Dictionaries that never change: a changed copy costs what changed, not what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator, ValuesView

__all__ = ("CHANGES_MIN", "Draft", "SharedMap")

K = TypeVar("K")
V = TypeVar("V")

# A copy shares the dictionary it was made of until this many entries, or this share of it, have changed.
CHANGES_MIN = 256
CHANGES_SHARE = 64


class SharedMap(Mapping[K, V]):
    """An ordered dictionary that never changes; see `draft`.

    Args:
        older: most of it; nobody may change it any more, nor the others.
        newer: what was set since.
        gone: keys of `older` that were dropped, or set again, since.
    """

    __slots__ = ("gone", "newer", "older")

    def __init__(
        self, older: dict[K, V] | None = None, newer: dict[K, V] | None = None, gone: set[K] | None = None
    ) -> None:
        self.older, self.newer, self.gone = older or {}, newer or {}, gone or set()

    def draft(self) -> Draft[K, V]:
        """Return a copy that can be changed."""
        return Draft(self)

    def __getitem__(self, key: K) -> V:
        """Return the value of a key."""
        if key in self.newer:
            return self.newer[key]
        if key in self.gone:
            raise KeyError(key)
        return self.older[key]

    def __iter__(self) -> Iterator[K]:
        """Yield the keys in the order in which they were last set."""
        yield from (key for key in self.older if key not in self.gone) if self.gone else self.older
        yield from self.newer

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self.older) - len(self.gone) + len(self.newer)

    def to_dict(self) -> dict[K, V]:
        """Return a plain copy."""
        found = self.older.copy()
        for key in self.gone:
            del found[key]
        found.update(self.newer)
        return found

    def items(self) -> ItemsView[K, V]:
        """Return keys and values."""
        return self.to_dict().items() if self.newer or self.gone else self.older.items()

    def values(self) -> ValuesView[V]:
        """Return the values."""
        return self.to_dict().values() if self.newer or self.gone else self.older.values()

    def __repr__(self) -> str:
        """Return it as a dictionary is shown."""
        return repr(self.to_dict())


class Draft(Generic[K, V]):
    """Changes of a `SharedMap`; that stays as it is.

    Args:
        start: what is changed.
    """

    __slots__ = ("_gone", "_is_own", "_newer", "_older", "_start")

    def __init__(self, start: SharedMap[K, V]) -> None:
        self._start: SharedMap[K, V] | None = start
        self._older, self._newer, self._gone = start.older, start.newer, start.gone
        self._is_own = False  # whether `_older` is seen by nobody else

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        if key in self._newer:
            return self._newer[key]
        return None if key in self._gone else self._older.get(key)

    def __contains__(self, key: object) -> bool:
        """Return True if there is such a key."""
        return key in self._newer or (key in self._older and key not in self._gone)

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self._older) - len(self._gone) + len(self._newer)

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values in the order in which they were last set; nothing may be changed meanwhile."""
        yield from (item for item in self._older.items() if item[0] not in self._gone)
        yield from self._newer.items()

    def set(self, key: K, value: V) -> None:
        """Set a key; it is the last one then."""
        if not self._is_own:
            self._own()
        if self._is_own:
            self._older.pop(key, None)
            self._older[key] = value
            return
        self._newer.pop(key, None)
        if key in self._older:
            self._gone.add(key)
        self._newer[key] = value

    def drop(self, key: K) -> None:
        """Forget a key, if it is there."""
        if not self._is_own:
            self._own()
        if self._is_own:
            self._older.pop(key, None)
        elif key in self._newer:
            del self._newer[key]
        elif key in self._older:
            self._gone.add(key)

    def finish(self) -> SharedMap[K, V]:
        """Return what it has become; the draft is used no more."""
        return self._start if self._start is not None else SharedMap(self._older, self._newer, self._gone)

    def _own(self) -> None:
        """Make the changes our own, and everything as soon as much has changed."""
        if self._start is not None:
            self._start = None
            self._newer, self._gone = self._newer.copy(), self._gone.copy()
        changes = len(self._newer) + len(self._gone)
        if changes >= max(CHANGES_MIN, len(self._older) // CHANGES_SHARE):
            older = self._older.copy()
            for key in self._gone:
                del older[key]
            older.update(self._newer)
            self._older, self._newer, self._gone = older, {}, set()
            self._is_own = True
