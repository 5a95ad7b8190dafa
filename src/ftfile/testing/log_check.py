"""Checks that the records, checkpoints and compacted logs of a log agree (I1 and I7)."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from msgspec import structs

from ftfile.core.errors import CorruptData, NotFound
from ftfile.log.apply import state_after
from ftfile.log.checkpoints import decode_checkpoint, list_checkpoints
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import StreamAuthor
from ftfile.log.format.record import decode_record
from ftfile.log.places import list_or_empty
from ftfile.log.read.compacted_records import list_compacted, read_compacted
from ftfile.log.read.snapshot import snapshot_at
from ftfile.log.state import LogState
from ftfile.operate.verify.history import adds_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ftfile.log.format.model import Add, Record, Remove
    from ftfile.storage.api import FileSystem


__all__ = ("InvariantViolation", "LogContents", "by_id", "ids_of", "read_log", "require", "segments_in")


class InvariantViolation(AssertionError):
    """A violation of an invariant, such as `I5`."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


def require(holds: bool, invariant: str, detail: str, *values: object) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise a violation if `holds` is False; only then are values, whose texts can be long, formatted into `detail`."""
    if not holds:
        raise InvariantViolation(invariant, detail.format(*values) if values else detail)


@dataclass(kw_only=True)
class LogContents:
    """The kept records, and the snapshots that they produce."""

    start: int = 0  # version of the oldest record
    texts: dict[int, bytes] = field(default_factory=dict)  # the bytes of records by version
    records: list[Record] = field(default_factory=list)  # in the order of versions
    # live adds by version; -1 before the first version
    snapshots: dict[int, dict[str, Add]] = field(default_factory=dict)
    checkpoints: dict[layout.CheckpointName, LogState] = field(default_factory=dict)

    @property
    def head(self) -> int:
        """Return the newest version; -1 without records."""
        return self.start + len(self.records) - 1

    @property
    def vacuumed_to(self) -> int:
        """Return the newest version whose removed files a vacuum can delete; 0 if there is no such version."""
        newest = 0
        for checkpoint in self.checkpoints.values():
            newest = max(newest, checkpoint.vacuumed_to)
        for record in self.records:
            newest = max(newest, record.vacuumed_to or 0)
        return newest

    def adds(self) -> list[Add]:
        """Return all adds of kept records and of the oldest snapshot."""
        adds = dict(self.snapshots[min(self.snapshots)])
        for record in self.records:
            adds.update(by_id(record.adds))
        return list(adds.values())

    def oldest_batch(self, query_id: str) -> int:
        """Return the oldest batch of a query that must have a kept record; 0 if all records are kept."""
        if self.start == 0:
            return 0
        batches = []
        for record in self.records:
            author = record.author
            if isinstance(author, StreamAuthor) and author.query_id == query_id:
                batches.append(author.batch_id)
        for name, checkpoint in self.checkpoints.items():
            if name.version >= self.start and query_id in checkpoint.queries:
                batches.append(checkpoint.queries[query_id].last_batch + 1)
        return min(batches, default=0)

    def records_upto(self, version: int) -> list[Record]:
        """Return the records up to a version."""
        return [record for record in self.records if record.version <= version]


def read_log(fs: FileSystem) -> LogContents:
    """Read the whole log, and check I1, I7, and the names of adds (I6), without reading parts."""
    log = LogContents()
    contents: dict[int, bytes] = {}
    for info in list_or_empty(fs, layout.LOG):
        parsed = layout.parse_log_name(info.path)
        if parsed is not None and parsed.nonce is None:
            contents[parsed.version] = fs.read(info.path)
    records, violations = _decode_all(fs, contents)
    for name in list_checkpoints(fs):
        with _broken_is("I7"):
            checkpoint = decode_checkpoint(fs.read(layout.log_checkpoint_path(name)), layout.log_checkpoint_path(name))
        # Without its record, a checkpoint belongs to another history, and readers ignore it.
        if name.version in records and records[name.version].nonce == checkpoint.nonce:
            log.checkpoints[name] = checkpoint
    starts = [checkpoint.log_start for checkpoint in log.checkpoints.values()]
    log.start = max([*starts, *(record.log_start or 0 for record in records.values())], default=0)
    # Older records are being deleted, or a committer with an outdated state created them; vacuum deletes their files.
    for version, violation in violations.items():
        if version >= log.start:
            raise violation
    for version, record in records.items():
        if version >= log.start:
            log.records.append(record)
            log.texts[version] = contents[version]
    versions = list(log.texts)
    require(versions == list(range(log.start, log.start + len(versions))), "I1", f"the versions are {versions}")
    _check_snapshots(fs, log)
    _check_checkpoints(log)
    _check_compacted_logs(fs, log)
    return log


def ids_of(entries: Iterable[Add | Remove]) -> list[str]:
    """Return the ids of adds, or of the adds that removes name."""
    return [entry.id for entry in entries]


def by_id(adds: Iterable[Add]) -> dict[str, Add]:
    """Return adds by their ids."""
    return {add.id: add for add in adds}


def segments_in(adds: Mapping[str, Add]) -> list[Add]:
    """Return the segments of a snapshot."""
    segments = []
    for add in adds.values():
        if add.kind == "segment":
            segments.append(add)
    return segments


@contextlib.contextmanager
def _broken_is(invariant: str) -> Iterator[None]:
    """Raise a violation if the block finds a damaged or missing file."""
    try:
        yield
    except (CorruptData, NotFound) as error:
        raise InvariantViolation(invariant, str(error)) from error


def _decode_all(fs: FileSystem, contents: Mapping[int, bytes]) -> tuple[dict[int, Record], dict[int, Exception]]:
    """Return the records by version, and the violations of those that cannot be decoded."""
    records: dict[int, Record] = {}
    violations: dict[int, Exception] = {}
    for version, content in sorted(contents.items()):
        try:
            records[version] = _decode_record(fs, version, content)
        except InvariantViolation as violation:
            violations[version] = violation
    return records, violations


def _decode_record(fs: FileSystem, version: int, content: bytes) -> Record:
    path = layout.record_path(version)
    with _broken_is("I1"):
        record = decode_record(content, path, fs.read)
    require(record.version == version, "I1", f"{path} says it is version {record.version}")
    return record


def _snapshot(fs: FileSystem, head: LogState, version: int) -> dict[str, Add]:
    with _broken_is("I7"):
        return _forgetting(snapshot_at(CommitLog(fs), head, version).adds)


def _check_snapshots(fs: FileSystem, log: LogContents) -> None:
    """Compute the snapshots, and check that records remove only live adds, once, and that no name is used twice."""
    if log.start == 0:
        log.snapshots[-1] = {}
    else:
        log.snapshots[log.start] = _snapshot(fs, _fold(log), log.start)
    newest = max(log.snapshots)
    names = set(_names_of(log.snapshots[newest].values()))
    for record in log.records:
        if record.version <= newest:
            continue
        live = log.snapshots[record.version - 1]
        removed = ids_of(record.removes)
        require(len(set(removed)) == len(removed), "I7", f"version {record.version} removes an add twice")
        dead = sorted(set(removed) - live.keys())
        require(not dead, "I7", f"version {record.version} removes {dead}, which are not live")
        survivors = live.keys() - removed if record.overwrite else ()
        require(not survivors, "I7", f"version {record.version} overwrites all and leaves {survivors}")
        for name in _names_of([*record.adds, *record.dead_letters]):
            require(name not in names, "I6", f"version {record.version} uses {name!r} a second time")
            names.add(name)
        snapshot = dict(live)
        for add_id in removed:
            del snapshot[add_id]
        snapshot.update(by_id(record.adds))
        log.snapshots[record.version] = snapshot


def _own_names(add: Add) -> list[str]:
    """Return the names that belong only to this add, also after its removal."""
    if add.kind == "segment":
        names = {f"add {add.id}"}
    else:
        names = {f"add {add.id}", add.path, add.final_path or ""}
    return sorted(names)


def _fold(log: LogContents) -> LogState:
    """Return the state at the head, from the first record or, if it is not kept, from the oldest checkpoint."""
    if log.start == 0:
        state = LogState()
    else:
        oldest = _oldest_checkpoint(log)
        require(oldest is not None, "I7", f"records before version {log.start} are gone, and there is no checkpoint")
        if oldest is not None:
            state = log.checkpoints[oldest]
        else:
            state = LogState()
    newer = []
    for record in log.records:
        if record.version > state.version:
            newer.append(record)
    with _broken_is("I7"):
        return state_after(state, *newer)


def _oldest_checkpoint(log: LogContents) -> layout.CheckpointName | None:
    """Return the oldest checkpoint whose later records are all kept."""
    for name in sorted(log.checkpoints):
        if name.version >= log.start:
            return name
    return None


def _check_checkpoints(log: LogContents) -> None:
    """Check that a checkpoint equals the fold of its records, except for `unpublished`, and has all open segments."""
    for name, checkpoint in log.checkpoints.items():
        path = layout.log_checkpoint_path(name)
        if name.version < log.start:
            continue
        folded = replace(_fold(replace(log, records=log.records_upto(name.version))), unpublished={})
        same = replace(checkpoint, unpublished={}) == folded
        require(same, "I7", "{} says {}, and its records say {}", path, checkpoint, folded)
        segments = by_id(segments_in(log.snapshots[name.version]))
        require(_forgetting(checkpoint.segments) == _forgetting(segments), "I7", f"{path} knows other open segments")


def _check_compacted_logs(fs: FileSystem, log: LogContents) -> None:
    """Check that compacted logs equal their records: all of them together, and each as far as its records are kept."""
    for info in list_or_empty(fs, layout.COMPACTED):
        is_odd = info.path.endswith(".compacted") and layout.parse_compacted_name(info.path) is None
        require(not is_odd, "I7", f"{info.path} stands for versions for which there is no compacted log")
    names = list_compacted(fs)
    if names:
        adds = _forgetting(by_id(log.adds()))
    else:
        adds = {}
    for name in names:
        _check_compacted(fs, log, name, adds)
    if names and log.records:
        # Readers skip compacted logs that they cannot read.
        read_adds = _snapshot(fs, _fold(log), log.head)
        require(read_adds == _forgetting(log.snapshots[log.head]), "I7", "compacted logs and records make other adds")


def _check_compacted(fs: FileSystem, log: LogContents, name: layout.CompactedName, adds: Mapping[str, Add]) -> None:
    path = layout.compacted_path(name)
    with _broken_is("I7"):
        content = read_compacted(fs, name, ended=True)
    if name.last > log.head:
        return
    if name.last >= log.start and log.records[name.last - log.start].nonce != content.nonce:
        return  # the compacted log belongs to another history, and readers ignore it
    before = {} if name.first == 0 else log.snapshots.get(name.first - 1)
    if before is None:
        return
    brought = [*adds_in(content.kept), *adds_in(content.ended or ())]
    for _, _, add in brought:
        if adds.get(add.id, add) != add:
            raise InvariantViolation("I7", f"{path} says {add}, which records say otherwise")
    for version in range(max(name.first, content.log_start, log.start), name.last + 1):
        gone = _list_removed_until(content.removes, version)
        require(gone <= before.keys(), "I7", f"{path} removes what was not live: {gone - before.keys()}")
        live_ids = set(before.keys() - gone)
        for added, removed, add in brought:
            if added <= version and (removed is None or removed > version):
                live_ids.add(add.id)
        expected = log.snapshots[version].keys()
        require(
            live_ids == expected, "I7", "{} says {} of version {}, records {}", path, live_ids, version, set(expected)
        )


def _list_removed_until(removes: Mapping[str, int], version: int) -> set[str]:
    """Return the ids of the adds that versions up to this one removed."""
    add_ids = set()
    for add_id, removed_at in removes.items():
        if removed_at <= version:
            add_ids.add(add_id)
    return add_ids


def _forgetting(adds: Mapping[str, Add]) -> dict[str, Add]:
    """Return the adds without the fields that compacted logs omit."""
    forgetting = {}
    for add_id, add in adds.items():
        if add.ranges or add.statistics:
            forgetting[add_id] = structs.replace(add, ranges=(), statistics={})
        else:
            forgetting[add_id] = add
    return forgetting


def _names_of(adds: Iterable[Add]) -> Iterator[str]:
    return itertools.chain.from_iterable(map(_own_names, adds))
