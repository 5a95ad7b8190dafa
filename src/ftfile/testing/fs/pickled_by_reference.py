"""Classes whose pickled copies are the original object."""

from __future__ import annotations

import itertools
from weakref import WeakValueDictionary

__all__ = ("PickledByReference",)


_live: WeakValueDictionary[int, PickledByReference] = WeakValueDictionary()
_keys = itertools.count()


class PickledByReference:
    """Base of classes whose unpickled copy is the original object; only within one process."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        key = self.__dict__.setdefault("_reference_key", next(_keys))
        _live[key] = self
        return _find, (key,)


def _find(key: int) -> PickledByReference:
    target = _live.get(key)
    if target is None:
        raise LookupError("the pickled test object lives in another process, or no longer")
    return target
