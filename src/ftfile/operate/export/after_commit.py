"""`exportTo`: exports after each commit, in a thread of the driver's process, so that no batch waits for one or fails.

What is missed, since an export failed or the process ended, comes with the next one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context


_log = get_logger(__name__)


def export_soon(
    path: str, formats: tuple[str, ...], storage: Mapping[str, str], context: Context, *, wait_s: float = 0.0
) -> None:
    """Let a directory be exported to these formats; return at once, or after `wait_s` seconds, or when it is done.

    While an export runs, any number of calls lead to one more, with the settings of the last call. A failure is
    logged, once until an export succeeds.
    """
    if not formats:
        return
    key = path, formats
    with _lock:
        exports = _exports.setdefault(key, _Exports(path, formats))
    exports.ask(storage, context).wait(wait_s)


def export_now(path: str, formats: tuple[str, ...], storage: Mapping[str, str], context: Context) -> str:
    """Export a directory to these formats; return what went wrong, empty for nothing."""
    errors = []
    for to in formats:
        try:
            from ftfile.operate.export.export import export  # noqa: PLC0415 - most writers export nothing

            export(path, to, storage=storage, context=context)
        except FtfileError as error:
            errors.append(f"{to}: {error}")
        except Exception as error:  # a thread has nobody to raise it to
            _log.exception("an export to %s failed", to)
            errors.append(f"{to}: {error!r}")
    return "; ".join(errors)


class _Wanted(NamedTuple):
    """An export that has not begun."""

    done: threading.Event
    storage: Mapping[str, str]
    context: Context


class _Exports:
    """The exports of one directory, one at a time."""

    def __init__(self, path: str, formats: tuple[str, ...]) -> None:
        self._path, self._formats = path, formats
        self._lock = threading.Lock()
        self._wanted: _Wanted | None = None
        self._is_running = False
        self._reported_error = ""

    def ask(self, storage: Mapping[str, str], context: Context) -> threading.Event:
        """Let an export begin; return the event of its end."""
        with self._lock:
            done = threading.Event() if self._wanted is None else self._wanted.done
            # Those of an earlier call may have expired, as tokens do.
            self._wanted = _Wanted(done, storage, context)
            if not self._is_running:
                self._is_running = True
                # A daemon: the end of a process does not wait for a store.
                threading.Thread(target=self._run, name="ftfile-export", daemon=True).start()
        return done

    def _run(self) -> None:
        while True:
            with self._lock:
                request, self._wanted = self._wanted, None
                if request is None:
                    self._is_running = False
                    return
            failed = export_now(self._path, self._formats, request.storage, request.context)
            if failed and failed != self._reported_error:
                _log.error("%s is not exported; the next commit, or ftfile.export, tries again: %s", self._path, failed)
            self._reported_error = failed
            request.done.set()


_lock = threading.Lock()
_exports: dict[tuple[str, tuple[str, ...]], _Exports] = {}
