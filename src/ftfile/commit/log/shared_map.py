"""Dictionaries that never change: a changed copy costs what changed, not what is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator, ValuesView

K = TypeVar("K")
V = TypeVar("V")

# A copy shares the dictionary it was made of until this many entries, or this share of it, have changed.
CHANGES_MIN = 256
CHANGES_SHARE = 64


class SharedMap(Mapping[K, V]):
    """A dictionary that never changes, in the order in which its keys were last set; see `draft`."""

    __slots__ = ("gone", "newer", "older")

    def __init__(
        self, older: dict[K, V] | None = None, newer: dict[K, V] | None = None, gone: set[K] | None = None
    ) -> None:
        self.older, self.newer, self.gone = older or {}, newer or {}, gone or set()

    def draft(self) -> Draft[K, V]:
        """Return a copy that can be changed."""
        return Draft(self)

    def __getitem__(self, key: K) -> V:
        if key in self.newer:
            return self.newer[key]
        if key in self.gone:
            raise KeyError(key)
        return self.older[key]

    def __contains__(self, key: object) -> bool:
        return key in self.newer or (key in self.older and key not in self.gone)

    def __iter__(self) -> Iterator[K]:
        yield from (key for key in self.older if key not in self.gone) if self.gone else self.older
        yield from self.newer

    def __len__(self) -> int:
        return len(self.older) - len(self.gone) + len(self.newer)

    def __repr__(self) -> str:
        return repr(self.to_dict())

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


class Draft(SharedMap[K, V]):
    """Changes of a `SharedMap`, which stays as it is."""

    __slots__ = ("_owns_all", "_owns_changes")

    def __init__(self, start: SharedMap[K, V]) -> None:
        self.older, self.newer, self.gone = start.older, start.newer, start.gone
        # True once `newer` and `gone`, or `older` as well, are copies of this draft's own.
        self._owns_changes = self._owns_all = False

    def oldest(self) -> Iterator[tuple[K, V]]:
        """Yield keys and values without a copy; nothing may be changed meanwhile."""
        yield from (item for item in self.older.items() if item[0] not in self.gone)
        yield from self.newer.items()

    def set(self, key: K, value: V) -> None:
        """Set a key; it is the last one then."""
        self._own()
        if self._owns_all:
            self.older.pop(key, None)
            self.older[key] = value
            return
        self.newer.pop(key, None)
        if key in self.older:
            self.gone.add(key)
        self.newer[key] = value

    def drop(self, key: K) -> None:
        """Forget a key, if it is there."""
        self._own()
        if self._owns_all:
            self.older.pop(key, None)
        elif key in self.newer:
            del self.newer[key]
        elif key in self.older:
            self.gone.add(key)

    def finish(self) -> SharedMap[K, V]:
        """Return the changed map; the draft is used no more."""
        return SharedMap(self.older, self.newer, self.gone)

    def _own(self) -> None:
        """Make the changes our own, and everything as soon as much has changed."""
        if self._owns_all:
            return
        if not self._owns_changes:
            self._owns_changes = True
            self.newer, self.gone = self.newer.copy(), self.gone.copy()
        if len(self.newer) + len(self.gone) >= max(CHANGES_MIN, len(self.older) // CHANGES_SHARE):
            self.older, self.newer, self.gone = self.to_dict(), {}, set()
            self._owns_all = True
