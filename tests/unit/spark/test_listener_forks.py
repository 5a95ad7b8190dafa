"""A fork of a driver leaves the streams of the driver alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """\
import atexit, os, sys
from ftfile.spark import listener

class Query:
    runId = "run"
    def stop(self):
        print("the stream is stopped", flush=True)

class Session:
    def __init__(self):
        self.streams, self.active = self, [Query()]

class Keeper:
    def stop(self):
        print("the tokens are deleted", flush=True)

session = Session()
flusher = listener._Flusher(session)
flusher._places["run"] = "a place"
listener._tend = lambda place, due_only: print("the files are finished", flush=True)
listener._attached.here[session], listener._keepers.here[1] = flusher, Keeper()
atexit.register(flusher.finish)
atexit.register(listener._keepers.here[1].stop)
child = os.fork()
if child:
    os.waitpid(child, 0)
    print("the fork has ended", flush=True)
"""


@pytest.mark.slow
def test_the_end_of_a_fork_stops_no_stream_and_deletes_no_tokens() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    lines = ["the fork has ended", "the tokens are deleted", "the stream is stopped", "the files are finished"]
    assert run.stdout.splitlines() == lines
