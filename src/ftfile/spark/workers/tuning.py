"""Changes to a Python process of Spark that save time in small batches.

Each of them can be switched off for all processes with the environment variable `FTFILE_TUNE_WORKERS=false`, for
example if a later version of Spark or Python changes what it depends on. None of them changes a result.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import stat
import sys
import weakref
from typing import TYPE_CHECKING
from zipimport import zipimporter

from pyspark import __version__ as spark_version

from ftfile.core.context import is_worker
from ftfile.core.per_process import PerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("SWITCH", "acknowledge_at_once", "importing", "tune_worker")

SWITCH = "FTFILE_TUNE_WORKERS"
# In these versions, Spark calls `importlib.invalidate_caches` at each use of a worker; in later ones, only if the path
# has changed (SPARK-54744).
_INVALIDATING_SPARKS = ("4.0.", "4.1.")

# The number of modules when this process was last frozen; empty before the first use.
_frozen: PerProcess[list[int]] = PerProcess(list)
_read_archive = zipimporter.invalidate_caches
_signatures: PerProcess[weakref.WeakKeyDictionary[zipimporter, tuple[int, int, int] | None]] = PerProcess(
    weakref.WeakKeyDictionary
)


def _is_switched_on() -> bool:
    return os.environ.get(SWITCH, "").lower() not in {"false", "0", "no"}


def tune_worker() -> None:
    """Tune a worker; call it at each use. It changes nothing in a program of the user."""
    if is_worker() and _is_switched_on():
        _freeze_modules()
        if spark_version.startswith(_INVALIDATING_SPARKS):
            # Python offers no hook for this method.
            zipimporter.invalidate_caches = _read_changed_archive  # type: ignore[assignment, method-assign]


def _freeze_modules() -> None:
    """Exclude imported modules from garbage collections, from the second use of a worker on.

    Spark collects after each use of a worker. With the modules, a collection takes 10 ms of the processor. The modules
    that one use has imported are frozen in the next one: the collection in between removes garbage first.
    """
    modules = len(sys.modules)
    frozen = _frozen.here
    if frozen and modules > frozen[0]:
        gc.freeze()
    frozen[:] = [modules if frozen else 0]


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage while the block imports modules.

    Imports create objects that stay, so collections free nothing. They take 20 ms of each new process.
    """
    is_tuned = is_worker() and _is_switched_on() and gc.isenabled()
    if is_tuned:
        gc.disable()
    try:
        yield
    finally:
        if is_tuned:
            gc.enable()


def _read_changed_archive(importer: zipimporter) -> None:
    """Read the directory of a zip archive, such as `pyspark.zip`, again only if its file has changed.

    It replaces `zipimporter.invalidate_caches`, which reads the directory at each call, and for each package in it: 45
    to 70 ms of the processor at each use of a worker: python/cpython#103200.
    """
    try:
        info = os.stat(importer.archive)
        signature = (info.st_size, info.st_mtime_ns, info.st_ino)
    except OSError:
        signature = None
    if signature != _signatures.here.get(importer, ()):
        _read_archive(importer)
        _signatures.here[importer] = signature


def acknowledge_at_once() -> None:
    """Acknowledge the first bytes of the JVM at once, which Linux otherwise delays by 40 ms.

    Spark sends the first bytes of a task in small pieces. With Nagle's algorithm on its side and a delayed
    acknowledgement on this side, each batch waits. Unix sockets are not affected. Seen with Spark 4.3.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not _is_switched_on():
        return
    for descriptor in _sockets():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in {socket.AF_INET, socket.AF_INET6} and connection.type == socket.SOCK_STREAM:
                connection.setsockopt(socket.IPPROTO_TCP, option, 1)


def _sockets() -> list[int]:
    descriptors = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    descriptors.append(int(name))
    return descriptors
