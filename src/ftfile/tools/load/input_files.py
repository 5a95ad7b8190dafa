"""The files that a load reads, with their formats and bytes."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile  # noqa: TID251 - for a copy of a pipe, which only this process reads
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ftfile.core.errors import ConfigError, CorruptData, SchemaError
from ftfile.tools.load.standard_input import stdin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.formats.reading.line_ends import Readable

STDIN = "-"
FORMATS = ("parquet", "orc", "avro", "arrow", "csv", "json")
_ENDINGS = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".avro": "avro",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".arrows": "arrow",
}
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4", ".br": "brotli"}
TEXT = frozenset({"csv", "json"})  # formats whose files do not contain the types of their columns
ARROW_FILE = b"ARROW1"  # begins an Arrow file; an Arrow stream begins with the next bytes
_BEGINNINGS = {b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro", ARROW_FILE: "arrow", b"\xff\xff\xff\xff": "arrow"}
_BEGINNING_BYTES = 8
_WIDE_INTEGERS = "Integers with more than 64 bits"  # Arrow's error for a column of an Arrow file
_COPIED_BYTES = 1 << 20


class ByteStream:
    """A file that is read once from its start; bytes that were read can be put back."""

    closed = False

    def __init__(self, file: Readable, start: bytes = b"") -> None:
        self._file = file
        self._start = start
        self._is_ended = False
        self.position = 0

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, fewer only at the end of the file; all remaining bytes for a negative size."""
        if self._is_ended:
            return b""
        if not self._start:
            data = self._file.read(size)
        elif size < 0:
            data, self._start = self._start + self._file.read(), b""
        else:
            data, self._start = self._start[:size], self._start[size:]
            if len(data) < size:
                data += self._file.read(size - len(data))
        self.position += len(data)
        return data

    def put_back(self, data: bytes) -> None:
        """Return the bytes that were read last to the stream."""
        self._start = data + self._start
        self.position -= len(data)

    def end(self) -> None:
        """End the file for threads of pyarrow that still read ahead."""
        self._is_ended = True

    def close(self) -> None:
        """Leave the file open; its owner closes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileToLoad:
    """A file, or stdin."""

    path: str  # as the user named it
    file_format: str  # of `FORMATS`
    codec: str | None = None  # of the whole file; only for text
    size_bytes: int = 0  # 0 for stdin and pipes
    is_regular: bool = False  # False for stdin and pipes, which can only be read once
    start: bytes = b""  # bytes that were already read from stdin

    @property
    def name(self) -> str:
        """Return the name for errors."""
        return "stdin" if self.path == STDIN else repr(self.path)

    @property
    def is_text(self) -> bool:
        """Return True for the formats whose files do not contain the types of their columns."""
        return self.file_format in TEXT

    @contextmanager
    def stream(self) -> Iterator[ByteStream]:
        """Yield the stored bytes."""
        with contextlib.ExitStack() as opened:
            if self.path == STDIN:
                stream = ByteStream(stdin(), self.start)
            else:
                with self.errors():
                    stream = ByteStream(opened.enter_context(open(self.path, "rb")))
            opened.callback(stream.end)
            yield stream

    @contextmanager
    def seekable(self, stream: ByteStream) -> Iterator[str]:
        """Yield the path of a file with the bytes of `stream`; a pipe is copied to a temporary file."""
        if self.is_regular:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="ftfile-") as copy:
            with self.errors():
                shutil.copyfileobj(stream, copy, _COPIED_BYTES)
                copy.flush()
            yield copy.name

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate errors of the file and its content into `ConfigError`."""
        try:
            yield
        except MemoryError:
            raise
        except pa.ArrowNotImplementedError as error:
            if _WIDE_INTEGERS in str(error):  # Arrow does not name the column
                raise SchemaError(
                    "a column has integers of 128 bits, such as the type Int128 of Polars, which Spark does not have "
                    f"({error}). Write the file again with the column as a decimal of at most 38 digits, such as "
                    "pl.Decimal(38, 0), or as a text"
                ) from error
            raise SchemaError(
                f"Arrow does not support a type or a codec of the file ({error}): cast the column, or change the "
                "codec, and write the file again"
            ) from error
        except CorruptData as error:
            raise self.damaged(f"expected {error.expected}, found {error.found}") from error
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise self.damaged(error) from error

    @contextmanager
    def schema_errors(self) -> Iterator[None]:
        """Add the name of the file to each `SchemaError`."""
        try:
            yield
        except SchemaError as error:
            if str(error).startswith(self.name):
                raise
            raise SchemaError(f"{self.name}: {error}. Nothing was written") from error

    def damaged(self, reason: object, place: str = "") -> ConfigError:
        """Return the error for a file that cannot be read; `place` is such as ", line 7"."""
        return ConfigError(f"{self.name}{place} cannot be read as {self.file_format}: {reason}. Nothing was written")

    def misfit(self, column: str, reason: object) -> SchemaError:
        """Return the error for a column of this file."""
        return SchemaError(f"{self.name}: column `{column}` {reason}. Nothing was written")


class FileRows(NamedTuple):
    """The rows of an opened file.

    Attributes:
        schema: of the batches.
        batches: can be iterated once.
        position: returns the number of stored bytes that were read.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    position: Callable[[], int]


def input_files(paths: Sequence[str], file_format: str | None) -> list[FileToLoad]:
    """Return the files of some paths, all of one format or each of the format that its name shows.

    Raises:
        ConfigError: a file is missing or unreadable, its format is not known, or stdin is named twice.
    """
    if paths.count(STDIN) > 1:
        raise ConfigError(f"{STDIN} is given twice: stdin can only be read once")
    return [_input_file(path, file_format) for path in paths]


def _input_file(path: str, file_format: str | None) -> FileToLoad:
    if path == STDIN:
        if file_format is not None:
            return FileToLoad(path=path, file_format=file_format)
        start = stdin().read(_BEGINNING_BYTES)
        return FileToLoad(path=path, file_format=_format_of_bytes(start), start=start)
    status = _status_of(path)
    name, codec = path, None
    root, ending = os.path.splitext(path)
    if ending.lower() in _CODECS:
        name, codec = root, _CODECS[ending.lower()]
    chosen = file_format or _ENDINGS.get(os.path.splitext(name)[1].lower())
    if chosen is None:
        raise ConfigError(f"{path!r}: its name does not show its format: give --from, one of {', '.join(FORMATS)}")
    if codec is not None and chosen not in TEXT:
        raise ConfigError(f"{path!r} is a compressed file of {chosen}: decompress it first; only csv and json may be")
    is_regular = stat.S_ISREG(status.st_mode)
    return FileToLoad(
        path=path,
        file_format=chosen,
        codec=codec,
        size_bytes=status.st_size if is_regular else 0,
        is_regular=is_regular,
    )


def _status_of(path: str) -> Any:  # noqa: ANN401 - os.stat_result has no useful type here
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path!r}: there is no such file ({error}). Nothing was written") from error
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path!r} is a directory: give its files")
    if not os.access(path, os.R_OK):
        raise ConfigError(f"{path!r}: this user may not read it. Nothing was written")
    return status


def _format_of_bytes(start: bytes) -> str:
    for beginning, file_format in _BEGINNINGS.items():
        if start.startswith(beginning):
            return file_format
    raise ConfigError("- is stdin, whose first bytes do not show its format: give --from, such as --from csv")


@contextmanager
def text_of(file: FileToLoad) -> Iterator[tuple[ByteStream, ByteStream]]:
    """Yield the stored bytes of a text file, and its decompressed bytes, which are read from them."""
    with file.stream() as stored:
        if file.codec is None:
            yield stored, stored
            return
        with file.errors(), pa.CompressedInputStream(pa.PythonFile(stored, mode="r"), file.codec) as plain:
            yield stored, ByteStream(plain)
