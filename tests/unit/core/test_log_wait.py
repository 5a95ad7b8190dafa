from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from ftfile.core import log_wait
from tests.kit.forks import Fork

if TYPE_CHECKING:
    import pytest

LIMIT_S = 20


class SlowHandler(logging.Handler):
    """Writes messages as long as the test wants, with a lock that `logging` does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end, self.file = threading.Event(), threading.Event(), threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        with self.file:
            self.begun.set()
            if record.msg == "slow":
                self.may_end.wait(LIMIT_S)


def logger_of(handler: logging.Handler) -> logging.Logger:
    logger = logging.Logger("test")  # noqa: LOG001 - not among the loggers of other tests
    logger.addHandler(handler)
    return logger


def test_a_fork_waits_until_another_thread_has_written_its_message() -> None:
    handler = SlowHandler()
    logger = logger_of(handler)
    thread = threading.Thread(target=logger.error, args=("slow",))
    thread.start()
    handler.begun.wait(LIMIT_S)
    threading.Timer(0.1, handler.may_end.set).start()
    Fork(lambda: logger.error("of the fork")).join()
    assert handler.may_end.is_set()
    thread.join()
    later = threading.Thread(target=logger.error, args=("of the parent",), daemon=True)
    later.start()
    later.join(LIMIT_S)
    assert not later.is_alive()


def test_a_fork_waits_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_wait, "WAIT_S", 0.05)
    handler = SlowHandler()
    thread = threading.Thread(target=logger_of(handler).error, args=("slow",))
    thread.start()
    handler.begun.wait(LIMIT_S)
    Fork(lambda: None).join()
    assert not handler.may_end.is_set()
    handler.may_end.set()
    thread.join()


def test_a_fork_during_a_message_of_its_own_thread() -> None:
    class Forking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            del record
            Fork(lambda: logging.getLogger("test_log_wait").info("of the fork")).join()

    logger_of(Forking()).error("of the parent")
