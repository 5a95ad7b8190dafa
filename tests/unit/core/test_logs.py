"""Every log line names its query and batch."""

from __future__ import annotations

import contextlib
import contextvars
import logging
import re
import subprocess
import sys
import threading

import pytest

from ftfile.core.logs import get_logger, log_context
from tests.kit.interrupts import Interrupt, LibraryInterrupt


def test_lines_carry_query_and_batch(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("ftfile.test")
    with log_context(query="q1", batch=7):
        log.warning("inside %d", 1)
    with log_context(operation="j"):
        log.warning("an operation")
    with log_context(batch=3):
        log.warning("of a batch")
    with log_context():
        log.warning("without a context")
    log.warning("outside")
    assert [record.getMessage() for record in caplog.records] == [
        "[query q1 batch 7] inside 1",
        "[operation j] an operation",
        "[batch 3] of a batch",
        "without a context",
        "outside",
    ]


def test_an_interrupt_at_any_line_leaves_no_name(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("ftfile.test")
    for line in range(1, 100):
        with contextlib.suppress(KeyboardInterrupt), Interrupt(line) as interrupt, log_context(query="outer"):
            with contextlib.suppress(ValueError), log_context(query="inner"):
                log.debug("inside")
            log.warning("after")
        log.warning("outside")
        if not interrupt.is_raised:
            break
    assert line > 10
    assert {*caplog.messages} == {"[query outer] after", "outside"}


def test_a_block_that_ends_in_another_thread_leaves_the_names_there(caplog: pytest.LogCaptureFixture) -> None:
    block = log_context(query="abandoned")
    contextvars.copy_context().run(block.__enter__)
    with log_context(query="q1"):
        block.__exit__(None, None, None)
        get_logger("ftfile.test").warning("inside")
    assert caplog.messages == ["[query q1] inside"]


PROGRAM = """
import logging, sys
from ftfile.core.logs import get_logger
log = get_logger("ftfile.test")
if sys.argv[1] == "root":
    logging.basicConfig(format="root: %(message)s")
elif sys.argv[1] == "own":
    logging.getLogger("ftfile").addHandler(logging.StreamHandler())
log.info("not shown")
log.warning("hear %d", 1)
"""


@pytest.mark.parametrize(
    ("configured", "line"),
    [
        ("not", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING ftfile\.test: hear 1\n"),
        ("root", r"root: hear 1\n"),
        ("own", r"hear 1\n"),
    ],
)
def test_lines_have_time_level_and_logger_where_logging_is_not_configured(configured: str, line: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, configured], capture_output=True, text=True, check=True)
    assert re.fullmatch(line, done.stderr)


def test_ctrl_c_while_a_message_is_written_stops_no_other_thread() -> None:
    log = get_logger("ftfile.signals")
    (handler,) = logging.getLogger("ftfile").handlers
    for call in range(1, 100):
        interrupt = LibraryInterrupt(call)
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            log.warning("a message")
        other = threading.Thread(target=log.warning, args=("another message",), daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive(), f"{handler} is locked after an interrupt at call {call}"
        if interrupt.calls < call:
            break
    assert call > 5
