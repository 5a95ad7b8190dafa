"""The files of the programs Flink, Kafka Connect and Apache Apex, which mark committed files by their names."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import defaultdict
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.core.units import first_text, names_text
from ftfile.tools.migrate.inventory import Inventory, LeftOut, is_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.storage.api import FileInfo, FileSystem


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

LENGTH_BYTES_MAX = 40  # of a `.valid-length` file

_BY_CHECKPOINT = "Flink has not finished it: only the job's last checkpoint shows if its rows are committed"
_BY_WINDOW = "Apex has not published it: only its window state shows if its rows are committed"
_NOT_COMPACTED = (
    "Flink has not compacted it, or has not deleted it after the compaction: only the job's state shows which. "
    "`flink stop --drain` compacts these files"
)


def is_named_by_flink(names: Iterable[str]) -> bool:
    """Return True if a file has a name that Flink's sinks give to unfinished files."""
    return any(map(_is_unfinished_name_of_flink, names))


def _is_unfinished_name_of_flink(name: str) -> bool:
    match = _BUCKETING.fullmatch(name) or _FILE_SINK.fullmatch(name) or _COMPACTING.fullmatch(name)
    return match is not None


def is_named_by_apex(names: Iterable[str]) -> bool:
    """Return True if a file has the name of a file that AbstractFileOutputOperator is still writing."""
    return any(_APEX.fullmatch(name) for name in names)


def is_named_by_kafka(names: Iterable[str]) -> bool:
    """Return True if there are visible files, and all of them have names of Kafka Connect."""
    has_files = False
    for path in names:
        if is_hidden(path) or _KAFKA_TEMPORARY.fullmatch(path):
            continue
        if not _KAFKA.fullmatch(path.rpartition("/")[2]):
            return False
        has_files = True
    return has_files


def flink_files(fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the finished files of Flink's sinks; raises `ConfigError` if a length differs from `.valid-length`."""
    inventory = Inventory(source="flink", files=[])
    too_long: list[tuple[FileInfo, int]] = []
    for path, info in files.items():
        match = _BUCKETING.fullmatch(path) or _FILE_SINK.fullmatch(path)
        if match is None:
            if not is_hidden(path):
                inventory.files.append(info)
            elif _may_be_uncompacted(path):
                inventory.unfinished.append(LeftOut(path=path, size_bytes=info.size_bytes, why=_NOT_COMPACTED))
            continue
        moved = not is_hidden(path)
        if match.groupdict().get("state") == "valid-length":
            part = files.get(match["directory"] + match["name"])
            length = _valid_length(fs, path, part)
            if part is not None and part.size_bytes > length:
                too_long.append((part, length))
            inventory.left_out.append(
                LeftOut(
                    path=path,
                    size_bytes=info.size_bytes,
                    why="it only contains the length of another file",
                    moved=moved,
                )
            )
        else:
            inventory.unfinished.append(LeftOut(path=path, size_bytes=info.size_bytes, why=_BY_CHECKPOINT, moved=moved))
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
    texts = []
    for info, length in too_long:
        texts.append(f"{length} of the {info.size_bytes} bytes of {info.path!r}")
    examples = first_text(texts)
    info, length = too_long[0]
    raise ConfigError(
        "Flink could not truncate files after a failure, and only their first bytes are committed, as recorded in "
        f"files .valid-length: {examples}. Truncate each file, for example with `truncate -s {length} "
        f"{shlex.quote(info.path)}` in the directory, on HDFS by `hdfs dfs -truncate -w {length} "
        f"…/{shlex.quote(info.path)}`, or rewrite its first bytes if the storage cannot truncate; "
        "docs/migrating/flink.md shows this for many files. Then migrate again. Nothing was changed"
    )


def apex_files(_fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the finished files of AbstractFileOutputOperator."""
    inventory = Inventory(source="apex", files=[])
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
        left_out = LeftOut(path=path, size_bytes=info.size_bytes, why=why, moved=not is_hidden(path))
        (inventory.left_out if is_published else inventory.unfinished).append(left_out)
    return inventory


def kafka_files(_fs: FileSystem, files: Mapping[str, FileInfo]) -> Inventory:
    """Return the committed files of one topic of Kafka Connect's HDFS or S3 sink.

    Raises:
        ConfigError: a name is unknown, there are several topics, or two files of a directory share an offset.
    """
    inventory = Inventory(source="kafka-connect", files=[])
    topics: dict[str, str] = {}  # each with the path of one of its files
    strangers: list[str] = []
    ranges: defaultdict[tuple[str, int], list[tuple[int, int, str]]] = defaultdict(list)
    for path, info in files.items():
        if _KAFKA_TEMPORARY.fullmatch(path):
            why = "The connector has not committed it: only the connector's log shows if it will"
            inventory.unfinished.append(
                LeftOut(path=path, size_bytes=info.size_bytes, why=why, moved=not is_hidden(path))
            )
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
