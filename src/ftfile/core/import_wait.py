"""Forks that wait until other threads have finished their imports."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see the registration below
import logging  # noqa: F401
import os
import sys
import threading

from ftfile.core.clock import SystemClock

# The longest wait of a fork, and the time between two looks, in seconds.
WAIT_S, LOOK_S = 10.0, 0.001
# This package, and the libraries that it and Arrow import during calls. An import of another package may never end.
_PACKAGES = frozenset(("ftfile", "botocore", "fastavro", "fsspec", "hdfs_native", "numpy", "pandas", "pyarrow"))
_clock = SystemClock()


def wait_for_imports() -> None:
    """Wait until no other thread imports a module that calls of this package use.

    A fork copies the locks of modules, and Python renews none of them. If another thread imported a module during the
    fork, the forked process would wait for this module for ever. A fork during an import waits for `WAIT_S` at most,
    because the import can need a module that the thread of the fork is importing.
    """
    deadline_s = _clock.monotonic_s() + WAIT_S
    while _is_importing() and _clock.monotonic_s() < deadline_s:
        _clock.sleep(LOOK_S)


def _is_importing() -> bool:
    # Python has no public list of the imports in progress. A Python without this one does not wait.
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, reference in locks.copy().items():
        if name.partition(".")[0] in _PACKAGES and getattr(reference(), "owner", None) != threading.get_ident():
            return True
    return False


# Calls before a fork run in the opposite order of their registration. So this call runs before the call of `logging`,
# which takes a lock that imports need. `logging` and `concurrent.futures` must not be imported while this call waits:
# their calls after the fork would release locks that were not acquired.
os.register_at_fork(before=wait_for_imports)
