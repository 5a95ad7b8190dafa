"""A version as a `pyarrow.dataset`, whose files Arrow engines read directly."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyarrow import fs as arrow_fs

from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.remedies import Advice, Remedy
from ftfile.formats.reading.lent_file import LentFile
from ftfile.log.places import open_add
from ftfile.read.selection import Selection, partition_expression, path_values
from ftfile.rows import kernels as pc
from ftfile.rows.spark_types import has_nearest, recorded_schema
from ftfile.rows.value_text import UTC
from ftfile.storage.api import FileInfo, InputFile, as_file
from ftfile.storage.calls import parallel, visit
from ftfile.storage.paths import parse
from ftfile.storage.registry import is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    import pyarrow.dataset as ds

    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.storage.api import FileSystem


_MOVES_MAX = 4  # moves of a file while it is opened: to its final name, to the hidden files, and back by a restore
_Opened = TypeVar("_Opened", FileInfo, InputFile)


def dataset_of(
    fs: FileSystem, url: str, snapshot: Snapshot, schema: pa.Schema, *, is_old: bool, statistics: bool = True
) -> ds.Dataset:
    """Return the dataset of a snapshot's files. No file is read; each file is located when it is opened.

    `is_old` is True if a version was requested, which can be older than the head; see `open_add`. With `statistics`, a
    scan with a filter opens only files whose statistics allow matching rows.

    Raises:
        ConfigError: pyarrow cannot read some files; the error names the calls that can.
        CorruptData: a file is missing.
    """
    import pyarrow.dataset as ds

    formats = {
        "arrow": ds.IpcFileFormat,
        "orc": ds.OrcFileFormat,
        "parquet": lambda: ds.ParquetFileFormat(
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        ),
    }
    adds = list(snapshot.adds.values())
    _require_readable(adds, snapshot.definitions, formats, schema)
    infos = parallel(fs, lambda add: open_add(add, fs.stat, is_old=is_old), adds)
    root = None
    if is_local(url):
        root = f"{parse(url).path.rstrip('/')}/"
    paths = [f"{root or ''}{info.path}" for info in infos]
    storage = arrow_fs.PyFileSystem(_Handler(fs, root, dict(zip(paths, adds, strict=True)), is_old=is_old))
    arrow_formats = {name: make() for name, make in formats.items()}
    files = _FragmentsById(schema, storage, arrow_formats)
    expressions: dict[tuple[str, str], Any] = {}
    for add, path in zip(adds, paths, strict=True):
        name = snapshot.definitions[add.encoding]["format"]["name"]
        place = add.directory_key, add.encoding
        if place not in expressions:
            values = path_values(snapshot.definitions[add.encoding], add.directory_key, schema)
            expressions[place] = partition_expression(values)
        fragment = arrow_formats[name].make_fragment(path, storage, expressions[place], file_size=add.length)
        files.fragments[name].append((add.id, fragment))
    dataset = files.dataset()
    if statistics:
        dataset.possible_files = partial(_possible_files, fs, snapshot, files)
    return dataset


class _FragmentsById:
    """The fragments of a dataset, with the ids of their adds."""

    def __init__(self, schema: pa.Schema, storage: arrow_fs.FileSystem, formats: Mapping[str, ds.FileFormat]) -> None:
        self.schema = schema
        self.fragments = defaultdict[str, list[tuple[str, Any]]](list)  # with the id of their add, by format
        self._storage = storage
        self._formats = formats

    def dataset(self, chosen_ids: Container[str] | None = None) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return the dataset of the files with these ids, by default of all files."""
        import pyarrow.dataset as ds

        file_dataset = _with_scanner(ds.FileSystemDataset)
        parts = []
        for name, pairs in self.fragments.items():
            chosen = [fragment for add_id, fragment in pairs if chosen_ids is None or add_id in chosen_ids]
            if chosen:
                parts.append(file_dataset(chosen, self.schema, self._formats[name], self._storage))
        if not parts:
            return file_dataset([], self.schema, self._formats["parquet"], self._storage)
        if len(parts) == 1:
            return parts[0]
        return _with_scanner(ds.UnionDataset)(self.schema, parts)


def _possible_files(
    fs: FileSystem, snapshot: Snapshot, files: _FragmentsById, where: pc.Expression
) -> ds.Dataset | None:
    """Return the dataset of the files whose statistics allow rows for which a filter is true; None for all files."""
    try:
        selection = Selection(snapshot, files.schema, columns=None, where=where, time_zone=UTC, fs=fs)
    except ConfigError:
        return None  # Arrow accepts more filters, and its own error fits the call of the user
    adds = selection.possible_files().adds
    if len(adds) == len(snapshot.adds):
        return None
    return files.dataset(frozenset(adds))


class _Scanner:
    """A scanner of Arrow that creates its reader without holding Python's global lock.

    Arrow's `to_reader`, which DuckDB calls, holds the lock while it waits for another thread to open a file. That
    thread needs the lock too. Seen with pyarrow 26.
    """

    def __init__(self, scanner: ds.Scanner) -> None:
        self._scanner = scanner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any other attribute of the scanner
        return getattr(self._scanner, name)

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._scanner.projected_schema, self._scanner.to_batches())


@cache
def _with_scanner(kind: type) -> type:
    """Return a subclass of an Arrow dataset class that opens only possible files, and whose scanners are `_Scanner`s.

    Attributes:
        possible_files: the function that returns the dataset to read for a filter; None to read all files.
    """
    return type(
        kind.__name__,
        (kind,),
        {"possible_files": None, "scanner": _scanner, "filter": _filter, "get_fragments": _get_fragments},
    )


def _narrow_dataset(dataset: Any, where: object) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return the dataset of the files that may contain rows for which a filter is true."""
    if dataset.possible_files is None or not isinstance(where, pc.Expression):
        return dataset
    return dataset.possible_files(where) or dataset


def _scanner(
    self: Any,  # noqa: ANN401 - pyarrow has no types
    columns: object = None,
    filter: object = None,  # noqa: A002 - a parameter of Arrow's method
    *arguments: Any,  # noqa: ANN401 - more parameters of Arrow's method
    **options: Any,  # noqa: ANN401 - more parameters of Arrow's method
) -> _Scanner:
    import pyarrow.dataset as ds

    return _Scanner(ds.Dataset.scanner(_narrow_dataset(self, filter), columns, filter, *arguments, **options))


def _filter(self: Any, expression: object) -> ds.Dataset:  # noqa: ANN401 - pyarrow has no types
    import pyarrow.dataset as ds

    # The result has no `possible_files`: a scan of other files would lose the filter, which the result contains.
    return ds.Dataset.filter(_narrow_dataset(self, expression), expression)


def _get_fragments(self: Any, filter: object = None) -> Iterator[ds.Fragment]:  # noqa: A002, ANN401 - as in Arrow
    import pyarrow.dataset as ds

    fragments: Iterator[ds.Fragment] = ds.Dataset.get_fragments(_narrow_dataset(self, filter), filter)
    return fragments


def _require_readable(
    adds: list[Add], definitions: Mapping[str, Any], formats: Mapping[str, object], schema: pa.Schema
) -> None:
    """Raise a ConfigError for files that pyarrow cannot read as `schema`; it names the calls that can."""
    checked: set[str] = set()
    alternative = "use to_batches() or to_arrow(), also for engines that accept Arrow"
    for add in adds:
        file_format = definitions[add.encoding]["format"]
        if add.kind == "segment":
            raise ConfigError(
                Advice(
                    "dataset(): some rows are in open files, which pyarrow cannot read: finish the files: ",
                    Remedy("flush"),
                    f"; or {alternative}",
                )
            )
        if file_format["name"] not in formats:
            raise ConfigError(
                f"dataset(): some files are {file_format['name']}, and pyarrow can only read "
                f"{', '.join(sorted(formats))} exactly: {alternative}"
            )
        if add.filters or file_format.get("encryptionKeyId") is not None:
            raise ConfigError(
                f"dataset(): {add.final_path!r} is encrypted or filtered, and pyarrow cannot read it: {alternative}"
            )
        if add.encoding not in checked and (name := _find_rounded(definitions[add.encoding], schema)) is not None:
            raise ConfigError(
                f"dataset(): column {name!r} has decimals in {add.final_path!r}, which are floating-point numbers in "
                f"this version; pyarrow converts them with errors in the last digit: {alternative}"
            )
        checked.add(add.encoding)


def _find_rounded(encoding: Mapping[str, Any], schema: pa.Schema) -> str | None:
    """Return the first column that pyarrow would round differently when it reads the values as `schema`, or None."""
    for field in recorded_schema(encoding["schema"]):
        if field.name in schema.names and has_nearest(field.type, schema.field(field.name).type):
            return str(field.name)
    return None


def _refuse(*_: object) -> None:
    raise NotImplementedError("a version cannot be changed")


def _error_of_gone(path: str) -> FileNotFoundError:
    return FileNotFoundError(f"{path!r} is missing: vacuum or another program deleted it. Call dataset() again")


class _Handler(arrow_fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """The parts of a snapshot as a file system of Arrow. Fragments use it to open parts and to read their sizes.

    A part is located when it is opened, since a compaction hides the files that it replaces. Parts on a local disk are
    opened as Arrow's native files. Threads that read them do not wait for Python.
    """

    def __init__(self, fs: FileSystem, root: str | None, parts: Mapping[str, Add], *, is_old: bool) -> None:
        self._fs = fs
        self._root = root  # the local directory with a trailing slash; None for other storage systems
        self._parts = parts
        self._is_old = is_old

    def get_type_name(self) -> str:
        return "ftfile"

    def get_file_info(self, paths: list[str]) -> list[arrow_fs.FileInfo]:
        kind = arrow_fs.FileType.File
        with visit():
            infos = []
            for path in paths:
                size_bytes = self._open(path, self._fs.stat).size_bytes
                infos.append(arrow_fs.FileInfo(path, kind, size=size_bytes))
            return infos

    def normalize_path(self, path: str) -> str:
        return path

    def open_input_file(self, path: str) -> pa.NativeFile:
        with visit():
            if self._root is None:
                return pa.PythonFile(LentFile(as_file(self._open(path, self._fs.open))), mode="r")
            for _ in range(_MOVES_MAX):
                with contextlib.suppress(FileNotFoundError):
                    return pa.OSFile(self._root + self._open(path, self._fs.stat).path)
            raise _error_of_gone(path)

    def _open(self, path: str, opener: Callable[[str], _Opened]) -> _Opened:
        try:
            return open_add(self._parts[path], opener, is_old=self._is_old)
        except CorruptData as error:
            raise _error_of_gone(path) from error

    open_input_stream = open_input_file
    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _refuse
    get_file_info_selector = move = open_append_stream = open_output_stream = _refuse
