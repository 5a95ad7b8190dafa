"""The rows of a task's share of files of other programs, with the requested columns.

A share returns the same rows at every call, even if its files were moved, or raises an error.
"""

from __future__ import annotations

import os
import pkgutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ftfile.core.codecs import ENCRYPTION_FILTER, filters_of_name
from ftfile.core.errors import ConfigError, CorruptData, FileChanged, NotFound, PermissionDenied, SourceError
from ftfile.core.logs import get_logger
from ftfile.core.options.kinds import FileRange
from ftfile.filters.keys import Keys
from ftfile.formats.partition_paths import values_of_path, with_path_columns
from ftfile.formats.reading.memory_limit import limit_batches
from ftfile.log.places import list_or_empty
from ftfile.log.sealed import KEY_PROVIDER_VARIABLE
from ftfile.source.contents import CONTENT_BYTES_MIN
from ftfile.source.decoding.lines import LINE_BYTES_MAX, RangeContent, filters_of_range
from ftfile.source.settings import columns_in_path, require_columns
from ftfile.storage.api import lasting_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ftfile.source.plan import Cut, FileShare, Range
    from ftfile.source.settings import FileDecoding
    from ftfile.storage.api import FileInfo, FileSystem

    Reader = Callable[[RangeContent, Cut, pa.Schema, FileDecoding], Iterator[pa.RecordBatch]]


_log = get_logger(__name__)

READERS = {
    "text": "ftfile.source.decoding.lines:text_rows",
    "json": "ftfile.source.decoding.json_lines:json_rows",
    "csv": "ftfile.source.decoding.csv_lines:csv_rows",
    "parquet": "ftfile.source.decoding.columnar:column_rows",
    "orc": "ftfile.source.decoding.columnar:column_rows",
    "arrow": "ftfile.source.decoding.columnar:column_rows",
    "avro": "ftfile.source.decoding.avro_records:avro_rows",
    "binary": "ftfile.source.decoding.lines:binary_rows",
}
_MULTI_LINE = {
    "json": "ftfile.source.decoding.json_lines:multi_line_json",
    "csv": "ftfile.source.decoding.csv_lines:multi_line_csv",
}

# Maximum of listings of a directory whose files are renamed during the search for a file.
LISTINGS_MAX = 20

# Maximum of reads of a range whose file changes during the read: logrotate's copytruncate copies and truncates logs.
READINGS_MAX = 5

# Batches of a cut that are held back until the next batch is read: a short cut, a batch of lines, and a torn last line.
HELD_BATCHES = 3

# Maximum of directories that are searched for a moved file: the root can be the root of a disk.
DIRECTORIES_MAX = 1000


def rows_of_share(
    fs: FileSystem, share: FileShare, requested: pa.Schema, decoding: FileDecoding
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a share in the order of its cuts, with the columns of `requested`.

    If `skipRanges` names exactly the bounds of a range, the range has no rows, even if its file exists.

    Columns of `a=b` directories are read from the path, and other columns by name from the file. Missing columns are
    null.

    Raises:
        FileChanged: the content of a file changed after the plan, or the file is missing; `skipRanges` skips such
            bytes.
        CorruptData: a file is damaged after the yielded rows; `ignoreCorruptFiles` keeps these rows.
        SourceError: a record cannot be read, with `badRecords=fail`.
        SchemaError: a file has other columns.
        ConfigError: files of the format cannot have such columns.
    """
    elsewhere = Elsewhere(fs)
    for cut in share.cuts:
        yield from _cut_rows(fs, cut, requested=requested, decoding=decoding, elsewhere=elsewhere)


def _cut_rows(
    fs: FileSystem, cut: Cut, requested: pa.Schema, decoding: FileDecoding, elsewhere: Elsewhere
) -> Iterator[pa.RecordBatch]:
    planned = cut.range
    if _is_skipped(planned, decoding):
        if cut.start == planned.start:  # logged once, even if several tasks read parts of the range
            _log.warning("skipped by skipRanges; remove this option after the batch: %s", _text_of_range(planned))
        return
    in_path = _path_values(planned.path, requested, decoding.times.zone)
    in_file = pa.schema([field for field in requested if field.name not in in_path])
    require_columns(in_file, decoding, path=planned.path)
    for batch in _in_one_reading(fs, cut, schema=in_file, decoding=decoding, elsewhere=elsewhere):
        yield with_path_columns(batch, in_path, requested) if in_path else batch


def _in_one_reading(
    fs: FileSystem, cut: Cut, schema: pa.Schema, decoding: FileDecoding, elsewhere: Elsewhere
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cut. If its file changes before the first batch is yielded, the range is located again."""
    for readings_left in reversed(range(READINGS_MAX)):
        with open_range(fs, cut.range, decoding, elsewhere) as content:
            if content is None:
                return
            batches = _batches_of(content, cut, schema, decoding)
            try:
                # a short file is compared with its fingerprints before its rows are yielded
                first = [*islice(batches, HELD_BATCHES)]
            except FileChanged as error:
                if not readings_left:
                    raise
                _log.info("reading again: %s", error)
                continue
            yield from first
            yield from batches
            return


def _batches_of(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a cut, then raise `FileChanged` if the file was changed during the read."""
    try:
        _check_encrypted(content, decoding)
        for batch in _rows(content, cut, schema, decoding):
            if batch.num_rows:
                yield batch
    except (CorruptData, SourceError) as error:
        content.require_range()  # a changed file is not damaged
        if not (isinstance(error, CorruptData) and decoding.ignore_corrupt_files):
            raise
        _log.warning("the rows before the damage are read: %s", error)
    content.require_range()


def _rows(content: RangeContent, cut: Cut, schema: pa.Schema, decoding: FileDecoding) -> Iterator[pa.RecordBatch]:
    readers = READERS
    if decoding.multi_line:
        readers = READERS | _MULTI_LINE
    read: Reader = pkgutil.resolve_name(readers[decoding.file_format])  # imported on first use
    planned = content.planned
    if decoding.is_utf_16:
        if not planned.whole:
            raise ConfigError(
                f"{_text_of_range(planned)} are lines of a growing file, planned with another encoding. "
                f"encoding={decoding.encoding} is only for files that are read as a whole. Run this batch with the "
                "old options first"
            )
        content, decoding = replace(content, utf_16=decoding), replace(decoding, encoding="utf-8")
    rows = read(content, cut, schema, decoding)
    if decoding.file_format == "json":
        return rows  # JSON's parser ends the process if memory runs out; JSON records have separate limits
    if planned.whole:
        stored_bytes = content.file.size_bytes
    else:
        stored_bytes = min(planned.end, LINE_BYTES_MAX)
    return limit_batches(rows, stored_bytes, planned.path)


def _check_encrypted(content: RangeContent, decoding: FileDecoding) -> None:
    """Raise `CorruptData` for an unencrypted file if only encrypted files are trusted; the plan may be older."""
    if decoding.encrypted_only and not content.is_encrypted:
        expected = "an encrypted file with a name that ends in .enc, because keyProvider is set"
        advice = "allowClearFiles=true reads unencrypted files, which are not authenticated"
        raise CorruptData(content.planned.path, expected, "an unencrypted file", advice)


def _is_skipped(planned: Range, decoding: FileDecoding) -> bool:
    return FileRange(planned.path, planned.start, planned.end) in decoding.skip_ranges


def _text_of_range(planned: Range) -> str:
    return f"the bytes {planned.start} to {planned.end} of {planned.path!r}"


def _path_values(path: str, requested: pa.Schema, time_zone: str) -> dict[str, pa.Scalar]:
    """Return the values of columns in the directories of a path, matched by name without case."""
    spellings = columns_in_path(path, requested)
    schema = pa.schema([requested.field(name).with_name(spelling) for name, spelling in spellings.items()])
    values = values_of_path(path.rpartition("/")[0], schema, time_zone)
    return {name: values[spelling] for name, spelling in spellings.items()}


class Elsewhere:
    """Files below a root by their lasting identities in the storage.

    The root is listed at the first request, and only once. Only the first `DIRECTORIES_MAX` directories, nearest to the
    root, are listed.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._paths: dict[str, list[str]] | None = None

    def paths_of(self, identity: str) -> list[str]:
        """Return the paths of files with an identity, without those in directories without the right to list them."""
        if self._paths is None:
            self._paths = {}
            for info in self._files():
                if (found := lasting_identity(info.identity)) is not None:
                    self._paths.setdefault(found, []).append(info.path)
        return self._paths.get(identity, [])

    def _files(self) -> Iterator[FileInfo]:
        directories = [""]
        for directory in directories:
            with suppress(PermissionDenied):
                for info in list_or_empty(self._fs, directory):
                    if not info.is_directory:
                        yield info
                    elif not info.is_link and len(directories) < DIRECTORIES_MAX:
                        directories.append(info.path)


class FileCandidate(NamedTuple):
    """A file that may have the content of a range."""

    path: str
    filters: tuple[str, ...]  # filters of its stored bytes, in the order in which they were applied


@contextmanager
def open_range(
    fs: FileSystem, planned: Range, decoding: FileDecoding, elsewhere: Elsewhere
) -> Iterator[RangeContent | None]:
    """Open the first candidate that has the content of a range; None if missing files are ignored and it is missing.

    Raises:
        FileChanged: the file at the path is missing or has other content, and no other file has the content.
    """
    reference = decoding.key_provider or os.environ.get(KEY_PROVIDER_VARIABLE)
    keys = None
    if reference:
        keys = Keys.from_reference(reference)
    is_gone = True
    for path, filters in locate(fs, planned, elsewhere, by_content=decoding.file_identity == "content"):
        try:
            file = fs.open(path)
        except NotFound:
            continue
        except PermissionDenied:
            if path == planned.path:
                raise
            continue
        with file:
            is_gone = is_gone and path != planned.path
            content = RangeContent(file, planned, filters, keys)
            if content.has_range():
                yield content
                return
    what = f"{_text_of_range(planned)}, which a batch must read,"
    skipped = (*decoding.skip_ranges, FileRange(planned.path, planned.start, planned.end))
    option = f"skipRanges={','.join(skip.to_text() for skip in skipped)}"
    if not is_gone:
        raise FileChanged(
            f"{what} no longer exist: this file and the files next to it have other content. Restore a file with "
            f"these bytes to this path, or continue without them with {option}"
        )
    if not decoding.ignore_missing_files:
        raise FileChanged(
            f"{what} are lost, because the file is missing: restore it. Or skip missing files with "
            f"ignoreMissingFiles=true, or only these bytes with {option}"
        )
    _log.warning("skipped: %s are lost, because the file is missing", what)
    yield None


def locate(fs: FileSystem, planned: Range, elsewhere: Elsewhere, *, by_content: bool) -> Iterator[FileCandidate]:
    """Yield the files that may have the content of a range, the most likely first.

    The first candidate is the file at the planned path. Files with the planned identity in the same directory follow.
    If files are identified by content, all other files in the directory that may have it follow, plain or compressed.
    The directory is listed until two listings are equal, since a file may be renamed before it is opened. Finally, all
    directories are searched for the identity.
    """
    filters = filters_of_range(planned)
    yield FileCandidate(planned.path, filters)
    directory = planned.path.rpartition("/")[0]
    names: set[tuple[str, str | None]] | None = None
    for _ in range(LISTINGS_MAX):
        listed = [info for info in list_or_empty(fs, directory) if not info.is_directory]
        before, names = names, {(info.path, info.identity) for info in listed}
        if names == before:
            break
        candidates = sorted((info for info in listed if info.path != planned.path), key=attrgetter("path"))
        renamed = _paths_of_identity(candidates, planned.identity)
        for path in renamed:
            yield FileCandidate(path, filters)
        if not by_content or planned.end < CONTENT_BYTES_MIN:
            continue
        for info in candidates:
            if info.path not in renamed and _may_hold(info, planned):
                yield FileCandidate(info.path, filters)
        if not planned.whole:
            yield from _packed_candidates(candidates, filters)
    if planned.identity is not None:
        for path in elsewhere.paths_of(planned.identity):
            yield FileCandidate(path, filters)


def _paths_of_identity(infos: Iterable[FileInfo], identity: str | None) -> list[str]:
    paths = []
    for info in infos:
        if identity is not None and lasting_identity(info.identity) == identity:
            paths.append(info.path)
    return paths


def _packed_candidates(infos: Iterable[FileInfo], filters: tuple[str, ...]) -> Iterator[FileCandidate]:
    """Yield the files that are compressed by other filters and not encrypted, by their names."""
    for info in infos:
        packed = filters_of_name(info.path)
        if packed and ENCRYPTION_FILTER not in packed and packed != filters:
            yield FileCandidate(info.path, packed)


def _may_hold(info: FileInfo, planned: Range) -> bool:
    if planned.whole:
        return info.size_bytes == planned.end
    return bool(planned.compression) or info.size_bytes >= planned.end
