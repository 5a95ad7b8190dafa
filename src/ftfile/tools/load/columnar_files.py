"""The rows of files that contain the types of their columns: Parquet, ORC, Avro, and Arrow files and streams."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import orc

from ftfile.source.decoding.avro_records import columns_of_avro_file, rows_of_avro_file
from ftfile.source.decoding.columnar import rows_of_columnar_file
from ftfile.source.decoding.meanings import opened_parquet, parquet_meanings
from ftfile.source.decoding.orc_meanings import orc_meanings
from ftfile.source.decoding.unread_types import refuse_unread_types
from ftfile.source.settings import FileDecoding
from ftfile.tools.load.input_files import ARROW_FILE, FileRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow.parquet as pq

    from ftfile.formats.reading.time_formats import TimeFormats
    from ftfile.tools.load.input_files import FileToLoad

_BATCH_ROWS = 65_536
_BUFFER_BYTES = 1 << 20  # of each column chunk, which can be larger than the memory


class _ReadShare:
    """The share of a file that was read, by a count of its rows or batches."""

    def __init__(self, size_bytes: int, total: int) -> None:
        self._size_bytes = size_bytes
        self._total = max(total, 1)
        self.done = 0

    def position(self) -> int:
        return self._size_bytes * self.done // self._total


@contextmanager
def parquet_rows(file: FileToLoad) -> Iterator[FileRows]:
    """Yield the rows of a Parquet file, read in batches.

    Raises:
        ConfigError: the file is not a Parquet file, or is damaged.
        SchemaError: a column has a type that Spark does not have.
    """
    with file.stream() as stream, file.seekable(stream) as path:
        with file.schema_errors(), file.errors():
            parquet = opened_parquet(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
            refuse_unread_types(parquet.schema)
            meanings = parquet_meanings(parquet)
        share = _ReadShare(file.size_bytes, parquet.metadata.num_rows)
        try:
            batches = map(meanings.apply, _parquet_batches(file, parquet, share))
            yield FileRows(meanings.schema, batches, share.position)
        finally:
            parquet.close()


def _parquet_batches(file: FileToLoad, parquet: pq.ParquetFile, share: _ReadShare) -> Iterator[pa.RecordBatch]:
    with file.errors():
        yield from _count_rows(share, parquet.iter_batches(_BATCH_ROWS))


def _count_rows(share: _ReadShare, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        share.done += batch.num_rows
        yield batch


@contextmanager
def orc_rows(file: FileToLoad, times: TimeFormats) -> Iterator[FileRows]:
    """Yield the rows of an ORC file, as the file source reads them.

    Args:
        file: the file.
        times: the zone of clocks without a zone.

    Raises:
        ConfigError: the file is not an ORC file, or is damaged.
        SchemaError: a column has a type that Spark does not have, or clocks of a writer in another zone.
        SourceError: a value is not valid in its type.
    """
    with file.stream() as stream, file.seekable(stream) as path, open(path, "rb") as opened:
        with file.schema_errors(), file.errors():
            schema = orc_meanings(opened, times.zone).schema
            share = _ReadShare(file.size_bytes, orc.ORCFile(opened).nrows)
        rows = rows_of_columnar_file(opened, file.path, schema, FileDecoding("orc", times=times))
        yield FileRows(schema, _count_rows(share, _read(file, rows)), share.position)


@contextmanager
def avro_rows(file: FileToLoad, times: TimeFormats) -> Iterator[FileRows]:
    """Yield the rows of an Avro file, as the file source reads them. Args and errors are those of `orc_rows`."""
    with file.stream() as stream, file.seekable(stream) as path, open(path, "rb") as opened:
        with file.schema_errors(), file.errors():
            schema = columns_of_avro_file(opened, file.path)
        opened.seek(0)
        rows = rows_of_avro_file(opened, file.path, schema, FileDecoding("avro", times=times))
        yield FileRows(schema, _read(file, rows), opened.tell)


@contextmanager
def arrow_rows(file: FileToLoad) -> Iterator[FileRows]:
    """Yield the rows of an Arrow file or an Arrow stream, batch by batch.

    Raises:
        ConfigError: the file is neither, or is damaged.
    """
    with file.stream() as stream:
        with file.errors():
            start = stream.read(len(ARROW_FILE))
        stream.put_back(start)
        if start != ARROW_FILE:
            with file.schema_errors(), file.errors():
                reader = pa.ipc.open_stream(pa.PythonFile(stream, mode="r"))
            yield FileRows(reader.schema, _read(file, reader), lambda: stream.position)
            return
        with file.seekable(stream) as path:
            with file.schema_errors(), file.errors():
                opened = pa.ipc.open_file(pa.OSFile(path))
            share = _ReadShare(file.size_bytes, opened.num_record_batches)
            yield FileRows(opened.schema, _read(file, _file_batches(opened, share)), share.position)


def _file_batches(opened: pa.RecordBatchFileReader, share: _ReadShare) -> Iterator[pa.RecordBatch]:
    for number in range(opened.num_record_batches):
        share.done = number + 1
        yield opened.get_batch(number)


def _read(file: FileToLoad, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches, whose values the writer validates: the format has no checksums."""
    with file.errors():
        yield from batches
