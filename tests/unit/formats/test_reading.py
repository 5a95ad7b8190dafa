from __future__ import annotations

import io
import random
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest

from ftfile.formats.api import format_from_options
from ftfile.formats.reading import LentFile

CSV = format_from_options("csv", {})
ROWS = pa.schema([("id", pa.int64()), ("text", pa.string())])


class Slow(io.BytesIO):
    """Notices a seek amid a read."""

    name = "rows.csv"
    is_read = False
    overlaps = 0

    def read(self, size: int | None = -1) -> bytes:
        self.is_read = True
        time.sleep(random.random() * 0.01)
        data = super().read(size)
        self.is_read = False
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.overlaps += self.is_read
        return super().seek(offset, whence)


@pytest.mark.slow
def test_nothing_reads_ahead_when_a_file_is_read_again_by_longer_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each of both readers would miss what the other has read."""
    monkeypatch.setattr("ftfile.formats.csv_lines._BLOCK_BYTES", 1 << 16)
    for long in range(0, 4000, 200):
        lines = [b"%d,%s\n" % (number, b"x" * 100) for number in range(4500)]
        lines[long] = b"%d,%s\n" % (long, b"long " * 28_000)
        file = Slow(b"".join(lines))
        rows = pa.Table.from_batches(CSV.decode(file, ROWS))
        assert not file.overlaps
        assert rows["id"].to_pylist() == [*range(4500)]


class TestLentFile:
    def test_is_taken_back_after_the_read_that_runs_and_gives_no_more(self) -> None:
        begun, may_end = threading.Event(), threading.Event()

        class Held(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                begun.set()
                assert may_end.wait(100)
                return super().read(size)

        file, data = Held(b"abc"), list[bytes]()
        lent = LentFile(file)
        reader = threading.Thread(target=lambda: data.append(lent.read(2)))
        with lent:
            reader.start()
            assert begun.wait(100)
            threading.Timer(0.05, may_end.set).start()
        assert data == [b"ab"]
        assert (lent.read(2), lent.seek(1), lent.tell(), file.tell()) == (b"", 0, 0, 2)

    def test_garbage_that_is_collected_amid_a_read_may_take_its_file_back(self) -> None:
        class Collecting(io.BytesIO):
            def read(self, size: int | None = -1) -> bytes:
                lent.take_back()
                return super().read(size)

        lent = LentFile(Collecting(b"abc"))
        assert [lent.read(2), lent.read(2)] == [b"ab", b""]


@pytest.mark.slow
@pytest.mark.parametrize("last", ["", "del rows"], ids=["while rows are read", "when no more are read"])
def test_a_process_ends_amid_reading_ahead(last: str) -> None:
    # Eight blocks are read ahead: longer than the end of a process waits.
    code = f"""
import io, time
import pyarrow as pa
from ftfile.formats.api import format_from_options

class Slow(io.BytesIO):
    def read(self, size=-1):
        for _ in range(700):
            time.sleep(0.001)
        return super().read(size)

rows = format_from_options("csv", {{}}).decode(Slow(b"1\\n" * 30_000_000), pa.schema([("a", pa.int64())]))
print(next(rows).num_rows > 0)
{last}
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, b"True\n"), ended.stderr


@pytest.mark.slow
def test_a_forked_process_waits_for_no_read_of_its_parent() -> None:
    code = """
import io, os, signal, threading, time
from ftfile.formats.reading import LentFile

begun = threading.Event()

class Slow(io.BytesIO):
    def read(self, size=-1):
        begun.set()
        time.sleep(1)
        return super().read(size)

lent = LentFile(Slow(b"abc"))
reader = threading.Thread(target=lent.read)
reader.start()
assert begun.wait(100)
child = os.fork()
if child == 0:
    signal.alarm(10)
    lent.take_back()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), reader.is_alive())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=100)
    assert ended.stdout == b"7 True\n"
