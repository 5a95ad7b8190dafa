"""Parallel calls for many items, some of which fail."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import NotFound, StorageError, Unavailable
from ftfile.core.retries import AWAY_S
from ftfile.storage import calls
from ftfile.storage.calls import parallel
from tests.kit.interrupts import Interrupt

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileSystem

CONCURRENCY = 4
ITEMS = 10 * CONCURRENCY


def calls_made(error: type[StorageError], waited_s: float, concurrency: int) -> int:
    """Return the number of calls; all calls fail after a delay."""
    fs: Any = SimpleNamespace(capabilities=SimpleNamespace(concurrency=concurrency))
    made: list[int] = []

    def call(item: int) -> None:
        made.append(item)
        raised = error("read", str(item), "for some reason")
        if isinstance(raised, Unavailable):
            raised.waited_s = waited_s
        raise raised

    storage: FileSystem = fs
    with pytest.raises(error, match=r"^0: read failed"):
        parallel(storage, call, range(ITEMS))
    return len(made)


@pytest.mark.parametrize("concurrency", [1, CONCURRENCY])
def test_storage_that_is_away_is_not_waited_for_again_and_again(concurrency: int) -> None:
    assert 1 <= calls_made(Unavailable, AWAY_S, concurrency) <= concurrency


@pytest.mark.parametrize("concurrency", [1, CONCURRENCY])
@pytest.mark.parametrize(("error", "waited_s"), [(NotFound, 0.0), (Unavailable, AWAY_S - 1)])
def test_other_errors_hold_up_no_other_item(error: type[StorageError], waited_s: float, concurrency: int) -> None:
    assert calls_made(error, waited_s, concurrency) == ITEMS


def test_an_interrupted_start_leaves_nothing_that_the_end_of_the_process_waits_for() -> None:
    for line in itertools.count(1):
        interrupt = Interrupt(line, below=(calls.__file__,), function="start")
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            calls.start(int)
        deadline_s = time.monotonic() + 10
        while calls._running.here:  # noqa: SLF001 - nothing of the product asks for it
            assert time.monotonic() < deadline_s, f"a call that never started is counted, after line {line}"
        if not interrupt.is_raised:
            break
    assert line > 5


AT_EXIT = """
import atexit, sys
import ftfile
from ftfile.testing.micro_batch import MicroBatch

path = sys.argv[1]
options = {"rolling": "policy", "partitionBy": "n"}
MicroBatch(path, {"id": "long", "n": "long"}, options).run(0, [[{"id": n, "n": n} for n in range(9)]])


def at_exit():
    print(ftfile.flush(path, threads=4).files)
    print(ftfile.verify(path, full=True).rows)


atexit.register(at_exit)
"""


@pytest.mark.slow
def test_a_process_that_exits_works_on_without_threads(tmp_path: Path) -> None:
    """Python's pools accept no calls then, including the calls at the end of a session."""
    code = [sys.executable, "-c", AT_EXIT, str(tmp_path / "out")]
    ended = subprocess.run(code, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["9", "9"], ended.stderr
