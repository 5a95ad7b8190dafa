"""Reads hostile inputs, each in a separate process with limited memory and time.

Its arguments are a directory, in which it writes each file before it reads it, and names of `INPUTS`, by default all.
For each input it prints its outcome as a line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

from ftfile.errors import FtfileError
from ftfile.formats.reading import memory_limit
from ftfile.source.decode import rows_of_share
from ftfile.source.plan import SourcePlan
from ftfile.source.settings import FileDecoding
from tests.hostile.inputs import INPUTS, READ, Input
from tests.hostile.watched import CALL_S, bound_time, data_bytes
from tests.unit.source.planned import Files

FAR = 4


def outcome(file: Input, files: Files) -> str:
    """Return the class of ftfile's error for a file, `READ`, or a text for any other outcome. Rows are not kept."""
    planned, decoding = files.whole(file.name), FileDecoding(file.file_format, **file.options)
    (share,) = SourcePlan((planned,)).shares(decoding.max_partition_bytes)
    # If ftfile limits the process, the test's limit is far higher, so that it is not reached.
    limit = data_bytes() + file.memory_bytes * (FAR if file.is_limited else 1)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    start_bytes = resident_bytes()
    try:
        for _ in rows_of_share(files.fs, share, file.schema, decoding):
            pass
    except FtfileError as error:
        taken_bytes = resident_bytes() - start_bytes
        if file.is_limited:
            return type(error).__name__ if taken_bytes <= file.memory_bytes else f"took {taken_bytes} bytes"
        # A memory error as the cause of another error means that ftfile has set no limit.
        return f"raised {error.__cause__!r:.200}" if _is_of_memory(error) else type(error).__name__
    except BaseException as error:  # including MemoryError
        return f"raised {error!r:.200}"
    return READ


def resident_bytes() -> int:
    """Return the peak memory of this process."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def _is_of_memory(error: BaseException | None) -> bool:
    if error is None:
        return False
    return isinstance(error, MemoryError) or "MemoryError" in str(error) or _is_of_memory(error.__cause__)


def guarded(file: Input, files: Files) -> str:
    """Return the outcome of a file in a separate process, or the signal that ended that process."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        bound_time(processor_s=3 * CALL_S)  # Python objects for millions of values take 10 s on slow processors
        os.write(sending, outcome(file, files).encode())
        os._exit(0)
    os.close(sending)
    text = os.read(receiving, 1 << 10).decode()  # empty if the process ended without output
    os.close(receiving)
    _, status = os.waitpid(child, 0)
    return text or f"ended by {signal.Signals(os.WTERMSIG(status)).name}"


def write(file: Input, files: Files) -> None:
    """Write a file in a separate process: otherwise its peak memory would hide the memory of a reader."""
    child = os.fork()
    if child == 0:
        files.write(file.name, file.content())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert not status, f"{file.name} could not be written"


def main(*names: str) -> None:
    """Print the outcome of each of these inputs as in a Spark worker."""
    memory_limit.is_worker = lambda: True  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as directory:
        files = Files(Path(directory))
        for name in names or INPUTS:
            file = INPUTS[name]
            write(file, files)
            print(json.dumps([name, guarded(file, files)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
