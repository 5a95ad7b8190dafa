"""The Python process that Spark started, and reuses from batch to batch: what spares small batches time in it."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys

# How many modules this process has frozen; empty before its first use.
_frozen: list[int] = []


def is_worker() -> bool:
    """Return True in a process that Spark started to run Python."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


def freeze_modules() -> None:
    """Keep what a worker has imported out of garbage collections, from its second use on; call it once a use.

    Spark collects after each use of a worker, and modules alone make that take some 10 ms of the processor. What a use
    has imported is frozen in the next one: the collection in between leaves little garbage to be kept.
    """
    if is_worker():
        modules = len(sys.modules)
        if _frozen and modules > _frozen[0]:
            gc.freeze()
        _frozen[:] = [modules if _frozen else 0]


def acknowledge_at_once() -> None:
    """Spare a small batch the 40 ms for which Linux delays the acknowledgement of the JVM's first bytes.

    Spark sends a task's first bytes in small pieces; with Nagle's algorithm on its side and a delayed
    acknowledgement on ours, each batch waits. It does nothing for unix sockets, and nothing but save time.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None:
        return
    for descriptor in _sockets():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in {socket.AF_INET, socket.AF_INET6} and connection.type == socket.SOCK_STREAM:
                connection.setsockopt(socket.IPPROTO_TCP, option, 1)


def _sockets() -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    found.append(int(name))
    return found
