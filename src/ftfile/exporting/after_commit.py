"""`exportTo`: exports after each commit, in a thread of the driver's process, so that no batch waits for one or fails.

What is missed, since an export failed or the process ended, comes with the next one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger
from ftfile.exporting.run import export

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context

__all__ = ("export_now", "export_soon")

_log = get_logger(__name__)


def export_soon(
    path: str, formats: tuple[str, ...], storage: Mapping[str, str], context: Context, *, wait_s: float = 0.0
) -> None:
    """Let a directory be exported to these formats; return at once, or after `wait_s` seconds, or when it is done.

    While an export runs, any number of calls lead to one more. A failure is logged, once until an export succeeds.
    """
    if not formats:
        return
    key = path, formats
    with _lock:
        if key not in _exports:
            _exports[key] = _Exports(path, formats, storage, context)
        exports = _exports[key]
    exports.ask().wait(wait_s)


def export_now(path: str, formats: tuple[str, ...], storage: Mapping[str, str], context: Context) -> str:
    """Export a directory to these formats; return what went wrong, empty for nothing."""
    errors = []
    for to in formats:
        try:
            export(path, to, storage=storage, context=context)
        except FtfileError as error:
            errors.append(f"{to}: {error}")
        except Exception as error:  # a thread has nobody to raise it to
            _log.exception("an export to %s failed", to)
            errors.append(f"{to}: {error!r}")
    return "; ".join(errors)


class _Exports:
    """The exports of one directory, one at a time."""

    def __init__(self, path: str, formats: tuple[str, ...], storage: Mapping[str, str], context: Context) -> None:
        self._arguments = path, formats, storage, context
        self._lock = threading.Lock()
        self._wanted: threading.Event | None = None  # set when an export that begins later is done
        self._is_running = False
        self._told = ""

    def ask(self) -> threading.Event:
        """Let an export begin; return the event of its end."""
        with self._lock:
            if self._wanted is None:
                self._wanted = threading.Event()
            wanted = self._wanted
            if not self._is_running:
                self._is_running = True
                # A daemon: the end of a process does not wait for a store.
                threading.Thread(target=self._run, name="ftfile-export", daemon=True).start()
        return wanted

    def _run(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._is_running = False
                    return
            failed = export_now(*self._arguments)
            if failed and failed != self._told:
                path = self._arguments[0]
                _log.error("%s is not exported; the next commit, or ftfile.export, tries again: %s", path, failed)
            self._told = failed
            wanted.set()


_lock = threading.Lock()
_exports: dict[tuple[str, tuple[str, ...]], _Exports] = {}
