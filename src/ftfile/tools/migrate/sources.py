"""The programs whose directories can be migrated, the detection of a program, and the log of a Delta table."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ftfile.core.errors import CommitError, ConfigError, CorruptData
from ftfile.core.remedies import Advice, Argument, Remedy
from ftfile.core.units import count_text, names_text
from ftfile.formats.partition_paths import columns_of_directory, parse_partition_path
from ftfile.log.directory import list_new_directory
from ftfile.log.format import layout
from ftfile.log.format.record import json_value
from ftfile.log.places import list_or_empty, walk
from ftfile.tools.migrate.inventory import (
    DELTA_LOG,
    SPARK_LOG,
    Inventory,
    is_hidden,
    list_foreign,
    plain_files,
    read_entry,
    uncommitted_files,
)
from ftfile.tools.migrate.named_files import (
    apex_files,
    flink_files,
    is_named_by_apex,
    is_named_by_flink,
    is_named_by_kafka,
    kafka_files,
)
from ftfile.tools.migrate.spark_log import entries_of, spark_files

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from ftfile.log.directory import LogName, Migration
    from ftfile.storage.api import FileInfo, FileSystem
    from ftfile.tools.migrate.inventory import LeftOut, Source


_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
# Reader features that do not change rows unless a file uses them.
_KNOWN_FEATURES = frozenset({"deletionVectors", "columnMapping", "timestampNtz", "vacuumProtocolCheck", "v2Checkpoint"})
_COLUMNS = ("add", "metaData", "protocol")  # the columns of a checkpoint that are read


class _DeltaFile(NamedTuple):
    """A file of a Delta table, with the identity of its deletion vector."""

    path: str
    vector_id: tuple[Any, ...] | None


def commits_of(fs: FileSystem) -> dict[int, str]:
    """Return the paths of the commits in Delta's log, by version."""
    commits = {}
    for info in list_or_empty(fs, DELTA_LOG):
        match = _COMMIT.fullmatch(info.path.rpartition("/")[2])
        if match is not None:
            commits[int(match[1])] = info.path
    return commits


def delta_files(fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the files of the newest version; other files belong to older versions, or to no version.

    Raises:
        ConfigError: the log is damaged, a file is missing or was changed, or the table requires an unsupported feature.
    """
    commits = commits_of(fs)
    if not commits:
        raise ConfigError(
            f"{DELTA_LOG!r} has no commits: restore it from a copy, or move it away if these files are not a Delta "
            "table"
        )
    if walk(fs, f"{DELTA_LOG}/_staged_commits") or walk(fs, f"{DELTA_LOG}/_commits"):
        raise ConfigError(
            "a catalog stores commits of this table, and only the catalog has the list of the valid commits: rewrite "
            "the table, for example with spark.read.table(…).write.format('ftfile')"
        )
    adds, described = _replay_commits(fs, commits, max(commits))
    _check_protocol(described)
    columns = tuple(described["metaData"].get("partitionColumns") or ())
    paths: dict[str, dict[str, Any]] = {unquote(path): add for path, add in adds.items()}
    for path, add in paths.items():
        _check_file(path, add, files, columns)
    return Inventory(
        source="delta",
        files=[files[path] for path in paths],
        left_out=uncommitted_files(files, paths, "it is not in the newest version of the table"),
        log=DELTA_LOG,
        last_entry=max(commits),
        schema=described["metaData"]["schemaString"],
        partition_by=columns,
    )


def _replay_commits(fs: FileSystem, commits: Mapping[int, str], newest: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the adds of the newest version by path, and the table's protocol and metadata."""
    adds: dict[_DeltaFile, Any] = {}
    described: dict[str, Any] = {}
    checkpoint, parts = _checkpoint(fs, newest)
    first = checkpoint + 1
    for version in range(first, newest + 1):
        if version not in commits:
            raise ConfigError(
                f"{DELTA_LOG!r} has no version {version}, and no later checkpoint that ftfile can read. Have the "
                "program that writes the table write a classic checkpoint (delta.checkpointPolicy=classic). Nothing "
                "was changed"
            )
    try:
        for path in parts:
            for action in _checkpoint_actions(read_entry(fs, path)):
                _apply(action, adds, described)
        for version in range(first, newest + 1):
            for line in read_entry(fs, commits[version]).splitlines():
                if line.strip():
                    _apply(json_value(line), adds, described)
        (
            described["metaData"]["schemaString"],
            described["protocol"]["minReaderVersion"],
        )  # KeyError if a field is missing
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise ConfigError(
            f"{DELTA_LOG!r} is damaged ({error!r}): restore it from a copy. Nothing was changed"
        ) from error
    return {file.path: add for file, add in adds.items()}, described


def _checkpoint(fs: FileSystem, newest: int) -> tuple[int, list[str]]:
    """Return the version and the paths of the newest complete checkpoint; -1 if no checkpoint is complete."""
    checkpoints: dict[tuple[int, int], list[str]] = {}  # paths by version and number of parts
    for info in list_or_empty(fs, DELTA_LOG):
        match = _CHECKPOINT.fullmatch(info.path.rpartition("/")[2])
        if match is not None:
            checkpoints.setdefault((int(match[1]), int(match[3] or 1)), []).append(info.path)
    for key in sorted(checkpoints, reverse=True):
        version, parts = key
        if version <= newest and len(checkpoints[key]) == parts:
            return version, checkpoints[key]
    return -1, []


def _checkpoint_actions(content: bytes) -> Iterable[dict[str, Any]]:
    """Yield the actions in a file of a checkpoint, in the form of the actions in commits."""
    table = pq.read_table(io.BytesIO(content))
    if "sidecar" in table.column_names and table["sidecar"].null_count < len(table):
        raise ConfigError(
            f"{DELTA_LOG!r} has a checkpoint with sidecars, which ftfile cannot read. Have the program that writes "
            "the table write a classic checkpoint (delta.checkpointPolicy=classic). Nothing was changed"
        )
    columns = [name for name in _COLUMNS if name in table.column_names]
    for row in table.select(columns).to_pylist():
        yield {name: action for name, action in row.items() if action is not None}  # a row has one action


def _apply(action: Mapping[str, Any], adds: dict[_DeltaFile, Any], described: dict[str, Any]) -> None:
    """Apply an action of a commit to the adds, or to the protocol and metadata."""
    for name, fields in action.items():
        if name in {"add", "remove"}:
            if not isinstance(fields["path"], str):
                raise TypeError(f"a path is {fields['path']!r:.40}")
            # If a file gets a new deletion vector, a commit adds the file with the new vector. It removes the file with
            # the old vector before or after this.
            file = _DeltaFile(fields["path"], _vector_id(fields.get("deletionVector")))
            if name == "add":
                adds[file] = fields
            else:
                adds.pop(file, None)
        elif name in {"metaData", "protocol"}:
            described[name] = fields


def _vector_id(descriptor: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    # Checkpoints contain all fields of a descriptor; commits omit fields that are null.
    if descriptor is None:
        return None
    return tuple(descriptor.get(name) for name in ("storageType", "pathOrInlineDv", "offset"))


def _check_protocol(described: Mapping[str, Any]) -> None:
    """Raise a ConfigError if ftfile cannot read the files of the table."""
    settings = dict(described["metaData"].get("configuration") or {})
    features = set(described["protocol"].get("readerFeatures") or ())
    mapping = settings.get("delta.columnMapping.mode", "none")
    if mapping != "none":
        raise ConfigError(
            f"the table maps columns (delta.columnMapping.mode={mapping}), so its files have other column names. "
            "Rewrite the table, for example with spark.read.format('delta').load(…).write.format('ftfile')"
        )
    if unknown := sorted(features - _KNOWN_FEATURES):
        raise ConfigError(
            f"the table requires the reader features {', '.join(unknown)}, which ftfile does not support: rewrite the "
            "table with ftfile"
        )


def _check_file(path: str, add: Mapping[str, Any], files: Mapping[str, FileInfo], columns: tuple[str, ...]) -> None:
    """Raise a ConfigError if a file is not as its add describes it, or if some of its rows are deleted."""
    if add.get("deletionVector"):
        raise ConfigError(
            f"rows of {path!r} are deleted by a deletion vector: have Delta rewrite such files with REORG TABLE … "
            "APPLY (PURGE), then migrate"
        )
    info = files.get(path)
    if info is None or info.size_bytes != add["size"]:
        if info is None:
            actual = "is missing"
        else:
            actual = f"has {info.size_bytes} bytes here"
        raise ConfigError(
            f"{path!r}, with {add['size']} bytes in {DELTA_LOG!r}, {actual}: restore it from a copy. Nothing was "
            "changed"
        )
    directory = layout.parent(path)
    values = dict(add.get("partitionValues") or {})
    try:
        path_values = parse_partition_path(directory, pa.schema(dict.fromkeys(columns, pa.string())))
    except CorruptData:
        path_values = {}
    is_in_partition = columns_of_directory(directory) == columns
    for column in columns:
        if not is_in_partition or column not in path_values:
            is_in_partition = False
            break
        recorded_value = values[column] or None
        is_in_partition = path_values[column].as_py() == recorded_value
    if not is_in_partition:
        partition = ", ".join(f"{column}={values.get(column)}" for column in columns)
        raise ConfigError(
            f"the table has {path!r} in the partition {partition or 'without columns'}, and its directory name does "
            "not: rewrite the table with ftfile"
        )


def _accept_never(_: Iterable[str]) -> bool:
    return False


def _no_entries(_: FileSystem) -> Mapping[int, object]:
    return {}


class Program(NamedTuple):
    """A program that wrote a directory, and the functions that find its committed files.

    Attributes:
        name: the value of `from_`.
        take: receives all files of a directory, and returns the committed files.
        is_named_so: returns True if file names identify the program.
        log: the directory of the program's log, which identifies the program.
        list_entries: returns the entries of the log by batch or version.
    """

    name: Source
    take: Callable[[FileSystem, Mapping[str, FileInfo]], Inventory]
    is_named_so: Callable[[Iterable[str]], bool] = _accept_never
    log: LogName | None = None
    list_entries: Callable[[FileSystem], Mapping[int, object]] = _no_entries


# The order matters: `detect` returns the first program whose names match.
_TABLE = (
    Program("spark", spark_files, log=SPARK_LOG, list_entries=entries_of),
    Program("delta", delta_files, log=DELTA_LOG, list_entries=commits_of),
    Program("flink", flink_files, is_named_by_flink),
    Program("apex", apex_files, is_named_by_apex),
    Program("kafka-connect", kafka_files, is_named_by_kafka),
    Program("files", plain_files),
)
PROGRAMS: Mapping[str, Program] = {program.name: program for program in _TABLE}
_BY_LOG = {program.log: program for program in _TABLE if program.log is not None}


def detect(names: Iterable[str]) -> Program:
    """Return the program that the file names identify; `files` if they identify no program."""
    for program in _TABLE:
        if program.is_named_so(names):
            return program
    return PROGRAMS["files"]


def _program_by_name(from_: str, files: Iterable[str]) -> Program:
    """Return the program that the caller names or, for `auto`, that the file names identify."""
    if from_ == "auto":
        return detect(files)
    return PROGRAMS[from_]


def take_inventory(fs: FileSystem, url: str, from_: str, *, leave_unfinished: bool) -> Inventory:
    """Return the committed files of the program that wrote the directory; for `ConfigError` see `migrate`."""
    if from_ != "auto" and from_ not in PROGRAMS:
        names = ", ".join(("auto", *PROGRAMS))
        raise ConfigError(Advice(f"{from_!r} is not a known program: ", Argument("from_"), f" takes {names}"))
    logs = [name for name in _BY_LOG if fs.exists(name)]
    if len(logs) > 1:
        raise ConfigError(
            f"path={url!r} has {' and '.join(logs)}, and each lists committed files: move away the log that is no "
            "longer valid"
        )
    logged = None
    if logs:
        logged = _BY_LOG[logs[0]]
    if logged is None:
        list_new_directory(fs, url)  # raises an error for other tables
    elif from_ not in {"auto", logged.name}:
        raise ConfigError(
            Advice(
                f"path={url!r} has {logged.log}, which lists the committed files: give ",
                Argument("from_", logged.name),
                "; or move it away if it is no longer valid",
            )
        )
    files = list_foreign(fs)
    program = logged or _program_by_name(from_, files)
    if program.log is not None and logged is None:
        raise ConfigError(f"path={url!r} has no {program.log}, the log of {program.name}: is it the right directory?")
    inventory = program.take(fs, files)
    inventory.files.sort()
    if not inventory.files:
        hidden = list(filter(is_hidden, files))
        ignored = ""
        if hidden:
            ignored = f" ({names_text(hidden)}: names that begin with _ or . are ignored)"
        raise ConfigError(f"path={url!r} has no files of rows{ignored}. Is it the right directory?")
    _leave_out_unfinished(inventory, leave=leave_unfinished)
    return inventory


def _leave_out_unfinished(inventory: Inventory, *, leave: bool) -> None:
    """Move the unfinished files of an inventory to its omitted files; ConfigError if `leave` is False."""
    if inventory.unfinished and not leave:
        count = len(inventory.unfinished)
        verb = "is" if count == 1 else "are"
        names = names_text([file.path for file in inventory.unfinished])
        raise ConfigError(
            Advice(
                f"{count_text(count, 'file')} {verb} not finished: {names}. {inventory.unfinished[0].why}. Start the "
                "program again and stop it cleanly (with a savepoint, or so that it commits), or omit their rows with ",
                Argument("leave_unfinished", value=True),
                ". Nothing was changed",
            )
        )
    inventory.left_out += inventory.unfinished
    inventory.unfinished = []


def require_stopped(fs: FileSystem, name: LogName, last_entry: int | None, url: str) -> None:
    """Raise a `CommitError` if the other program has added entries to its log since the log was read."""
    newest = max(_BY_LOG[name].list_entries(fs), default=None)
    # The newest entries are missing if a migration was interrupted while it moved the log.
    if newest is not None and last_entry is not None and newest > last_entry:
        raise CommitError(
            Advice(
                f"{name} of {url!r} has entry {newest}, and the files up to entry {last_entry} are migrated: its "
                "writer is still running, or was started again. Stop the writer, undo the migration with ",
                Remedy("undo_migration"),
                ", and migrate again",
            )
        )


def recorded_program(migration: Migration) -> Program:
    """Return the program of a recorded migration."""
    program = PROGRAMS.get(migration.program)
    if program is None:
        raise CorruptData(layout.LOG, f"a program of {', '.join(PROGRAMS)}", f"{migration.program!r:.80}")
    return program


def still_there(
    fs: FileSystem, program: Program, live: Container[str | None], *, leave_unfinished: bool
) -> list[LeftOut]:
    """Return uncommitted files that an interrupted migration left visible; `ConfigError` for unfinished files."""
    files = list_foreign(fs)
    if program.log is not None:
        return uncommitted_files(files, live, "the log did not name it")
    # Without a log, only file names show which files are not committed. Some of these files can be newer than the
    # interruption.
    inventory = program.take(fs, files)
    inventory.unfinished = [file for file in inventory.unfinished if file.moved]
    _leave_out_unfinished(inventory, leave=leave_unfinished)
    return [file for file in inventory.left_out if file.moved]
