"""Checks before a record is created, so that every record can be published.

A path is free if three conditions are true: the storage supports it, no file has the name of one of its directories,
and no other part has it. A name without the unique part of an id can repeat. Such names are compared with the names of
all live parts, and the storage is checked for a file.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import (
    ConfigError,
    CorruptData,
    DanglingLink,
    NameCollision,
    NotADirectory,
    NotAFile,
    NotFound,
    StaleFiles,
)
from ftfile.core.logs import get_logger
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of, parts_of
from ftfile.log.format.model import Remove
from ftfile.log.places import list_or_empty, stat_or_none, sync_stage
from ftfile.log.read.times import time_text
from ftfile.storage.api import FileInfo
from ftfile.storage.calls import parallel
from ftfile.storage.paths import shape_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ftfile.core.errors import FtfileError
    from ftfile.log.commit_log import CommitLog, KnownPaths
    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem


_log = get_logger(__name__)

# Above this number of files, listing their directory is cheaper than a call for each file.
STATS_MAX = 8
# The maximum number of records that are read for the names of live parts; for more records, a snapshot is cheaper.
FOLLOWED_MAX = 256
HORIZON_AHEAD = Advice(
    "If the storage's clock was ahead when the vacuum ran, the horizon is in the future: ",
    Remedy("vacuum", dry_run=False),
    " lowers it",
)
_ADVICE = (
    "The attempt that wrote it failed, the file was changed, or its host wrote to a local disk: restart the query "
    "with a path that all hosts share"
)
_TOO_LONG = (
    "If the batch took longer than the retention of the vacuum (`grace` for the automatic vacuum of a store), restart "
    "the query and use a longer retention"
)


def check_staged(log: CommitLog, head: LogState, adds: Iterable[Add], stored_ms: Mapping[str, int]) -> None:
    """Check that files exist, are complete and are younger than the vacuum horizon; make their names durable.

    Files of `stored_ms`, which contains modification times by path, were complete at that time. If the time is after
    the horizon, no vacuum can have deleted the file.
    """
    adds = tuple(adds)
    unconfirmed = [add for add in adds if stored_ms.get(add.path, 0) <= head.horizon_ms]
    infos = find_files(log.fs, unconfirmed)
    for add in unconfirmed:
        check_file(add, infos.get(add.path), head.horizon_ms)
    if log.fs.capabilities.directory_sync:
        sync_stage(log.fs, log.known_paths.durable, {layout.parent(add.path) for add in adds}, head.queries)


def find_files(fs: FileSystem, adds: Iterable[Add]) -> dict[str, FileInfo]:
    """Return the existing files of the adds by path, and possibly other files in their directories."""
    by_directory: dict[str, dict[str, None]] = {}
    for add in adds:
        by_directory.setdefault(layout.parent(add.path), {})[add.path] = None
    infos: dict[str, FileInfo] = {}
    single: list[str] = []
    for directory, paths in by_directory.items():
        # A directory of data can contain any number of files.
        if layout.is_staged(directory) and len(paths) > STATS_MAX:
            for info in list_or_empty(fs, directory):
                infos[info.path] = info
        else:
            single += paths
    for existing in parallel(fs, partial(stat_or_none, fs), single):
        if existing is not None:
            infos[existing.path] = existing
    return infos


def check_file(add: Add, info: FileInfo | None, horizon_ms: int) -> None:
    """Check the file of an add; raise CorruptData for a wrong length, StaleFiles if vacuum could delete it now."""
    end = add.offset + add.length
    if add.kind == "part":
        expected = f"{add.length} bytes"
    else:
        expected = f"{end} bytes or more"
    if info is None:
        if horizon_ms > 0:
            raise StaleFiles(
                f"{add.path!r} does not exist: a vacuum may have deleted all unrecorded files that were written up to "
                f"{time_text(horizon_ms)}. {_TOO_LONG}. Otherwise: {_ADVICE}"
            )
        raise CorruptData(add.path, expected, "no such file", _ADVICE)
    is_longer = add.kind == "part" and info.size_bytes > end
    if info.size_bytes < end or is_longer:
        raise CorruptData(add.path, expected, f"{info.size_bytes} bytes", _ADVICE)
    if info.modified_ms <= horizon_ms and horizon_ms > 0:
        raise StaleFiles(
            Advice(
                f"{add.path!r} was last written at {time_text(info.modified_ms)}, and a vacuum may delete all "
                f"unrecorded files that were written up to {time_text(horizon_ms)}. {_TOO_LONG}. If the storage's "
                "clock is behind, set it. ",
                HORIZON_AHEAD,
            )
        )


class FinalPaths:
    """The final paths of one record. The constructor checks the paths of all adds in the storage at once."""

    def __init__(self, log: CommitLog, head: LogState, adds: Sequence[Add]) -> None:
        storage = log.fs.capabilities
        self._faults: dict[str, str] = {}
        self._above: dict[str, Sequence[str]] = {}  # directories of each path, deepest first, without the root
        valid: set[str] = set()
        needed_directories: set[str] = set()
        for path in _final_paths(adds):
            self._above[path] = layout.ancestors(layout.parent(path))[:-1]
            fault = shape_fault(path) or storage.fault_of(path)
            if fault is not None:
                self._faults[path] = fault
            else:
                valid.add(path)
                needed_directories.update(self._above[path])
        self._reserved = head.reserved
        self._waiting: set[str] = set()  # paths of recorded parts that are not published yet
        for entry in head.unpublished.values():
            self._waiting |= _final_paths(entry.adds)
        self._claimed: set[str] = set()
        self._directories: set[str] = set()
        self._files = _files_among(log, head, needed_directories)
        repeating = _repeating(adds)
        self._live: AbstractSet[str] = frozenset()
        if repeating:
            self._live = live_names(log, head)
        # If a part was written under its final name, the file of that name belongs to the part.
        written_paths = {add.path for add in adds}
        paths_to_check = []
        for path in sorted((repeating & valid) - written_paths):
            if self._files.isdisjoint(self._above[path]):
                paths_to_check.append(path)
        self._taken = _found(log, paths_to_check).keys()

    def claim(self, adds: Sequence[Add]) -> None:
        """Claim the paths of all adds; if a path is not free, claim none and raise ConfigError or NameCollision."""
        paths: list[str] = []
        directories: list[str] = []
        try:
            for add in adds:
                path = add.final_path
                if path is None:
                    continue
                self._check(path)
                new = []
                for directory in self._above[path]:
                    if directory not in self._directories:
                        new.append(directory)
                self._claimed.add(path)
                self._directories.update(new)
                paths.append(path)
                directories += new
        except (ConfigError, NameCollision):
            self._claimed.difference_update(paths)
            self._directories.difference_update(directories)
            raise

    def _check(self, path: str) -> None:
        if path in self._faults:
            raise ConfigError(f"the name of a new file would be {path!r}, which {self._faults[path]}")
        for directory in reversed(self._above[path]):
            if self._is_file(directory):
                _raise_taken(directory, "a directory is needed, but a file of that name exists")
            if directory in self._reserved:
                _raise_taken(directory, f"it was the name of a part that version {self._reserved[directory]} removed")
        if path in self._claimed:
            _raise_taken(path, "another part of this batch has this name")
        if path in self._directories:
            _raise_taken(path, "it is also the name of a directory of this batch")
        if path in self._reserved:
            _raise_taken(path, f"it was the name of a part that version {self._reserved[path]} removed")
        if path in self._taken or path in self._waiting:
            _raise_taken(path, "a file of that name exists")
        if path in self._live:
            _raise_taken(path, "it is the name of a part of the directory whose file was moved or deleted")

    def _is_file(self, path: str) -> bool:
        """Return True if a path is, or will be, the name of a file."""
        return path in self._files or path in self._claimed or path in self._waiting or path in self._live


def _final_paths(adds: Iterable[Add]) -> set[str]:
    paths: set[str] = set()
    for add in adds:
        if add.final_path is not None:
            paths.add(add.final_path)
    return paths


def live_names(log: CommitLog, head: LogState) -> AbstractSet[str]:
    """Return the names of live parts that can repeat. The first call reads a snapshot, later calls the new records."""
    known_paths = log.known_paths
    if not _apply_records_since(log, head, known_paths):
        from ftfile.log.read.snapshot import snapshot_at  # noqa: PLC0415 - few commits need it

        known_paths.live = _repeating(snapshot_at(log, head).adds.values())
    known_paths.version, known_paths.nonce = head.version, head.nonce
    return known_paths.live


def _apply_records_since(log: CommitLog, head: LogState, known_paths: KnownPaths) -> bool:
    """Apply the records up to the head; return False if they do not follow the known version, or are too many."""
    version, nonce = known_paths.version, known_paths.nonce
    # Until all records are applied, the names belong to no version.
    known_paths.version = -1
    if version < 0 or not version <= head.version <= version + FOLLOWED_MAX:
        return False
    for following in range(version + 1, head.version + 1):
        record = log.recent.records.get(following) or log.read_record(following)
        if record is None or record.previous_nonce != nonce:
            return False
        known_paths.live.difference_update(map(attrgetter("final_path"), record.removes))
        known_paths.live |= _repeating(record.adds)
        nonce = record.nonce
    return nonce == head.nonce


def _repeating(adds: Iterable[Add]) -> set[str]:
    """Return the final paths that can repeat, since they do not contain the unique part of an id."""
    paths: set[str] = set()
    for add in adds:
        if add.final_path and not layout.is_unique_name(add.id, add.final_path):
            paths.add(add.final_path)
    return paths


def _found(log: CommitLog, paths: Sequence[str]) -> dict[str, FileInfo]:
    """Return the existing files and directories by path."""
    infos = parallel(log.fs, partial(_file_at, log.fs), paths)
    existing = {}
    for path, info in zip(paths, infos, strict=True):
        if info is not None:
            existing[path] = info
    return existing


def _file_at(fs: FileSystem, path: str) -> FileInfo | None:
    """Return the file or directory at a path, or None. A link that is not followed, or has no target, is a file."""
    try:
        return fs.stat(path)
    except (DanglingLink, NotAFile):
        return FileInfo(path, 0, 0, is_link=True)
    except (NotFound, NotADirectory):
        return None


def _files_among(log: CommitLog, head: LogState, directories: AbstractSet[str]) -> set[str]:
    """Return the paths of directories at which files exist; the other directories exist, or can be created.

    A process checks each directory once, unless a file could not be published.
    """
    if log.fs.capabilities.implied_directories:
        return set()
    known_paths = log.known_paths
    if head.unpublished:
        known_paths.directories.clear()
    files: set[str] = set()
    absent: set[str] = set()
    unknown = sorted(directories - known_paths.directories.keys(), key=_depth)
    # Directories are checked level by level, and not below a file or a missing directory.
    for _, group in itertools.groupby(unknown, key=_depth):
        level = list(group)
        infos = _found(log, [directory for directory in level if layout.parent(directory) not in absent])
        for directory in level:
            if directory in infos and infos[directory].is_directory:
                known_paths.remember(directory)
            else:
                absent.add(directory)
        files |= infos.keys() & absent
    return files


def _depth(path: str) -> int:
    return path.count("/")


def _raise_taken(path: str, why: str) -> None:
    raise NameCollision(
        f"{path!r} is taken: {why}. Nothing was committed under this name, and no file was changed. Move the file "
        "away, choose names that differ between batches with partFileName, or set ifExists=newName"
    )


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A replacement of files by other files with the same rows, which is accepted or rejected as a whole."""

    inputs: tuple[Add, ...]  # the replaced adds
    adds: tuple[Add, ...]  # the new adds
    read_version: int  # a version at which the inputs were live
    reason: str = ""  # the reason why the parts ended, for the counts in records; empty for no reason


@dataclass(frozen=True, slots=True)
class RefusedRewrite:
    """A rewrite whose parts cannot get their names. The rows remain in the old files."""

    rewrite: Rewrite
    error: FtfileError


@dataclass(frozen=True, slots=True)
class Accepted:
    """The accepted rewrites of a record, and the rewrites refused for their names; all other rewrites were too late."""

    rewrites: tuple[Rewrite, ...] = ()
    refused: tuple[RefusedRewrite, ...] = ()

    @property
    def adds(self) -> tuple[Add, ...]:
        """Return the adds of the accepted rewrites."""
        return tuple(chain.from_iterable(rewrite.adds for rewrite in self.rewrites))

    @property
    def removes(self) -> tuple[Remove, ...]:
        """Return the removes of the inputs of the accepted rewrites."""
        return tuple(map(Remove.of, self.inputs))

    @property
    def inputs(self) -> tuple[Add, ...]:
        """Return the inputs of the accepted rewrites."""
        return tuple(chain.from_iterable(rewrite.inputs for rewrite in self.rewrites))

    def lost(self, rewrites: Sequence[Rewrite]) -> int:
        """Return the number of inputs of the rewrites that were too late."""
        total = sum(len(rewrite.inputs) for rewrite in rewrites)
        refused = sum(len(refusal.rewrite.inputs) for refusal in self.refused)
        return total - len(self.inputs) - refused

    def metrics(self, counts_before: Mapping[str, int] | None = None) -> dict[str, Any]:
        """Return metrics with the numbers of parts by the reason why they ended, added to `counts_before`."""
        counts = Counter(counts_before or {})
        for rewrite in self.rewrites:
            parts = len(parts_of(rewrite.adds))
            if rewrite.reason and parts:
                counts[rewrite.reason] += parts
        if counts:
            return {"partsByReason": dict(counts)}
        return {}


def accept_rewrites(
    log: CommitLog,
    head: LogState,
    rewrites: Sequence[Rewrite],
    own_adds: Sequence[Add] = (),
    refused: Sequence[RefusedRewrite] = (),
) -> Accepted:
    """Return the rewrites whose inputs are live, whose files are safe and whose names are free.

    The files of the other rewrites are not deleted.

    Args:
        log: the log of the directory.
        head: the state before the record.
        rewrites: rewrites with final names. If two rewrites conflict, the first one is accepted.
        own_adds: the record's adds that belong to no rewrite. They claim their names before all rewrites, and an error
            of `FinalPaths.claim` is raised.
        refused: rewrites that did not get final names.
    """
    accepted: list[Rewrite] = []
    left_out = list(refused)
    claimed: set[str] = set()
    adds = list(chain.from_iterable(rewrite.adds for rewrite in rewrites))
    if rewrites:
        paths = FinalPaths(log, head, (*own_adds, *adds))
        paths.claim(own_adds)
        infos = find_files(log.fs, adds)
    for rewrite in rewrites:
        inputs = ids_of(rewrite.inputs)
        if inputs & claimed or not all(head.is_live(add, rewrite.read_version) for add in rewrite.inputs):
            _log.info(
                "discarding a rewrite of %d adds: some are no longer live, or belong to another rewrite",
                len(inputs),
            )
            continue
        # An add can contain the remaining rows of an input, in the same spool. Vacuum keeps a spool while one of its
        # segments is live.
        input_paths = {add.path for add in rewrite.inputs}
        try:
            for add in rewrite.adds:
                if add.path not in input_paths:
                    check_file(add, infos.get(add.path), head.horizon_ms)
            paths.claim(rewrite.adds)
        except (StaleFiles, CorruptData) as error:
            _log.warning("discarding a rewrite, it will be repeated: %s", error)
        except (ConfigError, NameCollision) as error:
            left_out.append(RefusedRewrite(rewrite, error))
        else:
            claimed |= inputs
            accepted.append(rewrite)
    for rewrite_out in left_out:
        _log.warning("a rewrite was refused, its rows stay in their files: %s", rewrite_out.error)
    return Accepted(tuple(accepted), tuple(left_out))


def still_known(head: LogState, snapshot: Callable[[], Snapshot], rewrites: Sequence[Rewrite]) -> Sequence[Rewrite]:
    """Return the rewrites with a read version for which the head can decide if their inputs are live.

    The head lists only the last thousands of removed parts. If a rewrite was read before the first of these removals,
    the inputs are compared with a snapshot, and rewrites without live inputs are omitted.
    """
    if all(rewrite.read_version >= head.removed_since - 1 for rewrite in rewrites):
        return rewrites
    adds = snapshot().adds
    live = []
    for rewrite in rewrites:
        if all(add.id in adds for add in rewrite.inputs):
            live.append(rewrite)
    return [replace(rewrite, read_version=head.version) for rewrite in live]
