"""Ctrl-C within functions of Python that a writer calls: Python runs signal handlers after each call of C code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.per_process import PerProcess
from ftfile.operate.writers import early_imports
from ftfile.storage.calls import NoThreadError

ROOT = Path(__file__).parents[3]
# Interrupts the call at each place of the modules of Python in turn, and then uses the writer again.
INTERRUPTED = """
import contextlib, faulthandler, itertools, logging, sys
import pyarrow as pa
import ftfile
from tests.kit.interrupts import LibraryInterrupt

name, out = sys.argv[1:]
logging.disable(50)
faulthandler.dump_traceback_later(100, exit=True)
rows = pa.table({"n": range(20_000)})  # more than the caller writes itself
def interrupted(place, call, *arguments):
    interrupt = LibraryInterrupt(place)
    with contextlib.suppress(KeyboardInterrupt), interrupt:
        call(*arguments)
    return interrupt.calls < place

is_over = False
committed = 0
for place in itertools.count(1):
    writer = ftfile.writer(out, "program", file_format="json", threads=2)
    if name == "ftfile.write":
        before = ftfile.open(out).version()
        is_over = interrupted(place, lambda: ftfile.write(out, rows))
        committed += ftfile.open(out).version() > before
    elif name == "write":
        is_over = interrupted(place, writer.write, rows)
        writer.abort()
    else:
        writer.write(rows)
        if name == "commit":
            is_over = interrupted(place, writer.commit, place)
            writer.abort()
            committed += writer.position == place
        else:
            is_over = interrupted(place, getattr(writer, name))
            getattr(writer, name)()
    writer.close()
    if is_over:
        break
found = ftfile.open(out).count() if committed else 0
assert found == 20_000 * committed, (found, committed)
print(place)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["write", "commit", "abort", "close", "ftfile.write"])
def test_an_interrupt_within_a_module_of_python_stops_no_thread(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    out = str(tmp_path_factory.mktemp("signals") / "out")
    command = [sys.executable, "-c", INTERRUPTED, name, out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr  # it names interrupts of weak references, which Python ignores


LATER = """
import logging, sys, threading
import pyarrow as pa
import ftfile

logging.disable(50)
out, options = sys.argv[1], dict(word.split("=") for word in sys.argv[2:])
writer = ftfile.writer(out, "program", threads=2, **options)
imported, here = [], threading.get_ident()

def note(event, arguments):
    if event == "import" and threading.get_ident() == here:
        imported.append(arguments[0])

tables = [pa.table({"s": [f"{n}" for n in range(size)]}) for size in (10, 10_000)]
sys.addaudithook(note)
for size, rows in enumerate(tables):
    writer.write(rows)
    writer.commit(-1)
    writer.write(rows)
    writer.abort()
    writer.write(rows)
    writer.commit(size)
writer.close()
print(*imported)
"""
OPTIONS = (
    "file_format=json",
    "file_format=json compression=lz4 rolling=policy max_records_per_file=3",
    "file_format=json compression=zstd",
    "file_format=text compression=gzip",
    "file_format=parquet",
    "file_format=parquet rollover_interval=1h",
    "file_format=avro",
    "file_format=orc",
    "file_format=arrow",
)


@pytest.mark.parametrize("options", OPTIONS)
def test_an_open_writer_imports_nothing_in_the_thread_that_signals_interrupt(
    tmp_path_factory: pytest.TempPathFactory, options: str
) -> None:
    out = str(tmp_path_factory.mktemp("imports") / "out")
    done = subprocess.run(
        [sys.executable, "-c", LATER, out, *options.split()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


def test_small_writes_need_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NoThreadError("can't start new thread")

    monkeypatch.setattr(early_imports, "start", refuse)
    monkeypatch.setattr(early_imports, "_imported", PerProcess(set))
    out = str(tmp_path / "out")
    ftfile.write(out, pa.table({"n": [1]}), file_format="json")
    with ftfile.writer(out, "program", file_format="json") as writer:
        writer.write(pa.table({"n": [2]}))
        writer.commit(1)
    assert ftfile.open(out).count() == 2
