"""The Python process that Spark started, and reuses from batch to batch: what spares small batches time in it."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys
import weakref
from zipimport import zipimporter

from pyspark import __version__ as spark_version

# The program in which Spark builds a stream's writer only to commit or abort a batch, and the one that forks workers,
# whose argument names the program that they run. An imported module proves nothing: daemons may import it beforehand.
_COMMITTER, _DAEMON = "pyspark.sql.worker.python_streaming_sink_runner", "pyspark.daemon"

# How many modules this process has frozen; empty before its first use.
_frozen: list[int] = []

# These have Python forget what it knows of all imports at each use of a worker; later ones, if the path has changed.
_INVALIDATING_SPARKS = ("4.0.", "4.1.")
_read_archive = zipimporter.invalidate_caches
_signatures: weakref.WeakKeyDictionary[zipimporter, tuple[int, int, int] | None] = weakref.WeakKeyDictionary()


def is_worker() -> bool:
    """Return True in a process that Spark started to run Python."""
    return _main_module().startswith("pyspark.")


def only_commits() -> bool:
    """Return True in a process of Spark that commits or aborts the batches of streams, and neither plans nor writes."""
    program = _main_module()
    return program == _COMMITTER or (program == _DAEMON and sys.argv[1:2] == [_COMMITTER])


def _main_module() -> str:
    """Return the name of the program, empty if it is no module."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if spec is None else spec.name


def tune_worker() -> None:
    """Spare a worker, from its second use on, work that Spark and Python repeat in each; call it once a use.

    It does nothing in a program of the user's.
    """
    if is_worker():
        _freeze_modules()
        if spark_version.startswith(_INVALIDATING_SPARKS):
            zipimporter.invalidate_caches = _read_changed_archive  # type: ignore[assignment, method-assign]


def _freeze_modules() -> None:
    """Keep what a worker has imported out of garbage collections, from its second use on.

    Spark collects after each use of a worker, and modules alone make that take some 10 ms of the processor. What a use
    has imported is frozen in the next one: the collection in between leaves little garbage to be kept.
    """
    modules = len(sys.modules)
    if _frozen and modules > _frozen[0]:
        gc.freeze()
    _frozen[:] = [modules if _frozen else 0]


def _read_changed_archive(importer: zipimporter) -> None:
    """Read the directory of a zip archive, such as `pyspark.zip`, again only if its file has changed.

    It stands for `zipimporter.invalidate_caches`, which reads it each time, and for each package in it: 45 to 70 ms of
    the processor at each use of a worker.
    """
    try:
        info = os.stat(importer.archive)
        signature = (info.st_size, info.st_mtime_ns, info.st_ino)
    except OSError:
        signature = None
    if signature != _signatures.get(importer, ()):
        _read_archive(importer)
        _signatures[importer] = signature


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
