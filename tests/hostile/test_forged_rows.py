"""Arrow messages with right checksums that ftfile does not write: rows of open files and windows."""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile.core.errors import ConfigError, CorruptData, EncodingError
from ftfile.filters.chain import Chain
from ftfile.formats.columnar import RowJoiner, RowSegments
from ftfile.kv.definition import define
from ftfile.kv.operator.codecs import ArrowRows
from ftfile.kv.operator.wal import read_wal
from ftfile.kv.operator.windows import row_schema
from ftfile.log import wal
from ftfile.log.format.layout import WalName, wal_path
from ftfile.log.wal import WalFiles
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.hostile.forging import message_of, stream_of
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS = ["one", "two", "three", "four"]
ROWS = pa.record_batch(
    {"id": pa.array([1, 2, 3, 4]), "text": pa.array(TEXTS), "list": pa.array([[1], [2, 3], [], [4]])}
)
OFFSETS = np.cumsum([0, *map(len, TEXTS)]).astype("<i4").tobytes()
FORGED = {
    "offsets far behind the end": np.array([0, 1 << 30, 1 << 30, 1 << 30, 1 << 30], "<i4").tobytes(),
    "offsets that fall": np.array([0, 6, 3, 11, 15], "<i4").tobytes(),
    "negative offsets": np.array([-4, 0, 3, 6, 15], "<i4").tobytes(),
}
NO_TEXT = b"\xff\xfe\xfd"


def segment_of(message: bytes) -> bytes:
    compressed: bytes = pa.Codec("lz4").compress(message, asbytes=True)
    return len(message).to_bytes(8, "little") + compressed


def read_segment(message: bytes) -> object:
    return [str(column) for column in RowSegments(ROWS.schema).batch(segment_of(message), "a").columns]


def read_value(message: bytes) -> object:
    return ArrowRows(ROWS.schema).from_bytes(message)


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize(("read", "error"), [(read_segment, CorruptData), (read_value, EncodingError)])
def test_values_beyond_a_message_are_refused(
    read: Callable[[bytes], object], error: type[Exception], forged: str
) -> None:
    message = bytes(ROWS.serialize())
    assert message.count(OFFSETS) == message.count(b"one") == 1
    with pytest.raises(error):
        read(message.replace(OFFSETS, FORGED[forged]))


def test_texts_of_a_segment_may_be_any_bytes_as_those_of_spark() -> None:
    message = bytes(ROWS.serialize()).replace(b"one", NO_TEXT)
    texts = RowSegments(ROWS.schema).batch(segment_of(message), "a").column("text")
    assert NO_TEXT in texts.view(pa.binary()).to_pylist()
    with pytest.raises(EncodingError):
        read_value(message)


@pytest.mark.parametrize(("read", "error"), [(read_segment, CorruptData), (read_value, EncodingError)])
def test_another_message_behind_the_rows_is_refused(read: Callable[[bytes], object], error: type[Exception]) -> None:
    message = bytes(ROWS.serialize())
    with pytest.raises(error, match="not a message of rows"):
        read(message + message)


def test_a_segment_of_fewer_rows_than_its_record_says_is_refused() -> None:
    joiner = RowJoiner(None, RowSegments(ROWS.schema), None)  # type: ignore[arg-type]
    with pytest.raises(CorruptData, match="5 rows"):
        joiner.take(segment_of(bytes(ROWS.serialize())), 4, 1)


NAMES = map("forged-{}".format, itertools.count())
DEFINITION = define(pa.schema([("key", pa.string()), ("value", pa.int64())]), ["key"])
SCHEMA = row_schema(DEFINITION)
WINDOW = pa.record_batch([pa.array(TEXTS), pa.array([1, 2, 3, 4]), pa.array([0, 0, 0, 0], pa.int8())], schema=SCHEMA)


def windows_of(message: bytes, change: Callable[[dict[str, Any]], object] = lambda _: None) -> object:
    """Write a file with a right checksum and return the rows that are read back."""
    files = WalFiles(MemoryFileSystem(next(NAMES)), "w", Chain(), "id")
    files.prepare()
    header = {"before": -1, "after": 0, "windows": [{"number": 1, "purges": []}], "store": DEFINITION.to_json()}
    change(header)
    files.write(WalName(1, 1), header, memoryview(message))
    return [window.rows.to_pylist() for file in read_wal(files, 1, 0) for window in file.windows]


def test_a_forgery_of_nothing_is_a_window() -> None:
    assert windows_of(stream_of(WINDOW)) == [WINDOW.to_pylist()]


def test_texts_of_windows_are_checked() -> None:
    """Texts of windows come from Python, so invalid ones are damage."""
    with pytest.raises(CorruptData):
        windows_of(stream_of(WINDOW).replace(b"one", NO_TEXT))


@pytest.mark.parametrize("forged", FORGED)
def test_values_beyond_a_window_are_refused(forged: str) -> None:
    with pytest.raises(CorruptData, match="windows in file 1"):
        windows_of(stream_of(WINDOW).replace(OFFSETS, FORGED[forged]))


LONG = "x" * 4_321_987
HUGE_BYTES = 8 << 30
LONG_ROW = pa.record_batch([pa.array([1]), pa.array([LONG]), pa.array([[1]])], schema=ROWS.schema)
LONG_WINDOW = pa.record_batch([pa.array([LONG]), pa.array([1]), pa.array([0], pa.int8())], schema=SCHEMA)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize(
    ("read", "rows", "error"),
    [
        (read_segment, LONG_ROW, CorruptData),
        (read_value, LONG_ROW, EncodingError),
        (windows_of, LONG_WINDOW, CorruptData),
    ],
    ids=["a segment", "a value", "windows"],
)
def test_compressed_rows_are_refused_and_not_decompressed(
    read: Callable[[bytes], object], rows: pa.RecordBatch, error: type[Exception], codec: str
) -> None:
    message = (stream_of if read is windows_of else message_of)(rows, compression=codec)
    for declared in (len(LONG), HUGE_BYTES):
        before, _, behind = message.rpartition(len(LONG).to_bytes(8, "little"))
        forged = before + declared.to_bytes(8, "little") + behind
        with pytest.raises(error, match="compressed rows, which ftfile writes"):
            read(forged)
    assert pa.default_memory_pool().max_memory() < HUGE_BYTES


def test_rows_of_a_version_that_declares_compression_elsewhere_are_refused() -> None:
    with pytest.raises(CorruptData, match="have another version"):
        read_segment(message_of(ROWS, metadata_version=pa.ipc.MetadataVersion.V4))


def test_a_file_of_windows_has_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    message = stream_of(WINDOW)
    monkeypatch.setattr(wal, "FILE_BYTES_MAX", len(message))
    with pytest.raises(ConfigError, match="too large to read"):
        windows_of(message)
    fs, name = MemoryFileSystem(next(NAMES)), WalName(1, 1)
    files = WalFiles(fs, "w", Chain(), "id")
    files.prepare()
    fs.create_exclusive(wal_path("w", name), bytes(len(message) + 1))
    with pytest.raises(CorruptData, match=f"at most {len(message)} bytes"):
        files.read(name)


HEADERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "nothing": lambda header: header.clear(),
    "after is a text": lambda header: header.update(after="0"),
    "after is null": lambda header: header.update(after=None),
    "windows are a number": lambda header: header.update(windows=7),
    "no windows": lambda header: header.update(windows=[]),
    "a number is a text": lambda header: header.update(windows=[{"number": "1", "purges": []}]),
    "a number is a list": lambda header: header.update(windows=[{"number": [1], "purges": []}]),
    "purges are a number": lambda header: header.update(windows=[{"number": 1, "purges": 5}]),
    "purges are texts": lambda header: header.update(windows=[{"number": 1, "purges": [["x"]]}]),
    "no store": lambda header: header.update(store=None),
    "no schema": lambda header: header["store"].update(schema="{"),
}


@pytest.mark.parametrize("change", HEADERS)
def test_other_headers_are_refused(change: str) -> None:
    with pytest.raises(CorruptData):
        windows_of(stream_of(WINDOW), HEADERS[change])


def test_rows_of_other_columns_are_refused() -> None:
    with pytest.raises(CorruptData, match="windows in file 1"):
        windows_of(stream_of(ROWS))


def test_the_schema_in_a_file_of_windows_is_not_read() -> None:
    """A forged schema ends the process in Arrow; the definition of the store has the columns."""
    renamed = pa.record_batch(WINDOW.columns, names=["a", "b", "c"])
    assert windows_of(stream_of(renamed)) == [WINDOW.to_pylist()]


@parametrize("seed", range(4), quick=1)
def test_messages_with_any_bytes_changed_end_in_an_error_or_in_rows(seed: int) -> None:
    generator = random.Random(seed)
    reads = [(read_segment, bytes(ROWS.serialize())), (read_value, bytes(ROWS.slice(1, 1).serialize()))]
    reads.append((windows_of, stream_of(WINDOW)))
    for _ in range(200):
        read, message = generator.choice(reads)
        forged = bytearray(message)
        for _ in range(generator.choice([1, 1, 2, 8])):
            forged[generator.randrange(len(forged))] = generator.choice(
                [0, 1, 0x7F, 0x80, 0xFF, generator.getrandbits(8)]
            )
        with contextlib.suppress(CorruptData, EncodingError):
            read(bytes(forged))
