from __future__ import annotations

import subprocess
import sys
import threading
from collections import deque

import pytest

from ftfile.core.per_process import PerProcess
from ftfile.storage import calls as deadline
from ftfile.storage.calls import NoThreadError, run_within, start


def test_a_call_that_hangs_is_left_to_itself() -> None:
    ended = threading.Event()

    def fail() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run_within(100, fail)
    with pytest.raises(TimeoutError, match=r"no response within 0\.01 s"):
        run_within(0.01, lambda: ended.wait(100))
    ended.set()
    assert run_within(100, lambda: "next") == "next"


@pytest.mark.slow
@pytest.mark.parametrize("call", ["end", "lambda: (time.sleep(0.2), start(end))"])
def test_the_process_does_not_end_amid_a_call(call: str) -> None:
    code = f"""
import time
from ftfile.storage.calls import start
end = lambda: (time.sleep(0.3), print("ended"))
start({call})
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"ended\n"


@pytest.mark.slow
def test_the_process_does_not_end_amid_the_closing_of_what_a_call_had_open() -> None:
    """Arrow's files call Python when they are freed; the process would be aborted."""
    code = """
import time
import pyarrow as pa
from ftfile.storage.calls import start

class Slow:
    closed = False

    def __del__(self):
        end_s = time.monotonic() + 0.3
        while time.monotonic() < end_s:
            sum(range(1000))
        print("closed")

def call(file=pa.PythonFile(Slow(), mode="r")):
    return "answer"

answer = start(call)
del call
print(answer.result())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, b"answer\nclosed\n"), ended.stderr


@pytest.mark.slow
def test_the_process_ends_amid_a_call_that_was_cut() -> None:
    code = """
import contextlib, time
from ftfile.storage.calls import run_within
with contextlib.suppress(TimeoutError):
    run_within(0.01, lambda: (time.sleep(100), print("ended")), cut=lambda: print("cut"))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"cut\n"


@pytest.mark.slow
def test_the_process_ends_amid_a_call_that_takes_too_long() -> None:
    code = """
import time
from ftfile.storage import calls
calls.EXIT_WAIT_S = 0.01
calls.start(lambda: (time.sleep(100), print("ended")))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b""


@pytest.mark.slow
def test_the_process_does_not_end_before_threads_of_compiled_code_are_through() -> None:
    """Python does not wait for such a thread, which calls Python code for a while, pauses, and calls it again."""
    code = """
import threading, time
from ftfile.storage import calls
calls.QUIET_S = 1
begun = threading.Event()

def work():
    for number in range(3):
        with calls.visit():
            begun.set()
            time.sleep(0.2)
        time.sleep(0.05)
    print("through")

threading.Thread(target=work, daemon=True).start()
begun.wait()
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"through\n"


def test_a_process_without_threads_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(deadline, "_idle", PerProcess(deque))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(NoThreadError, match="raise the limit of threads"):
        start(lambda: None)
