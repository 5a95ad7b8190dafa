"""Every path of the protocol, relative to the directory: the one place that formats and parses them.

No reader takes a file below `_ftfile` for data, whatever pattern it is given. Spark passes over names with a leading
underscore, but looks into a directory that a pattern names: each file here has a name of that kind. DuckDB and Polars
do not pass over them, and find data by its ending or its depth: no file ends like one of data, and none lies directly
in `_ftfile`, beside directories of a partition.
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
STATE_IN_CHECKPOINT = "ftfile-source"  # of streams of files: it lives and dies with the checkpoint of Spark
DIRECTORIES = (META, DIRECTORY, LOG, CHECKPOINTS, COMPACTED, HINTS, STAGED, RETIRED)

_LOG_NAME = re.compile(r"_(\d{20})(?:\.record|-([0-9a-z]+)\.changes)")
_CHECKPOINT_NAME = re.compile(r"_(\d{20})-([0-9a-f]+)\.checkpoint")
_COLUMNS_NAME = re.compile(r"_(\d{20})-([0-9a-f]+)\.columns")
_DEAD_LETTER_PATH = re.compile(rf"{DEAD_LETTERS}/([^/]+)/_(\d{{10,}})-(\d{{5,}})-[^/]+\.deadLetters")
_RANGE_NAME = re.compile(r"_(\d{20})-(\d{20})-([0-9a-f]+)\.compacted")
_RESTORED = re.compile(r"(?:\.r(\d+))+$")
_ID = re.compile("[0-9a-f]{32}")
_WAL_NAME = re.compile(r"_(\d{10})-(\d{10})\.wal")


class CheckpointName(NamedTuple):
    """A checkpoint: the version it covers, and a suffix, since several may be written."""

    version: int
    unique: str


class ColumnsName(NamedTuple):
    """A columns file: the version up to which it stands for payloads of records, and a suffix, as of a checkpoint."""

    version: int
    unique: str


class LogName(NamedTuple):
    """A record, or the companion of one: its version, and of a companion the nonce."""

    version: int
    nonce: str | None


class CompactedName(NamedTuple):
    """A range: the first and the last version whose records it stands for, and a suffix, as of a checkpoint."""

    first: int
    last: int
    unique: str


class WalName(NamedTuple):
    """A file of windows that are not recorded yet: the epoch of the process that wrote it, and its number there."""

    epoch: int
    number: int


class DeadLetterTask(NamedTuple):
    """The writer of a file of dead letters: a query or a job, its batch, and the task's partition."""

    owner: str
    batch: int
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of batch {self.batch} of {self.owner}"


def record_path(version: int) -> str:
    """Return where the record of `version` is created."""
    return f"{LOG}/_{version:020d}.record"


def companion_path(version: int, nonce: str) -> str:
    """Return where a large record keeps its adds and removes."""
    return f"{LOG}/_{version:020d}-{nonce}.changes"


def parse_log_name(path: str) -> LogName | None:
    """Return the parsed name of a file in the log's directory, or None for any other file."""
    match = _LOG_NAME.fullmatch(path.rsplit("/", 1)[-1])
    return LogName(int(match[1]), match[2]) if match else None


def log_checkpoint_path(name: CheckpointName) -> str:
    """Return where a checkpoint lies."""
    return f"{CHECKPOINTS}/_{name.version:020d}-{name.unique}.checkpoint"


def parse_checkpoint_name(path: str) -> CheckpointName | None:
    """Return the parsed name of a file in the directory of checkpoints, or None for any other file."""
    match = _CHECKPOINT_NAME.fullmatch(path.rsplit("/", 1)[-1])
    return CheckpointName(int(match[1]), match[2]) if match else None


def columns_path(name: ColumnsName) -> str:
    """Return where a columns file lies."""
    return f"{COLUMNS}/_{name.version:020d}-{name.unique}.columns"


def parse_columns_name(path: str) -> ColumnsName | None:
    """Return the parsed name of a file in the directory of columns files, or None for any other file."""
    match = _COLUMNS_NAME.fullmatch(path.rsplit("/", 1)[-1])
    return ColumnsName(int(match[1]), match[2]) if match else None


def compacted_path(name: CompactedName) -> str:
    """Return where a range lies."""
    return f"{COMPACTED}/_{name.first:020d}-{name.last:020d}-{name.unique}.compacted"


def parse_compacted_name(path: str) -> CompactedName | None:
    """Return the parsed name of a file in the directory of ranges, or None for any other file.

    A file for versions that no range may stand for is another file.
    """
    match = _RANGE_NAME.fullmatch(path.rsplit("/", 1)[-1])
    if match is None or not may_stand(int(match[1]), int(match[2])):
        return None
    return CompactedName(int(match[1]), int(match[2]), match[3])


def wal_directory(writer: str) -> str:
    """Return where a writer of windows keeps those that are not recorded yet."""
    return f"{WAL}/{writer}"


def wal_path(writer: str, name: WalName) -> str:
    """Return where a file of windows lies."""
    return f"{wal_directory(writer)}/_{name.epoch:010d}-{name.number:010d}.wal"


def parse_wal_name(path: str) -> WalName | None:
    """Return the parsed name of a file in a directory of windows, or None for any other file."""
    match = _WAL_NAME.fullmatch(path.rsplit("/", 1)[-1])
    return WalName(int(match[1]), int(match[2])) if match else None


def staged_directory(owner: str, batch: int) -> str:
    """Return where the attempts of one batch of a query (or of a job, batch 0) write."""
    return f"{STAGED}/{owner}/{batch}"


def is_staged(path: str) -> bool:
    """Return True if a file is where attempts write what is not published."""
    return path.startswith(f"{STAGED}/")


def note_path(directory: str, name: str) -> str:
    """Return the path of the note of a final path, which an attempt writes before the file itself."""
    return f"{directory}/_{name}.finalPath"


def is_note(path: str) -> bool:
    """Return True if a file is the note of a final path."""
    return path.endswith(".finalPath")


def noted_path(note: str, content: bytes) -> str | None:
    """Return the final path in a note, None for a damaged one: beside `_ftfile`, and named after the note's own id."""
    path, note_id = content.decode(errors="surrogateescape"), note.removesuffix(".finalPath").rpartition("-")[2]
    is_sound = paths.shape_fault(path) is None and path and path.partition("/")[0] != META
    return path if is_sound and _ID.fullmatch(note_id) and unique_part(note_id) in path.rpartition("/")[2] else None


def retired_path(add_id: str) -> str:
    """Return where a removed part is hidden until nobody needs it."""
    return f"{RETIRED}/_{add_id}.retired"


def restored_id(add_id: str, version: int) -> str:
    """Return the id that the rows of a removed add have from the version on that brings them back.

    It has one version behind it, however often they came back: file names have a limit.
    """
    return f"{original_id(add_id)}.r{version}"


def restored_version(add_id: str) -> int:
    """Return the version that brought an add back under its id; -1 for one that never came back."""
    match = _RESTORED.search(add_id)
    return int(match[1]) if match else -1


def original_id(add_id: str) -> str:
    """Return the id that the rows of an add had before they were ever brought back."""
    return _RESTORED.sub("", add_id)


def restored_paths(parts: Iterable[tuple[str, str]], version: int) -> list[str]:
    """Return the final paths of parts, given as ids and final paths, that a version brings back; no file had them.

    What earlier restores added to a name is left out. Parts whose names differ in nothing else are numbered. A late
    publisher of the record that removed a part, or of one that brought it back, finds nothing at the new path.
    """
    paths: list[str] = []
    numbers: Counter[str] = Counter()
    for add_id, final_path in parts:
        plain = _path_before(add_id, final_path)
        numbers[plain] += 1
        number = f"-{numbers[plain]}" if numbers[plain] > 1 else ""
        directory, slash, name = plain.rpartition("/")
        stem, dot, endings = name.partition(".")
        paths.append(f"{directory}{slash}{stem}.r{version}{number}{dot}{endings}")
    return paths


def _path_before(add_id: str, final_path: str) -> str:
    """Return a final path without what restores added to it: the id tells their versions, others are the user's."""
    directory, slash, name = final_path.rpartition("/")
    match = _RESTORED.search(add_id)
    for version in reversed(match[0].split(".r")[1:] if match else ()):
        name = re.sub(rf"^([^.]*)\.r{version}(?:-\d+)?(?=\.|$)", r"\1", name)
    return f"{directory}{slash}{name}"


def directory_key(directory: str, stem: str = "") -> str:
    """Return the key of the files that a row may go to: directory and, after two slashes, the beginning of their names.

    Neither has an empty part, so two slashes cannot occur within them.
    """
    return f"{directory}//{stem}" if stem else directory


def directory_of(key: str) -> str:
    """Return the directory in a key, empty for the root."""
    return key.partition("//")[0]


def stem_of(key: str) -> str:
    """Return how the names of files begin, by a key that says so; else empty."""
    return key.partition("//")[2]


def dead_letter_path(owner: str, batch: int, partition: int, letter_id: str, filters: Sequence[str] = ()) -> str:
    """Return the final path of records that a task could not write; the name says how they were filtered."""
    name = ".".join((unique_part(letter_id), *filters, "deadLetters"))
    return f"{DEAD_LETTERS}/{owner}/_{batch:010d}-{partition:05d}-{name}"


def dead_letter_filters(path: str) -> tuple[str, ...]:
    """Return the filters that `dead_letter_path` was given."""
    return tuple(path.rpartition("/")[2].split(".")[1:-1])


def dead_letter_task(path: str) -> DeadLetterTask | None:
    """Return the writer of the dead letters at a path, or None for any other file."""
    match = _DEAD_LETTER_PATH.fullmatch(path)
    return DeadLetterTask(match[1], int(match[2]), int(match[3])) if match else None


def storage_identity(kind: Kind, path: str, offset: int = 0) -> str:
    """Return the identity that byte filters give to the piece of storage that begins at a path and an offset.

    It stays when a file is published. Dead letters are named by their published path or by their staged one.
    """
    stem = path.rpartition("/")[2].partition(".")[0].removeprefix("_")
    return f"{kind} {unique_part(stem.rpartition('-')[2])}@{offset}"


def unique_part(add_id: str) -> str:
    """Return the unique piece of a part's name; a name without one may be wanted again."""
    return add_id[:12]


def parent(path: str) -> str:
    """Return the directory of a path; the root is the empty string."""
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    """Return the last name of a path."""
    return path.rpartition("/")[2]


def ancestors(directory: str) -> list[str]:
    """Return the directory and all above it up to the root, deepest first."""
    directories = [directory]
    while directories[-1]:
        directories.append(parent(directories[-1]))
    return directories
