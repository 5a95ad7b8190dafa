"""The paths of the protocol, relative to the directory.

No reader must read a file below `_ftfile` as data, for any pattern. Spark skips names with a leading underscore, but
lists a directory that a pattern names, so all files here have such names. DuckDB and Polars do not skip them, and find
data by its ending or its depth: no file here has the ending of data, and none is directly in `_ftfile`, at the depth of
partitions.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from ftfile.log.format.version_blocks import may_stand
from ftfile.storage import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal, TypeAlias

    Kind: TypeAlias = Literal["part", "segment", "deadLetters"]


META = "_ftfile"
DIRECTORY = f"{META}/directory"
FORMAT_FILE = f"{DIRECTORY}/_format"
MARKER = f"{DIRECTORY}/_marker"
LOG = f"{META}/log"
CHECKPOINTS = f"{META}/checkpoints"
COMPACTED = f"{META}/compacted"
COLUMNS = f"{META}/columns"
HINTS = f"{META}/hints"
STAGED = f"{META}/staged"
RETIRED = f"{META}/retired"
DEAD_LETTERS = f"{META}/deadLetters"
QUARANTINE = f"{META}/quarantine"
MIGRATED = f"{META}/migrated"
WAL = f"{META}/wal"
PUBLISHED_HINT = f"{HINTS}/_published"
CLOCK_HINT = f"{HINTS}/_clock"
STATE_IN_CHECKPOINT = "ftfile-source"  # of file sources; it belongs to Spark's checkpoint
DIRECTORIES = (META, DIRECTORY, LOG, CHECKPOINTS, COMPACTED, HINTS, STAGED, RETIRED)

_LOG_NAME = re.compile(r"_(\d{20})(?:\.record|-([0-9a-z]+)\.changes)")
_CHECKPOINT_NAME = re.compile(r"_(\d{20})-([0-9a-f]+)\.checkpoint")
_COLUMNS_NAME = re.compile(r"_(\d{20})-([0-9a-f]+)\.columns")
_DEAD_LETTER_PATH = re.compile(rf"{DEAD_LETTERS}/([^/]+)/_(\d{{10,}})-(\d{{5,}})-[^/]+\.deadLetters")
_COMPACTED_NAME = re.compile(r"_(\d{20})-(\d{20})-([0-9a-f]+)\.compacted")
_RESTORED = re.compile(r"(?:\.r(\d+))+$")
_ID = re.compile("[0-9a-f]{32}")
_WAL_NAME = re.compile(r"_(\d{10})-(\d{10})\.wal")


class CheckpointName(NamedTuple):
    """A checkpoint: its version, and a suffix, since several can exist."""

    version: int
    unique: str


class ColumnsName(NamedTuple):
    """A columns file: the version up to which it replaces payloads of records, and a suffix, as for a checkpoint."""

    version: int
    unique: str


class LogName(NamedTuple):
    """A record, or the companion of one: its version, and for a companion the nonce."""

    version: int
    nonce: str | None


class CompactedName(NamedTuple):
    """A compacted log: the first and the last version that it replaces, and a suffix, as for a checkpoint."""

    first: int
    last: int
    unique: str


class WalName(NamedTuple):
    """A file of windows that are not recorded yet: the epoch of the process that wrote it, and its number."""

    epoch: int
    number: int


class DeadLetterTask(NamedTuple):
    """The writer of a file of dead letters: a query or a job, its batch, and the partition of the task."""

    owner: str
    batch: int
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of batch {self.batch} of {self.owner}"


def record_path(version: int) -> str:
    """Return the path of the record of `version`."""
    return f"{LOG}/_{version:020d}.record"


def companion_path(version: int, nonce: str) -> str:
    """Return the path of the companion with the adds and removes of a large record."""
    return f"{LOG}/_{version:020d}-{nonce}.changes"


def parse_log_name(path: str) -> LogName | None:
    """Return the parsed name of a file in the directory of records, or None for any other file."""
    match = _LOG_NAME.fullmatch(path.rsplit("/", 1)[-1])
    if match:
        return LogName(int(match[1]), match[2])
    return None


def log_checkpoint_path(name: CheckpointName) -> str:
    """Return the path of a checkpoint."""
    return f"{CHECKPOINTS}/_{name.version:020d}-{name.unique}.checkpoint"


def parse_checkpoint_name(path: str) -> CheckpointName | None:
    """Return the parsed name of a file in the directory of checkpoints, or None for any other file."""
    match = _CHECKPOINT_NAME.fullmatch(path.rsplit("/", 1)[-1])
    if match:
        return CheckpointName(int(match[1]), match[2])
    return None


def columns_path(name: ColumnsName) -> str:
    """Return the path of a columns file."""
    return f"{COLUMNS}/_{name.version:020d}-{name.unique}.columns"


def parse_columns_name(path: str) -> ColumnsName | None:
    """Return the parsed name of a file in the directory of columns files, or None for any other file."""
    match = _COLUMNS_NAME.fullmatch(path.rsplit("/", 1)[-1])
    if match:
        return ColumnsName(int(match[1]), match[2])
    return None


def compacted_path(name: CompactedName) -> str:
    """Return the path of a compacted log."""
    return f"{COMPACTED}/_{name.first:020d}-{name.last:020d}-{name.unique}.compacted"


def parse_compacted_name(path: str) -> CompactedName | None:
    """Return the parsed name of a file in the directory of compacted logs, or None for any other file.

    A name with versions that no compacted log may replace is another file.
    """
    match = _COMPACTED_NAME.fullmatch(path.rsplit("/", 1)[-1])
    if match is None or not may_stand(int(match[1]), int(match[2])):
        return None
    return CompactedName(int(match[1]), int(match[2]), match[3])


def wal_directory(writer: str) -> str:
    """Return the directory of the windows of a writer that are not recorded yet."""
    return f"{WAL}/{writer}"


def wal_path(writer: str, name: WalName) -> str:
    """Return the path of a file of windows."""
    return f"{wal_directory(writer)}/_{name.epoch:010d}-{name.number:010d}.wal"


def parse_wal_name(path: str) -> WalName | None:
    """Return the parsed name of a file in a directory of windows, or None for any other file."""
    match = _WAL_NAME.fullmatch(path.rsplit("/", 1)[-1])
    if match:
        return WalName(int(match[1]), int(match[2]))
    return None


def staged_directory(owner: str) -> str:
    """Return the directory in which the attempts of a query or a job write."""
    return f"{STAGED}/{owner}"


def attempt_stem(owner: str, batch: int, partition: int, attempt: int) -> str:
    """Return the beginning of the paths of all files that an attempt stages; it is the identity of the attempt."""
    return f"{staged_directory(owner)}/_{batch}-{partition:05d}-{attempt}-"


def is_staged(path: str) -> bool:
    """Return True for a path in which attempts write files before they are published."""
    return path.startswith(f"{STAGED}/")


def note_path(stem: str, file_id: str) -> str:
    """Return the path of the note of a final path, which an attempt writes before the file; see `attempt_stem`."""
    return f"{stem}{file_id}.finalPath"


def is_note(path: str) -> bool:
    """Return True if a file is the note of a final path."""
    return path.endswith(".finalPath")


def noted_path(note: str, content: bytes) -> str | None:
    """Return the final path in a note, None for a damaged one: outside of `_ftfile`, and named after the note's id."""
    path, note_id = content.decode(errors="surrogateescape"), note.removesuffix(".finalPath").rpartition("-")[2]
    is_sound = paths.shape_fault(path) is None and path and path.partition("/")[0] != META
    if is_sound and _ID.fullmatch(note_id) and unique_part(note_id) in path.rpartition("/")[2]:
        return path
    return None


def retired_path(add_id: str) -> str:
    """Return the path to which a removed part is moved until no reader needs it."""
    return f"{RETIRED}/_{add_id}.retired"


def restored_id(add_id: str, version: int) -> str:
    """Return the id of the rows of a removed add from the version on that restores them.

    The id contains one version, however often rows were restored, since file names have a length limit.
    """
    return f"{original_id(add_id)}.r{version}"


def restored_version(add_id: str) -> int:
    """Return the version that restored an add, by its id; -1 for an add that was never restored."""
    match = _RESTORED.search(add_id)
    if match:
        return int(match[1])
    return -1


def original_id(add_id: str) -> str:
    """Return the original id of the rows of an add, before they were restored."""
    return _RESTORED.sub("", add_id)


def restored_paths(parts: Iterable[tuple[str, str]], version: int) -> list[str]:
    """Return the final paths of parts, given as ids and final paths, that a version restores; no file had these paths.

    Additions of earlier restores to a name are removed. Parts whose names are then equal are numbered. A late publisher
    of the record that removed or restored a part finds nothing at the new path.
    """
    paths: list[str] = []
    numbers: Counter[str] = Counter()
    for add_id, final_path in parts:
        plain = _path_before(add_id, final_path)
        numbers[plain] += 1
        number = ""
        if numbers[plain] > 1:
            number = f"-{numbers[plain]}"
        directory, slash, name = plain.rpartition("/")
        stem, dot, endings = name.partition(".")
        paths.append(f"{directory}{slash}{stem}.r{version}{number}{dot}{endings}")
    return paths


def _path_before(add_id: str, final_path: str) -> str:
    """Return a final path without additions of restores: the id has their versions, other names are the user's."""
    directory, slash, name = final_path.rpartition("/")
    match = _RESTORED.search(add_id)
    for version in reversed(match[0].split(".r")[1:] if match else ()):
        name = re.sub(rf"^([^.]*)\.r{version}(?:-\d+)?(?=\.|$)", r"\1", name)
    return f"{directory}{slash}{name}"


def directory_key(directory: str, stem: str = "") -> str:
    """Return the key of the files for a row: directory and, after two slashes, the beginning of their names.

    Neither has an empty component, so they contain no two slashes.
    """
    if stem:
        return f"{directory}//{stem}"
    return directory


def directory_of(key: str) -> str:
    """Return the directory of a key, empty for the root."""
    return key.partition("//")[0]


def stem_of(key: str) -> str:
    """Return the beginning of file names in a key; empty by default."""
    return key.partition("//")[2]


def dead_letter_path(owner: str, batch: int, partition: int, letter_id: str, filters: Sequence[str] = ()) -> str:
    """Return the final path of records that a task could not write; the name contains their filters."""
    name = ".".join((unique_part(letter_id), *filters, "deadLetters"))
    return f"{DEAD_LETTERS}/{owner}/_{batch:010d}-{partition:05d}-{name}"


def dead_letter_filters(path: str) -> tuple[str, ...]:
    """Return the filters in a `dead_letter_path`."""
    return tuple(path.rpartition("/")[2].split(".")[1:-1])


def dead_letter_task(path: str) -> DeadLetterTask | None:
    """Return the writer of the dead letters at a path, or None for any other file."""
    match = _DEAD_LETTER_PATH.fullmatch(path)
    if match:
        return DeadLetterTask(match[1], int(match[2]), int(match[3]))
    return None


def storage_identity(kind: Kind, path: str, offset: int = 0) -> str:
    """Return the identity that byte filters bind to the content at a path and an offset.

    Publishing a file does not change it. Dead letters are named by their published path or by their staged one.
    """
    stem = path.rpartition("/")[2].partition(".")[0].removeprefix("_")
    return f"{kind} {unique_part(stem.rpartition('-')[2])}@{offset}"


def unique_part(add_id: str) -> str:
    """Return the unique part of a file name; without it, a name can repeat."""
    return add_id[:12]


def is_unique_name(add_id: str, final_path: str) -> bool:
    """Return True if a final path contains the unique part of an id, so that no other part ever has this path."""
    return unique_part(add_id) in final_path


def parent(path: str) -> str:
    """Return the parent directory of a path; the root is the empty string."""
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    """Return the last component of a path."""
    return path.rpartition("/")[2]


def ancestors(directory: str) -> list[str]:
    """Return the directory and its parents up to the root, deepest first."""
    directories = [directory]
    while directories[-1]:
        directories.append(parent(directories[-1]))
    return directories
