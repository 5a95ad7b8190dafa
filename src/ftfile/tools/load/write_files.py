"""The write of files of other programs to a directory in one commit."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.formats.reading.time_formats import TimeFormats
from ftfile.log.directory import check_is_files
from ftfile.log.format.model import Transaction
from ftfile.log.opening import open_log
from ftfile.operate.details import version_details
from ftfile.operate.writers.directory_options import existing_log, stored_rows
from ftfile.operate.writers.one_commit import write
from ftfile.operate.writers.sink_arguments import SinkArguments
from ftfile.rows.spark_types import arrow_schema
from ftfile.tools.load.file_rows import LoadedRows, TextColumns
from ftfile.tools.load.input_files import TEXT, input_files
from ftfile.tools.load.standard_input import interrupt_reads
from ftfile.tools.migrate.reading import given_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.arguments import Access
    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport:
    """The result of a write.

    Attributes:
        version: the version with the rows; the newest version if they were already committed.
        rows: the number of written rows; 0 if they were already committed.
        files: the number of written files; 0 if the rows were already committed.
        rows_read: the number of rows in the files; more than `rows` if `badRecords` omits some.
        already_committed: True if the same `app_id` and `version` were committed before, so nothing was written.
    """

    version: int
    rows: int
    files: int
    rows_read: int
    already_committed: bool


@dataclass(frozen=True, slots=True)
class FilesToLoad:
    """The files of a write.

    Attributes:
        paths: of the files; `-` is stdin.
        file_format: of all files; None if their names show it.
        schema: types of columns of text files, and of columns without a type in other files, as for `migrate`. The
            other columns of text files have the types of the directory.
    """

    paths: Sequence[str]
    file_format: str | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """The arguments of `ftfile.write`; options of the sink by names in snake case."""

    options: Mapping[str, Any]
    mode: str = "append"
    replace_where: str | None = None
    app_id: str | None = None
    version: int | None = None
    threads: int | None = None


# Options of the sink that are arguments of `write_files`, because they are also needed to open the directory.
_ACCESS = frozenset({"key_provider", "at_least_version"})


def own_arguments() -> frozenset[str]:
    """Return the names of the arguments of `ftfile.write` that `WriteSettings.options` must not contain."""
    names = set(_ACCESS)
    for name, parameter in inspect.signature(write).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD and name not in SinkArguments.__annotations__:
            names.add(name)
    return frozenset(names)


def write_files(
    path: str, inputs: FilesToLoad, settings: WriteSettings, *, access: Access, progress: OnProgress | None = None
) -> WriteReport:
    """Write the rows of files to a directory in one commit; a directory without a log is created.

    Args:
        path: of the directory.
        inputs: the files.
        settings: of the write.
        access: how the directory is opened.
        progress: called after each batch of rows that is read, and after each file.

    Raises:
        ConfigError: a file is missing, unreadable or damaged, or an option is wrong. Nothing was written.
        SchemaError: the columns of the files differ from each other, or do not match the directory.
        KeyboardInterrupt: contains whether rows were written.
        Others: see `ftfile.write`.
    """
    with _interruptions():  # it may wait for stdin
        files = input_files(inputs.paths, inputs.file_format)
    types = {} if inputs.schema is None else _types_of(arrow_schema(given_schema(inputs.schema)))
    log = existing_log(path, access)
    before = -1
    options = dict(settings.options)
    recorded: dict[str, pa.DataType] = {}
    if log is not None:
        head = log.refresh()
        check_is_files(head, path)
        before = head.version
        stored = stored_rows(log, head, _identity(settings))
        if (schema := stored.schema) is not None:
            recorded = _types_of(schema)
        if stored.encoding is not None and options.get("time_zone") is None:
            options["time_zone"] = _recorded_zone(stored.encoding)
    times = TimeFormats.from_options({"timeZone": options.get("time_zone") or "UTC"})
    context = access.context
    rows = LoadedRows(
        files,
        TextColumns(recorded | types, times),
        required=[*types],
        order=[*recorded],
        context=context,
        on_progress=progress,
    )
    with interrupt_reads(), _interruptions(rows):
        version = write(
            path,
            rows,
            mode=settings.mode,
            replace_where=settings.replace_where,
            app_id=settings.app_id,
            version=settings.version,
            threads=settings.threads,
            storage=access.storage,
            context=context,
            key_provider=access.key_provider,
            at_least_version=access.at_least_version,
            **options,
        )
        return _report(open_log(path, access), version, before, settings, rows.count)


@contextmanager
def _interruptions(rows: LoadedRows | None = None) -> Iterator[None]:
    """Add to an interruption whether rows were written. The commit can only happen after the last row was read."""
    try:
        yield
    except KeyboardInterrupt:
        if rows is not None and rows.is_complete:
            raise KeyboardInterrupt("All rows were written, or none: see ftfile history") from None
        raise KeyboardInterrupt("Nothing was written") from None


def _identity(settings: WriteSettings) -> Transaction | None:
    if settings.app_id is None or settings.version is None:
        return None
    return Transaction(settings.app_id, settings.version)


def _recorded_zone(encoding: Mapping[str, Any]) -> str | None:
    """Return the time zone of a directory: of times in its files if they are texts, or else in its names."""
    file_format = encoding["format"]
    zone: str | None = file_format.get("timeZone")
    if zone is None and file_format["name"] not in TEXT:
        zone = encoding.get("timeZone")
    return zone


def _types_of(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}


def _report(log: CommitLog, version: int, before: int, settings: WriteSettings, rows_read: int) -> WriteReport:
    commit = version_details(log, version).commit
    identity = commit.txn_app_id, commit.txn_version
    # A repeated write returns the newest version, which another writer can have created.
    if version <= before or identity != (settings.app_id, settings.version):
        return WriteReport(version=version, rows=0, rows_read=0, files=0, already_committed=True)
    return WriteReport(
        version=version, rows=commit.rows, rows_read=rows_read, files=commit.files, already_committed=False
    )
