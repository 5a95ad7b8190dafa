"""Spares a small batch the 40 ms for which Linux delays the acknowledgement of the JVM's first bytes."""

from __future__ import annotations

import contextlib
import os
import socket
import stat


def acknowledge_at_once() -> None:
    """Ask for immediate acknowledgements on every TCP connection of this worker process.

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
