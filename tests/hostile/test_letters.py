"""Files of dead letters of any length and content, read in processes with limited memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import FtfileError
from ftfile.log.read.dead_letters import LETTER_BYTES_MAX, LETTER_VALUES_MAX
from ftfile.testing.micro_batch import MicroBatch
from tests.hostile.watched import CALL_S, bound_time, data_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
MEMORY_BYTES = 1 << 30
MIB = 1 << 20
HEAD, TAIL = b'{"reason":"","queryId":"q","batchId":0,"partition":0,"row":{"a":', b"}}"
# Separators before the value of the row's column.
SEPARATORS = sum(map(HEAD.count, (b"{", b",", b"[")))


def letter(value: bytes) -> bytes:
    return HEAD + value + TAIL + b"\n"


def text_letter(line_bytes: int) -> bytes:
    """Return a letter of `line_bytes`, without its newline."""
    return letter(b'"' + b"x" * (line_bytes - len(HEAD + TAIL) - 2) + b'"')


def lists_letter(separators: int) -> bytes:
    """Return a letter with a number of brackets, braces and commas. Every second one creates a Python object."""
    pairs, odd = divmod(separators - SEPARATORS - 1, 2)
    return letter(b"[" + b"{}," * pairs + (b"[]" if odd else b"0") + b"]")


def frames(content: bytes, count: int) -> bytes:
    frame: bytes = pa.Codec("zstd").compress(content, asbytes=True)
    return frame * count


def field(name: str, value: bytes) -> bytes:
    return letter(b"1").replace(b'"%s":' % name.encode(), b'"%s":%s,"b":' % (name.encode(), value))


LETTERS = text_letter(100_000) * 500
READ, CORRUPT = "rows", "CorruptData"
# The end of a file's name, its content, and the outcome of reading it.
FILES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "as long as a letter may be": ("", lambda: text_letter(LETTER_BYTES_MAX), READ),
    "longer by one byte": ("", lambda: text_letter(LETTER_BYTES_MAX + 1), CORRUPT),
    "as many values as a letter may have": ("", lambda: lists_letter(LETTER_VALUES_MAX), READ),
    "more values by one": ("", lambda: lists_letter(LETTER_VALUES_MAX + 1), CORRUPT),
    "64 MiB of values": ("", lambda: lists_letter(40 * MIB), CORRUPT),
    "a line of 5 GiB in some kilobytes": (".zstd", lambda: frames(bytes(50 * MIB), 100), CORRUPT),
    "5 GiB of empty lines in some kilobytes": (".zstd", lambda: frames(b"\n" * (50 * MIB), 100), CORRUPT),
    "1.2 GiB of letters in some kilobytes": (".zstd", lambda: frames(LETTERS, 25), READ),
    "lists in lists": ("", lambda: letter(b"[" * 200_000 + b"]" * 200_000), CORRUPT),
    "a number of many digits": ("", lambda: letter(b"9" * 5000), CORRUPT),
    "a batch that is a list": ("", lambda: field("batchId", b"[]"), CORRUPT),
    "a partition that is true": ("", lambda: field("partition", b"true"), CORRUPT),
    "a reason that is a number": ("", lambda: field("reason", b"1"), CORRUPT),
    "a row that is a text": ("", lambda: HEAD.replace(b'{"a":', b'"') + b'"}', CORRUPT),
    "a list": ("", lambda: b"[1, 2]", CORRUPT),
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("letters") / "out"
    MicroBatch(str(path), {"word": "string"}, {"fileFormat": "text"}).run(0, [[{"word": "a"}]])
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_what_comes_of_a_file(out: Path, name: str) -> None:
    filters, content, expected = FILES[name]
    path = out / "_ftfile" / "deadLetters" / "q" / f"_0000000000-00000-aaaaaaaaaaaa{filters}.deadLetters"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content())
    assert outcome(out) == expected
    path.unlink()


@pytest.mark.slow
def test_a_file_longer_than_memory(out: Path) -> None:
    path = out / "_ftfile" / "deadLetters" / "q" / "_0000000000-00000-aaaaaaaaaaaa.deadLetters"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(100 << 30)  # a sparse file without data on the disk
    assert outcome(out) == CORRUPT
    path.unlink()


def outcome(out: Path) -> str:
    """Return the outcome of reading the letters of a directory in a limited process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.test_letters", str(out)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*sys.path, ROOT]))},
        stdout=subprocess.PIPE,
        check=False,
    )
    return done.stdout.decode() or f"ended with {done.returncode}"


def main(out: str) -> None:
    """Read the letters of a directory and print the outcome."""
    directory = ftfile.open(out)
    bound_time(processor_s=3 * CALL_S)  # a test reads more than a GiB
    limit = data_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        for _ in directory.dead_letters():
            pass
    except FtfileError as error:
        print(type(error).__name__, end="")
    else:
        print(READ, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
