"""The rows of a task's share of foreign files, with the columns asked for.

The same share has the same rows at every call, wherever its files lie by then, or is an error.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.core.errors import CorruptData
from ftfile.core.logs import get_logger
from ftfile.encoding.partitions.paths import parse_bucket_path, with_path_columns
from ftfile.source.files.decoding.columns import columns_in_path, require_columns
from ftfile.source.files.locate import Elsewhere, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.fs.api import FileSystem
    from ftfile.source.files.decoding.opened import OpenedFile
    from ftfile.source.files.decoding.settings import FileDecoding
    from ftfile.source.files.decoding.split import Cut, FileShare

    Reader = Callable[[OpenedFile, Cut, pa.Schema, FileDecoding], Iterator[pa.RecordBatch]]

_log = get_logger(__name__)

_READERS = {
    "text": "ftfile.source.files.decoding.lines:text_rows",
    "json": "ftfile.source.files.decoding.json_lines:json_rows",
    "csv": "ftfile.source.files.decoding.csv_lines:csv_rows",
    "parquet": "ftfile.source.files.decoding.columnar:column_rows",
    "orc": "ftfile.source.files.decoding.columnar:column_rows",
    "arrow": "ftfile.source.files.decoding.columnar:column_rows",
    "avro": "ftfile.source.files.decoding.columnar:avro_rows",
    "binary": "ftfile.source.files.decoding.binary:binary_rows",
}
_MULTI_LINE = {
    "json": "ftfile.source.files.decoding.multi_line:multi_line_json",
    "csv": "ftfile.source.files.decoding.multi_line:multi_line_csv",
}


def read_files(
    fs: FileSystem, share: FileShare, requested: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a share in the order of its cuts, with the columns of `requested`.

    Columns that `a=b` directories name are read from the path, others from the file by name; one that is nowhere is
    null.

    Raises:
        FileChanged: a file has other content than when it was planned, or is gone.
        CorruptData: a file is damaged, behind the rows that came; `ignoreCorruptFiles` keeps these.
        SourceError: a record cannot be read, with `badRecords=fail`.
        SchemaError: a file has other columns.
        ConfigError: files of the format cannot have such columns.
    """
    elsewhere = Elsewhere(fs)
    for cut in share.cuts:
        yield from _cut_rows(fs, cut, requested, decoding, elsewhere)


def _cut_rows(
    fs: FileSystem, cut: Cut, requested: pa.Schema, decoding: FileDecoding, elsewhere: Elsewhere
) -> Iterator[pa.RecordBatch]:
    planned = cut.range
    in_path = _path_values(planned.path, requested, decoding.times.zone)
    in_file = pa.schema([field for field in requested if field.name not in in_path])
    require_columns(in_file, decoding, path=planned.path)
    with locate(fs, planned, decoding, elsewhere) as opened:
        if opened is None:
            return
        try:
            for batch in _reader(decoding)(opened, cut, in_file, decoding):
                if batch.num_rows:
                    yield with_path_columns(batch, in_path, requested) if in_path else batch
        except CorruptData as error:
            if not decoding.ignore_corrupt:
                raise
            _log.warning("the rows before the damage are read: %s", error)
        opened.require_range()


def _path_values(path: str, requested: pa.Schema, time_zone: str) -> dict[str, pa.Scalar]:
    """Return the values that the directories of a path give to columns, found by name, case aside."""
    found = columns_in_path(path, requested)
    schema = pa.schema([requested.field(name).with_name(spelling) for name, spelling in found.items()])
    values = parse_bucket_path(path.rpartition("/")[0], schema, time_zone)
    return {name: values[spelling] for name, spelling in found.items()}


def _reader(decoding: FileDecoding) -> Reader:
    """Return the reader of a format, whose module is imported when it is asked for."""
    readers = _READERS | _MULTI_LINE if decoding.multi_line else _READERS
    reader: Reader = pkgutil.resolve_name(readers[decoding.file_format])
    return reader
