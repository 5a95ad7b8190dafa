"""Fuzzes targets with atheris, one after the other: `python -m tests.fuzz.one FOLDER SECONDS TARGET...`.

Below FOLDER/TARGET, `corpus` contains the inputs to begin with, to which inputs that reach other code are added. A
target ends at the first input that causes an error that it does not document, which is written to `found`. The output
is written to `log`. Each target runs in a fork, because instrumented imports are slow.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import atheris

# atheris prints the name of each module.
with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["ftfile"]):
    from tests.fuzz.results import run_of
    from tests.fuzz.target import accepts, scratch
    from tests.fuzz.targets import target_named
    from tests.hostile.watched import Watch

INPUT_S = 2
# libFuzzer counts the memory of the whole process, about 350 MB of which are imports and the instrumentation.
PROCESS_MB, INPUT_MB = 350, 512
# After the time of a target, a process that does not end is killed.
_LATE_S = 120
_LENGTH_MAX = 4096


def fuzz(name: str, folder: Path, seconds: int) -> None:
    """Fuzz a target; ends the process."""
    logging.disable()
    warnings.simplefilter("ignore")
    corpus, found = folder / "corpus", folder / "found"
    inputs = [path.read_bytes() for path in corpus.iterdir()]
    with atheris.instrument_imports(include=["ftfile"]):  # some modules are imported when they are used
        target = target_named(name)
        for data in inputs:
            accepts(target, data)
    watch = Watch(scratch())
    sys.addaudithook(watch)
    watch.directory = scratch()

    def parse(data: bytes) -> None:
        accepts(target, data)
        if watch.misdeeds:
            raise AssertionError(f"the input causes {sorted(watch.misdeeds)}")

    arguments = [
        f"-max_total_time={seconds}",
        f"-timeout={INPUT_S}",
        f"-rss_limit_mb={PROCESS_MB + INPUT_MB}",
        f"-malloc_limit_mb={INPUT_MB}",
        f"-max_len={max(_LENGTH_MAX, *map(len, inputs))}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], parse)
    atheris.Fuzz()


def fuzz_in_fork(name: str, folder: Path, seconds: int) -> None:
    """Fuzz a target in another process, and print its result."""
    shutil.rmtree(folder / "found", ignore_errors=True)
    (folder / "found").mkdir()
    child = os.fork()
    if child == 0:
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        fuzz(name, folder, seconds)
        sys.exit(1)  # after a finding, atheris exits, and libFuzzer writes the input
    end_s = time.monotonic() + seconds + _LATE_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end_s:
            os.kill(child, signal.SIGKILL)
            end_s = float("inf")
        time.sleep(0.1)  # Python has no wait for a child with a limit
    print(run_of(name, folder).row(), flush=True)


def main(folder: str, seconds: str, *names: str) -> None:
    """Fuzz targets."""
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["ftfile"]):
        for name in names:
            target_named(name)
    for name in names:
        fuzz_in_fork(name, Path(folder) / name, int(seconds))


if __name__ == "__main__":
    main(*sys.argv[1:])
