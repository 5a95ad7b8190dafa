"""The automatic vacuum of a store, which commits start in a thread."""

from __future__ import annotations

import contextvars
import threading
from functools import partial
from typing import TYPE_CHECKING

from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger
from ftfile.log.read.times import created_ms
from ftfile.log.vacuum import vacuum

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.context import Context
    from ftfile.kv.config import StoreConfig
    from ftfile.log.commit_log import CommitLog


_lock = threading.Lock()
_last_ms: dict[str, int] = {}  # by path: when a vacuum began, as far as this process knows
_vacuums: dict[str, threading.Thread] = {}  # by path: the last one, which may be under way
_log = get_logger(__name__)


def start_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """Start a thread that loses nothing if it dies halfway with its process; its messages carry the caller's job."""
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name=name, daemon=True)
    thread.start()
    return thread


def vacuum_if_due(config: StoreConfig, log: CommitLog) -> threading.Thread | None:
    """Start a vacuum in a thread if `vacuumInterval` has passed since the last one; return the thread, or None.

    It keeps what versions of the last `grace` need. Nothing is raised: what fails is logged, and tried again after the
    next interval. The log tells a new process, and others, when the last vacuum was that deleted anything.
    """
    path, now_ms, interval_ms = config.path, log.clock.now_ms(), 1000 * config.vacuum_interval_s
    with _lock:
        last_ms = _last_ms.get(path, 0)
        is_running = path in _vacuums and _vacuums[path].is_alive()
        if interval_ms <= 0 or now_ms - last_ms < interval_ms or is_running:
            return None
        _last_ms[path] = now_ms  # no other thread looks into the log meanwhile
    is_due = False
    try:
        last_ms = max(last_ms, _recorded_ms(log, config.grace_s))
        is_due = now_ms - last_ms >= interval_ms
    except FtfileError as error:
        _log.warning("cannot determine if %s must be vacuumed: %s", path, error)
    if not is_due:
        _last_ms[path] = last_ms
        return None
    thread = _vacuums[path] = start_thread(f"vacuum of {path}", partial(_vacuum, config, log.fs.context))
    return thread


def _recorded_ms(log: CommitLog, grace_s: float) -> int:
    """Return when the log says that the store was vacuumed: the time of its oldest record, if it says nothing."""
    head = log.refresh()
    if head.horizon_ms > 0:
        return head.horizon_ms + round(1000 * grace_s)
    return created_ms(log, head.log_start) or 0


def forget_vacuums() -> None:
    """Forget when vacuums began, as a new process would start."""
    with _lock:
        _last_ms.clear()


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
