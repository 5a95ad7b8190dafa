"""State of a process, such as locks, caches and threads, which a forked process does not share."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable


Key = TypeVar("Key")
Made = TypeVar("Made")
State = TypeVar("State")
Value = TypeVar("Value")


class PerProcess(Generic[State]):
    """State that each process creates for itself by `make`; `here` is the state of this process.

    A fork copies the memory of a process, and only the thread that forks. In the copy, a lock that another thread held
    is never released, a started thread does not exist, and a connection is also used by the parent. So a forked process
    begins with new state, before any other code runs. `make` must not take a lock.

    Args:
        make: creates the state.
        in_fork: returns the state of a forked process, from the state of its parent, instead of `make`.
    """

    __slots__ = ("__weakref__", "_in_fork", "_make", "here")

    def __init__(self, make: Callable[[], State], in_fork: Callable[[State], State] | None = None) -> None:
        self._make, self._in_fork = make, in_fork
        self.here: State = make()
        _states.add(self)

    def renew(self) -> None:
        """Begin with new state, as in a forked process."""
        # Never destroyed, because a destructor can wait for a lock or a thread of the parent.
        _inherited.append(self.here)
        self.here = self._make() if self._in_fork is None else self._in_fork(self.here)


_states: weakref.WeakSet[PerProcess[Any]] = weakref.WeakSet()
_inherited: list[object] = []


def _renew_all() -> None:
    for state in _states:
        state.renew()


os.register_at_fork(after_in_child=_renew_all)


class OnePerKey(Generic[Key, Made]):
    """Objects that are created once for each key and process; if `make` raises, nothing is stored. Thread-safe.

    Args:
        make: creates the object of a key. Other threads wait.
        kept: the number of objects; more objects drop the object that was not used for the longest time.
    """

    def __init__(self, make: Callable[[Key], Made], kept: int | None = None) -> None:
        self._make, self._kept = make, kept
        self._objects: PerProcess[_Objects[Key, Made]] = PerProcess(_Objects)

    def of(self, key: Key, secrets: str | None = None) -> Made:
        """Return the object of a key in this process. It is created again if the digest of its secrets has changed."""
        objects = self._objects.here
        with objects.lock:
            digest, instance = objects.made.pop(key, (None, None))
            if instance is None or (secrets is not None and secrets != digest):
                digest, instance = secrets, self._make(key)
            objects.made[key] = digest, instance
            if self._kept is not None and len(objects.made) > self._kept:
                objects.made.pop(next(iter(objects.made)))
            return instance

    def forget(self, key: Key) -> None:
        """Make the next `of` create a new object."""
        objects = self._objects.here
        with objects.lock:
            objects.made.pop(key, None)

    def clear(self) -> None:
        """Drop all objects, to simulate a new process."""
        objects = self._objects.here
        with objects.lock:
            objects.made.clear()


class _Objects(Generic[Key, Made]):
    """The objects of one process by key, the one that was used last is last, and the digests of their secrets."""

    def __init__(self) -> None:
        # Creating an object can need an object of another key.
        self.lock = threading.RLock()
        self.made: dict[Key, tuple[str | None, Made]] = {}


class cached_property(Generic[Value]):  # noqa: N801 - a decorator
    """A property that is computed once for each object. Threads can compute it at the same time, and get one value.

    Before Python 3.12, `functools.cached_property` has one lock for all objects of a class, which it holds during the
    computation (python/cpython#87634). If another thread computes the property during a fork, the forked process waits
    for this lock for ever.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Value: ...

    def __get__(self, instance: object | None, owner: type | None = None) -> cached_property[Value] | Value:
        if instance is None:
            return self
        value: Value = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
