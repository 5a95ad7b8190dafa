from __future__ import annotations

import io
import random
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import CorruptData
from ftfile.formats.api import format_from_options
from ftfile.formats.reading.lent_file import LentFile, end_all
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import InputFile

CSV = format_from_options("csv", {})
ROWS = pa.schema([("id", pa.int64()), ("text", pa.string())])


class Slow(io.BytesIO):
    """Detects a seek during a read; each call takes a different time, so that all orders occur."""

    name = "rows.csv"
    is_read = False
    overlaps = 0

    def __init__(self, content: bytes, dice: random.Random) -> None:
        super().__init__(content)
        self._dice = dice

    def read(self, size: int | None = -1) -> bytes:
        self.is_read = True
        time.sleep(self._dice.random() * 0.01)
        data = super().read(size)
        self.is_read = False
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.overlaps += self.is_read
        return super().seek(offset, whence)


@pytest.mark.slow
def test_nothing_reads_ahead_when_a_file_is_read_again_by_longer_blocks(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Otherwise each of the two readers would miss the bytes that the other has read."""
    monkeypatch.setattr("ftfile.formats.csv_lines._BLOCK_BYTES", 1 << 16)
    dice = random.Random(seed)
    for long in range(0, 4000, 200):
        lines = [b"%d,%s\n" % (number, b"x" * 100) for number in range(4500)]
        lines[long] = b"%d,%s\n" % (long, b"long " * 28_000)
        file = Slow(b"".join(lines), dice)
        rows = pa.Table.from_batches(CSV.decode(file, ROWS))
        assert not file.overlaps
        assert rows["id"].to_pylist() == [*range(4500)]


def test_rows_end_by_an_error_where_the_process_ends_their_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the last line that was read is whole."""
    monkeypatch.setattr("ftfile.formats.csv_lines._BLOCK_BYTES", 1 << 16)
    content = b"1,abcde\n" * (1 << 18)
    rows = CSV.decode(io.BytesIO(content), ROWS)
    assert next(rows).num_rows == (1 << 16) // 8
    end_all()
    with pytest.raises(CorruptData, match="expected the whole file, found the part that was read before"):
        list(rows)


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
    # The thread comes back to Python again and again; to read eight blocks ahead takes longer than the end waits.
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
import io, os, signal, threading
from ftfile.formats.reading.lent_file import LentFile

begun, may_end = threading.Event(), threading.Event()

class Held(io.BytesIO):
    def read(self, size=-1):
        begun.set()
        assert may_end.wait(100)
        return super().read(size)

lent = LentFile(Held(b"abc"))
reader = threading.Thread(target=lent.read)
reader.start()
assert begun.wait(100)
child = os.fork()
if child == 0:
    signal.alarm(10)
    lent.take_back()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), reader.is_alive())
may_end.set()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=100)
    assert ended.stdout == b"7 True\n"


@pytest.mark.slow
def test_a_part_whose_rows_are_given_up_is_closed_after_the_read_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ftfile.formats.csv_lines._BLOCK_BYTES", 1 << 16)
    rows = [{"id": number, "n": number} for number in range(100_000)]
    MicroBatch(str(tmp_path), {"id": "long", "n": "long"}, {"fileFormat": "csv"}).run(0, [rows])
    with open_filesystem(str(tmp_path)).open(next(tmp_path.glob("*.csv")).name) as file:
        kind = type(file)
    read_at, close = kind.read_at, kind.close
    reading: set[int] = set()
    amid_reads: list[bool] = []

    def read_slowly(self: InputFile, offset: int, length: int) -> bytes:
        reading.add(id(self))
        time.sleep(0.05)
        data = read_at(self, offset, length)
        reading.discard(id(self))
        return data

    def noting(self: InputFile) -> None:
        amid_reads.append(id(self) in reading)
        close(self)

    monkeypatch.setattr(kind, "read_at", read_slowly)
    monkeypatch.setattr(kind, "close", noting)
    batches = ftfile.open(str(tmp_path)).to_batches()
    assert next(batches).num_rows
    batches.close()
    del batches
    assert amid_reads
    assert not any(amid_reads)
