"""Forks that wait until other threads have finished imports and first calls of Arrow."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see the registration below
import logging  # noqa: F401
import os
import sys
import threading
from typing import TYPE_CHECKING

from ftfile.core.arrow_start import start_arrow
from ftfile.core.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

# The longest wait of a fork, and the time between two looks, in seconds.
WAIT_S, LOOK_S = 10.0, 0.001
# This package, and the libraries that it and Arrow import during calls. An import of another package may never end.
_LIBRARIES = ("ftfile", "botocore", "fastavro", "fsspec", "hdfs_native", "numpy", "pandas", "pyarrow")
_PACKAGES = frozenset(_LIBRARIES) | sys.stdlib_module_names
_clock = SystemClock()


def prepare_fork() -> None:
    """Wait until other threads have finished what a forked process would wait for, without them, for ever."""
    wait_for_imports()
    while start_arrow():  # another thread can have begun an import meanwhile
        wait_for_imports()


def wait_for_imports() -> None:
    """Wait until no other thread imports a module that calls of this package use.

    A fork copies the locks of modules, and Python renews none of them: python/cpython#50970. A fork during an import
    waits for `WAIT_S` at most, because the import can need a module that the thread of the fork is importing.
    """
    deadline_s = _clock.monotonic_s() + WAIT_S
    while _is_importing() and _clock.monotonic_s() < deadline_s:
        _clock.sleep(LOOK_S)


def _is_importing() -> bool:
    # Python has no public list of the imports in progress. A Python without this one does not wait.
    for name, reference in _module_locks().copy().items():
        if name.partition(".")[0] in _PACKAGES and getattr(reference(), "owner", None) != threading.get_ident():
            return True
    return False


def forget_imports() -> None:
    """In a forked process, forget the imports of other threads of the parent, so that it can import their modules.

    Another thread can begin an import after the wait, before the fork, and an import can take longer than the wait.
    """
    locks = _module_locks()
    for name, reference in locks.copy().items():
        if getattr(reference(), "owner", None) == threading.get_ident():
            continue
        locks.pop(name, None)
        specification = getattr(sys.modules.get(name), "__spec__", None)
        if getattr(specification, "_initializing", False):
            del sys.modules[name]


def _module_locks() -> dict[str, Callable[[], object]]:
    locks: dict[str, Callable[[], object]] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    return locks


# Calls before a fork run in the opposite order of their registration. So this call runs before the call of `logging`,
# which takes a lock that imports need. `logging` and `concurrent.futures` must not be imported while this call waits:
# their calls after the fork would release locks that were not acquired.
os.register_at_fork(before=prepare_fork, after_in_child=forget_imports)
