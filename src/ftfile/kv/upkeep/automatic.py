"""The automatic vacuum of a store, which commits start in a thread."""

from __future__ import annotations

import contextvars
import threading
from functools import partial
from typing import TYPE_CHECKING

from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger
from ftfile.core.per_process import PerProcess
from ftfile.log.read.times import created_ms
from ftfile.log.vacuum import vacuum

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.context import Context
    from ftfile.kv.config import StoreConfig
    from ftfile.log.commit_log import CommitLog


_log = get_logger(__name__)


class _Vacuums:
    """The vacuums of this process by path."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last_ms: dict[str, int] = {}  # start of the last vacuum known to this process
        self.threads: dict[str, threading.Thread] = {}  # the last vacuum, which may be running


_vacuums = PerProcess(_Vacuums)


def start_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread, whose work can be aborted safely; its log messages contain the caller's job."""
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name=name, daemon=True)
    thread.start()
    return thread


def vacuum_if_due(config: StoreConfig, log: CommitLog) -> threading.Thread | None:
    """Start a vacuum in a thread if `vacuumInterval` has passed since the last vacuum; return the thread, or None.

    The vacuum keeps the files that versions of the last `grace` need. Never raises: errors are logged, and the vacuum
    is retried after the next interval. Processes read from the log when the last vacuum that deleted files ran.
    """
    path, now_ms, interval_ms = config.path, log.clock.now_ms(), 1000 * config.vacuum_interval_s
    vacuums = _vacuums.here
    with vacuums.lock:
        last_ms = vacuums.last_ms.get(path, 0)
        is_running = path in vacuums.threads and vacuums.threads[path].is_alive()
        if interval_ms <= 0 or now_ms - last_ms < interval_ms or is_running:
            return None
        vacuums.last_ms[path] = now_ms  # so that no other thread reads the log meanwhile
    is_due = False
    try:
        last_ms = max(last_ms, _recorded_ms(log, config.grace_s))
        is_due = now_ms - last_ms >= interval_ms
    except FtfileError as error:
        _log.warning("cannot determine if %s must be vacuumed: %s", path, error)
    if not is_due:
        vacuums.last_ms[path] = last_ms
        return None
    thread = vacuums.threads[path] = start_thread(f"vacuum of {path}", partial(_vacuum, config, log.fs.context))
    return thread


def _recorded_ms(log: CommitLog, grace_s: float) -> int:
    """Return the time of the last recorded vacuum; without one, the time of the oldest record."""
    head = log.refresh()
    if head.horizon_ms > 0:
        return head.horizon_ms + round(1000 * grace_s)
    return created_ms(log, head.log_start) or 0


def forget_vacuums() -> None:
    """Clear the start times of vacuums, as in a new process."""
    vacuums = _vacuums.here
    with vacuums.lock:
        vacuums.last_ms.clear()


def _vacuum(config: StoreConfig, context: Context) -> None:
    path, encryption = config.path, config.common.encryption
    try:
        vacuum(
            path,
            dry_run=False,
            retention=f"{round(1000 * config.grace_s)}ms",
            force=True,
            key_provider=None if encryption is None else encryption.keys.reference,
            storage=dict(config.common.storage.client_settings),
            context=context,
        )
    except FtfileError as error:
        _log.warning("vacuum of %s failed and will be retried: %s", path, error)
    except Exception:
        _log.exception("vacuum of %s failed and will be retried", path)
