"""Pickling an object as a reference to itself, for kit that stays one object on both sides of a pickle."""

from __future__ import annotations

import itertools
from weakref import WeakValueDictionary

__all__ = ("PickledByReference",)

_live: WeakValueDictionary[int, PickledByReference] = WeakValueDictionary()
_keys = itertools.count()


class PickledByReference:
    """Base of classes whose unpickled copy is the original itself; works within one process only."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        key = self.__dict__.setdefault("_reference_key", next(_keys))
        _live[key] = self
        return _find, (key,)


def _find(key: int) -> PickledByReference:
    found = _live.get(key)
    if found is None:
        raise LookupError("the pickled test object lives in another process, or no longer")
    return found
