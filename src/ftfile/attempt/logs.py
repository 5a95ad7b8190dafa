"""The logs of the directories to which this process writes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ftfile.attempt.encryption import open_to_write
from ftfile.commit.log.log import CommitLog

if TYPE_CHECKING:
    from ftfile.attempt.encryption import Encryption
    from ftfile.core.context import Context

    Settings = tuple[tuple[str, str], ...]

LOGS_KEPT = 16

_logs: dict[tuple[object, ...], CommitLog] = {}
_lock = threading.Lock()


def log_at(
    path: str, context: Context, settings: Settings, encryption: Encryption | None, offered: Settings = ()
) -> CommitLog:
    """Return this process's log of a directory; its cached state is checked before every use. Safe for threads.

    See `open_to_write` for the arguments. The settings may not be checked against the store yet.
    """
    key = (path, context, settings, encryption, offered)
    with _lock:  # one log for all who write to the directory: they take turns by its lock
        log = _logs.pop(key, None) or CommitLog(open_to_write(path, context, settings, encryption, offered))
        _logs[key] = log
        if len(_logs) > LOGS_KEPT:
            _logs.pop(next(iter(_logs)))
        return log


def forget_logs() -> None:
    """Drop the logs, as a new process would start."""
    with _lock:
        _logs.clear()
