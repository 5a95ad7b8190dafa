"""Forks that wait until other threads have written their log messages.

`logging` renews the locks of its handlers in a fork, but not the lock of the file to which a handler was writing: the
first message of the forked process would wait for that lock for ever.
"""

from __future__ import annotations

import logging
import os

# The longest wait for one handler, in seconds. A handler can wait for a handler that this thread holds already.
WAIT_S = 1.0
_held: list[logging.Handler] = []


def hold_handlers() -> None:
    """Wait until no other thread writes a message, and keep other threads from writing until the fork."""
    # Python has no public list of handlers. A Python without this one does not wait.
    for reference in tuple(getattr(logging, "_handlerList", ())):
        handler = reference()
        if handler is not None and handler.lock is not None and handler.lock.acquire(timeout=WAIT_S):
            _held.append(handler)


def release_handlers() -> None:
    """Let other threads of the parent write messages again."""
    while _held:
        handler = _held.pop()
        if handler.lock is not None:
            handler.lock.release()


# In the forked process, `logging` has renewed the locks.
os.register_at_fork(before=hold_handlers, after_in_parent=release_handlers, after_in_child=_held.clear)
