"""The inventory of a directory that another program wrote.

The log of Spark's file sink lists the committed files. Flink, Kafka Connect and Malhar mark them by their names.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import unquote

from ftfile.core.errors import ConfigError, CorruptData, NotADirectory
from ftfile.core.units import first_text, names_text
from ftfile.log.format import layout
from ftfile.log.format.record import FILE_BYTES_MAX, json_value, read_within
from ftfile.log.places import list_or_empty, list_own, stat_or_none
from ftfile.storage.calls import parallel

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ftfile.storage.api import FileInfo, FileSystem


Source: TypeAlias = Literal["files", "spark", "flink", "kafka-connect", "apex", "delta"]

SPARK_LOG = "_spark_metadata"
DELTA_LOG = "_delta_log"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file whose rows are not committed."""

    path: str  # relative to the directory
    size_bytes: int
    why: str
    moved: bool = False  # plain readers would read it, so a migration moves it below `_ftfile`


@dataclass(slots=True)
class Inventory:
    """The files that another program left in a directory."""

    source: Source
    files: list[FileInfo]  # with committed rows
    left_out: list[LeftOut] = field(default_factory=list)
    unfinished: list[LeftOut] = field(default_factory=list)  # committed or not: only the other program's state shows it
    log: str | None = None  # directory of the other program's log
    last_entry: int | None = None  # the newest batch or version in the log
    schema: str | None = None  # from the log
    partition_by: tuple[str, ...] | None = None  # from the log


def is_hidden(path: str) -> bool:
    """Return True for a path that Spark's readers ignore."""
    names = path.split("/")
    return any(name[0] == "." or (name[0] == "_" and "=" not in name) for name in names)


def list_foreign(fs: FileSystem) -> dict[str, FileInfo]:
    """Return all files except files of logs, by path.

    Raises:
        ConfigError: the path is not a directory, or a table or a checkpoint is below it.
        NotAFile: the directory contains a link to a file; such links are not followed.
    """
    try:
        entries = list_own(fs, "")
    except NotADirectory as error:
        raise ConfigError(f"this is not a directory: {error.detail}. Give the directory of the files") from error
    files: dict[str, FileInfo] = {}
    root = stat_or_none(fs, "")
    if root is None:
        passed = set()
    else:
        passed = {root.identity}
    while entries:
        for info in entries:
            if info.is_link and not info.is_directory:
                fs.stat(info.path)  # raises an error that names the link
        files |= {info.path: info for info in entries if not info.is_directory}
        below = {info.identity or info.path: info for info in entries if info.is_directory and info.path not in _OWN}
        directories = [info.path for identity, info in below.items() if identity not in passed]  # ends loops of links
        passed |= below.keys()
        _refuse_logs_below(directories)
        listed: Sequence[list[FileInfo]] = parallel(fs, partial(list_own, fs), directories)
        entries = list(itertools.chain.from_iterable(listed))
    _refuse_others_below(files)
    return dict(sorted(files.items()))


_OWN = frozenset({layout.META, SPARK_LOG, DELTA_LOG})
_LOGS_BELOW = _OWN | {".hoodie"}
_ICEBERG = re.compile(r"(?P<table>.+)/metadata/[^/]+\.metadata\.json[^/]*")
_OFFSETS = re.compile(r"(?P<checkpoint>.+)/offsets/\d+")


def _refuse_logs_below(directories: Iterable[str]) -> None:
    parts = (path.rpartition("/") for path in directories)
    below = [(above, name) for above, _, name in parts if above and not is_hidden(above)]
    if logs := [f"{above}/{name}" for above, name in below if name in _LOGS_BELOW]:
        raise ConfigError(
            f"subdirectories have separate logs, which decide which of their files are committed: {names_text(logs)}. "
            "Migrate each of these directories separately, or move it out of this one. Nothing was changed"
        )


def _refuse_others_below(files: Mapping[str, FileInfo]) -> None:
    for path in files:
        table, checkpoint = _ICEBERG.fullmatch(path), _OFFSETS.fullmatch(path)
        if table is not None and not is_hidden(path):
            raise ConfigError(
                f"{table['table']!r} is an Iceberg table, whose metadata decides which of its files are committed: "
                "move it out of this directory. Nothing was changed"
            )
        if checkpoint is not None and not is_hidden(path) and f"{checkpoint['checkpoint']}/metadata" in files:
            raise ConfigError(
                f"{checkpoint['checkpoint']!r} is the checkpoint of a Spark query, and readers would read its files "
                "as rows: move it out of this directory. Nothing was changed"
            )


def read_entry(fs: FileSystem, path: str) -> bytes:
    """Return a file of another program's log; raises `ConfigError`, without reading it all, if it exceeds 512 MiB."""
    try:
        return read_within(fs, path, FILE_BYTES_MAX)
    except CorruptData as error:
        raise ConfigError(
            f"{path!r} has more than {FILE_BYTES_MAX} bytes, the largest log file that ftfile reads: restore it from "
            "a copy, or rewrite the table with ftfile. Nothing was changed"
        ) from error


_NAME = re.compile(r"(?P<batch>\d+)(?P<compact>\.compact)?")
LENGTH_BYTES_MAX = 40  # of a `.valid-length` file
_AUTHORITY = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")


def entries_of(fs: FileSystem) -> dict[int, tuple[str, bool]]:
    """Return the files of Spark's log by batch, each with True if it compacts all batches up to this one."""
    entries: dict[int, tuple[str, bool]] = {}
    for info in list_or_empty(fs, SPARK_LOG):
        match = _NAME.fullmatch(info.path.rpartition("/")[2])
        if match is not None:
            is_compact = match["compact"] is not None
            if is_compact or int(match["batch"]) not in entries:
                entries[int(match["batch"])] = info.path, is_compact
    return entries


def spark_files(fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the files that the log names; other files come from failed attempts, or their entries expired.

    Raises:
        ConfigError: the log is damaged, or a file that it names is missing or was changed.
    """
    entries = entries_of(fs)
    if not entries:
        raise ConfigError(
            f"{SPARK_LOG!r} names no files, so there is nothing to migrate. Delete {SPARK_LOG!r} to write here"
        )
    newest = max(entries)
    first = max((batch for batch, (_, is_compact) in entries.items() if is_compact), default=0)
    if missing := [batch for batch in range(first, newest + 1) if batch not in entries]:
        raise ConfigError(f"{SPARK_LOG!r} lacks batch {missing[0]}: restore it from a copy. Nothing was changed")
    needed = [entries[batch][0] for batch in range(first, newest + 1)]
    contents = parallel(fs, partial(read_entry, fs), needed)
    sizes: dict[str, int] = {}
    for path, content in zip(needed, contents, strict=True):
        for action, text, size_bytes in _parsed(path, content):
            if action == "delete":
                sizes.pop(text, None)
            else:
                sizes[text] = size_bytes
    paths = _relative(sizes, files.keys())
    for text, path in paths.items():
        if files[path].size_bytes != sizes[text]:
            raise ConfigError(
                f"{path!r} has {files[path].size_bytes} bytes, and {sizes[text]} in {SPARK_LOG!r}: another program "
                "changed it. Restore it from a copy. Nothing was changed"
            )
    named = set(paths.values())
    left_out = [path for path in files if path not in named and not is_hidden(path)]
    return Inventory(
        "spark",
        [files[path] for path in paths.values()],
        [LeftOut(path, files[path].size_bytes, f"it is not in {SPARK_LOG}", moved=True) for path in left_out],
        log=SPARK_LOG,
        last_entry=newest,
    )


def _parsed(path: str, content: bytes) -> Iterable[tuple[str, str, int]]:
    lines = content.decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != "v1":
        raise ConfigError(
            f"{path!r} begins with {''.join(lines[:1])[:40]!r} instead of 'v1': it is damaged, or was written by an "
            "unsupported version of Spark"
        )
    try:
        entries = [_entry(json_value(line.encode())) for line in lines[1:]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path!r} is damaged: a line does not describe a file. Restore it from a copy. Nothing was changed"
        ) from error
    return entries


def _entry(value: Any) -> tuple[str, str, int]:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(value["path"], str):
        raise TypeError(f"a path is {value['path']!r:.40}")
    return value.get("action", "add"), value["path"], value["size"]


def _relative(urls: Collection[str], listed_paths: Collection[str]) -> dict[str, str]:
    """Return each URL's path in this directory, also if the directory was moved; `ConfigError` if a file is missing."""
    plain = {url: unquote(_AUTHORITY.sub("", url)) for url in urls}
    bases = (_base_of(path, listed_paths) for path in plain.values())
    base = next((base for base in bases if base is not None), "")
    paths = {url: path.removeprefix(base) for url, path in plain.items()}
    if missing := [url for url, path in paths.items() if path not in listed_paths]:
        raise ConfigError(
            f"{SPARK_LOG!r} names files that do not exist: {names_text(missing)}. Restore them from a copy. Nothing "
            "was changed"
        )
    return paths


def _base_of(path: str, listed_paths: Collection[str]) -> str | None:
    """Return the part of a path before its shortest suffix that is a listed path."""
    at = len(path)
    while (at := path.rfind("/", 0, at)) >= 0:
        if path[at + 1 :] in listed_paths:
            return path[: at + 1]
    return None


# The prefix is `_` by default, which a job can change to the empty text; the suffixes are BucketingSink's defaults.
_BUCKETING = re.compile(r"(?P<directory>(?:.*/)?)_?(?P<name>[^/]+)\.(?P<state>in-progress|pending|valid-length)")
_FILE_SINK = re.compile(r"(?P<directory>(?:.*/)?)\.(?P<name>[^/]+)\.inprogress\.[0-9a-fA-F-]+")
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# FileSink prefixes uncompacted files with a dot, and Flink's tables prefix them with `.uncompacted-`.
_COMPACTING = re.compile(rf"(?:.*/)?(?:\.|compacted-)[^/]*-{_UUID}-\d+[^/]*(?<!\.crc)")
# The HDFS connector names files `topic+partition+start+end.ext`, and the S3 connector `topic+partition+start.ext`.
_KAFKA = re.compile(r"(?P<topic>[^/+]+)\+(?P<partition>\d+)\+(?P<start>\d+)(?:\+(?P<end>\d+))?(?:\.[^/]+)?")
_KAFKA_TEMPORARY = re.compile(r"(?:.*/)?\+tmp/.*")
_APEX = re.compile(r"(?P<name>.+)\.\d{13,}\.tmp")

_BY_CHECKPOINT = "Flink has not finished it: only the job's last checkpoint shows if its rows are committed"
_BY_WINDOW = "Apex has not published it: only its window state shows if its rows are committed"
_NOT_COMPACTED = (
    "Flink has not compacted it, or has not deleted it since: only its state shows which. `flink stop --drain` compacts"
)


def is_named_by_flink(names: Iterable[str]) -> bool:
    """Return True if a file has a name that Flink's sinks give to unfinished files."""
    return any(map(_is_unfinished_name_of_flink, names))


def _is_unfinished_name_of_flink(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in (_BUCKETING, _FILE_SINK, _COMPACTING))


def is_named_by_apex(names: Iterable[str]) -> bool:
    """Return True if a file has the name of a file that AbstractFileOutputOperator is still writing."""
    return any(_APEX.fullmatch(name) for name in names)


def is_named_by_kafka(names: Iterable[str]) -> bool:
    """Return True if there are visible files, and all of them have names of Kafka Connect."""
    visible = [name for name in names if not is_hidden(name) and not _KAFKA_TEMPORARY.fullmatch(name)]
    return bool(visible) and all(_KAFKA.fullmatch(name.rpartition("/")[2]) for name in visible)


def plain_files(_fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return all files that plain readers see."""
    return Inventory("files", [info for path, info in files.items() if not is_hidden(path)])


def flink_files(fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the finished files of Flink's sinks; raises `ConfigError` if a length differs from `.valid-length`."""
    inventory = Inventory("flink", [])
    too_long: list[tuple[FileInfo, int]] = []
    for path, info in files.items():
        match = _BUCKETING.fullmatch(path) or _FILE_SINK.fullmatch(path)
        if match is None:
            if not is_hidden(path):
                inventory.files.append(info)
            elif _may_be_uncompacted(path):
                inventory.unfinished.append(LeftOut(path, info.size_bytes, _NOT_COMPACTED))
            continue
        moved = not is_hidden(path)
        if match.groupdict().get("state") == "valid-length":
            part = files.get(match["directory"] + match["name"])
            length = _valid_length(fs, path, part)
            if part is not None and part.size_bytes > length:
                too_long.append((part, length))
            inventory.left_out.append(LeftOut(path, info.size_bytes, "it only stores another file's length", moved))
        else:
            inventory.unfinished.append(LeftOut(path, info.size_bytes, _BY_CHECKPOINT, moved))
    _require_cut(too_long)
    return inventory


def _may_be_uncompacted(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    return name[0] == "." and not name.endswith(".crc") and not (directory and is_hidden(directory))


def _valid_length(fs: FileSystem, path: str, info: FileInfo | None) -> int:
    """Return the length of a file's committed bytes: the decimal number that Java's `writeUTF` wrote to `path`."""
    content = fs.read(path, LENGTH_BYTES_MAX)
    digits = content[2:] if content[:1] == b"\0" else content  # after the two bytes with its own length
    if not digits.strip().isdigit() or len(content) > LENGTH_BYTES_MAX:
        raise ConfigError(f"{path!r} must contain a number of bytes, not {content[:40]!r}. Nothing was changed")
    length = int(digits)
    if info is None:
        raise ConfigError(f"{path!r} records a file of {length} bytes, and that file is missing")
    if info.size_bytes < length:
        raise ConfigError(
            f"{info.path!r} has {info.size_bytes} bytes, and {path!r} records {length}: rows are missing. Restore the "
            "file from a copy"
        )
    return length


def _require_cut(too_long: Sequence[tuple[FileInfo, int]]) -> None:
    """Raise a `ConfigError` if files have bytes after the committed ones, because a migration never changes files."""
    if not too_long:
        return
    examples = first_text([f"{length} of the {info.size_bytes} bytes of {info.path!r}" for info, length in too_long])
    info, length = too_long[0]
    raise ConfigError(
        "Flink could not truncate files after a failure, and only their first bytes are committed, as recorded in "
        f"files .valid-length: {examples}. Truncate each file, for example with `truncate -s {length} "
        f"{shlex.quote(info.path)}` in the directory, on HDFS by `hdfs dfs -truncate -w {length} "
        f"…/{shlex.quote(info.path)}`, or rewrite its first bytes if the store cannot truncate; "
        "docs/migrating/flink.md shows this for many files. Then migrate again. Nothing was changed"
    )


def apex_files(_fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the finished files of AbstractFileOutputOperator."""
    inventory = Inventory("apex", [])
    for path, info in files.items():
        match = _APEX.fullmatch(path)
        if match is None:
            if not is_hidden(path):
                inventory.files.append(info)
            continue
        is_published = match["name"] in files
        why = _BY_WINDOW
        if is_published:
            why = f"an older copy of {match['name']!r}"
        left_out = LeftOut(path, info.size_bytes, why, not is_hidden(path))
        (inventory.left_out if is_published else inventory.unfinished).append(left_out)
    return inventory


def kafka_files(_fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the committed files of one topic of Kafka Connect's HDFS or S3 sink.

    Raises:
        ConfigError: a name is unknown, there are several topics, or two files of a directory share an offset.
    """
    inventory = Inventory("kafka-connect", [])
    topics: dict[str, str] = {}  # each with the path of one of its files
    strangers: list[str] = []
    ranges: defaultdict[tuple[str, int], list[tuple[int, int, str]]] = defaultdict(list)
    for path, info in files.items():
        if _KAFKA_TEMPORARY.fullmatch(path):
            why = "The connector has not committed it: only the connector's log shows if it will"
            inventory.unfinished.append(LeftOut(path, info.size_bytes, why, moved=not is_hidden(path)))
            continue
        if is_hidden(path):
            continue
        directory, _, name = path.rpartition("/")
        match = _KAFKA.fullmatch(name)
        if match is None:
            strangers.append(path)
            continue
        topics.setdefault(match["topic"], path)
        start = int(match["start"])
        ranges[directory, int(match["partition"])].append((start, int(match["end"] or start), path))
        inventory.files.append(info)
    if strangers:
        raise ConfigError(
            "files do not have names of Kafka Connect, such as topic+0+0000000000+0000000999.avro: "
            f"{names_text(strangers)}. Move them away, or rename them to begin with an underscore"
        )
    if len(topics) > 1:
        examples = ", ".join(f"{topic} ({path!r})" for topic, path in sorted(topics.items()))
        raise ConfigError(
            f"there are files of several topics: {examples}. Migrate the directory of each topic separately"
        )
    for some in ranges.values():
        some.sort()
        for (_, end, path), (start, _, other) in itertools.pairwise(some):
            if start <= end:
                raise ConfigError(
                    f"{path!r} and {other!r} both contain offset {start}, so its row would be duplicated: move away "
                    "the file that is not committed"
                )
    return inventory
