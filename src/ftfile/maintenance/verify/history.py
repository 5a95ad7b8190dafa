"""The records that are kept, one after the other: do they follow one another, and do bases and ranges say the same?

Adds are compared by sums of their hashes, so that memory does not hold them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ftfile.commit.format import layout
from ftfile.commit.format.columns import decode_adds
from ftfile.commit.log.state import LogState
from ftfile.commit.read.ranges import list_ranges, read_range
from ftfile.commit.read.snapshot import snapshot_at
from ftfile.core.errors import CorruptData, NotFound
from ftfile.maintenance.verify.findings import CutLog, Finding, MoveAside, Rebuild, StartLog
from ftfile.maintenance.verify.log_scan import ACCEPT, REPAIR, advance

if TYPE_CHECKING:
    from collections.abc import Container

    from ftfile.commit.format.model import Add, Record, Remove
    from ftfile.maintenance.verify.log_scan import LogScan

__all__ = ("History", "add_hash", "read_history")

# Folded into the state together.
RECORDS_AT_ONCE = 256
_WHOLE = (1 << 64) - 1


@dataclass
class History:
    """What the records that are kept say.

    Attributes:
        records: how many were read.
        live_sum: of the hashes of all adds that are live after the newest; None if records are missing.
        removed: removed parts at whose final names something is, and the versions of the removals, by that name; the
            newest of each name.
        removed_staged: paths of removed parts that are still staged.
        letters: dead letters that are still staged.
    """

    records: int = 0
    live_sum: int | None = None
    removed: dict[str, tuple[Remove, int]] = field(default_factory=dict)
    removed_staged: list[str] = field(default_factory=list)
    letters: list[Add] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def read_history(scan: LogScan, names: Container[str], staged: Container[str]) -> History:
    """Read the records that are kept, and compare.

    Args:
        scan: of the log.
        names: of the files that are visible.
        staged: paths of the files that are staged.
    """
    return _Reading(scan, names, staged).read()


def add_hash(add: Add) -> int:
    """Return a hash of all that ranges keep of an add; the same within this process only."""
    fields = (add.id, add.kind, add.path, add.final_path, add.length, add.logical_length, add.checksum, add.rows)
    stats = repr(add.rolling_stats) if add.rolling_stats else ""
    more = (add.bucket, add.encoding, add.origin, add.offset, add.filters, add.skip_rows, stats)
    return hash((fields, more)) & _WHOLE


@dataclass(slots=True)
class _RangeSums:
    """What a range should say: sums over the adds it keeps, those it ended, and those it removes."""

    name: layout.RangeName
    log_start: int
    kept: int = 0
    ended: int = 0
    removes: int = 0

    def end(self, add_id: str, found: int, added: int, version: int) -> None:
        if added < self.name.first:
            self.removes += hash((add_id, version)) & _WHOLE
            return
        self.kept -= _with(found, added)
        if version > self.log_start:
            self.ended += _with(found, added, version)

    def sums(self) -> tuple[int, int, int]:
        return self.kept & _WHOLE, self.ended & _WHOLE, self.removes & _WHOLE


class _Reading:
    def __init__(self, scan: LogScan, names: Container[str], staged: Container[str]) -> None:
        self._scan = scan
        self._names = names
        self._staged = staged
        self._found = History()
        self._live: dict[str, int] | None = {}  # by id, the version that brought it before its hash, as one number
        self._state: LogState | None = LogState()
        self._pending: list[Record] = []
        self._nonce: str | None = None
        self._still_staged: dict[str, str] = {}
        self._waiting: list[_RangeSums] = []
        self._active: list[_RangeSums] = []

    def read(self) -> History:
        head, start = self._scan.state.version, self._scan.state.log_start
        self._begin(start)
        self._waiting = self._ranges(start)
        missing: list[int] = []
        for version in range(start, head + 1):
            record = self._read(version)
            if record is None:
                missing.append(version)
                self._skip(version)
            else:
                self._take_in(record)
        self._tell_of_missing(missing)
        if self._live is not None:
            self._found.live_sum = sum(found & _WHOLE for found in self._live.values()) & _WHOLE
        return self._found

    def _begin(self, start: int) -> None:
        """Begin with the oldest kept version, where older ones are gone."""
        if start == 0:
            return
        self._state = None
        try:
            snapshot = snapshot_at(self._scan.reader(), self._scan.state, start)
            self._live = {add.id: start << 64 | add_hash(add) for add in snapshot.adds.values()}
        except CorruptData:
            self._live = None  # it is told of where the head's snapshot is read

    def _ranges(self, start: int) -> list[_RangeSums]:
        """Return the ranges that can be compared with records; look at the others as far as that goes."""
        comparable = []
        for name in sorted(list_ranges(self._scan.log.fs)):
            path = layout.range_path(name)
            if path in self._scan.misleading:
                continue
            try:
                content = read_range(self._scan.log.fs, name, ended=True)
                record = self._read(name.last) if name.last >= start else None
            except NotFound:
                continue
            except CorruptData as error:
                self._bad_range(name, error.found)
                continue
            if record is not None and record.nonce != content.nonce:
                self._bad_range(name, f"versions to {name.last} of another history")
            elif name.first > start or start == 0:
                comparable.append(_RangeSums(name, content.log_start))
        return comparable

    def _read(self, version: int) -> Record | None:
        try:
            return self._scan.read(version)
        except CorruptData:
            return None

    def _skip(self, version: int) -> None:
        """Go on behind a record that is missing: what it said is known from the next base on."""
        self._live = self._nonce = None
        self._waiting = [sums for sums in self._waiting if sums.name.first > version]
        self._active = []
        self._pending.clear()
        self._state = self._base_at(version)

    def _base_at(self, version: int) -> LogState | None:
        found = [base for name, base in self._scan.bases.items() if name.version == version]
        return found[0] if found else None

    def _take_in(self, record: Record) -> None:
        found, version = self._found, record.version
        found.records += 1
        if self._nonce is not None and record.previous_nonce not in {None, self._nonce}:
            self._tell_of_break(record)
        self._nonce = record.nonce
        self._fold(record)
        self._active += [sums for sums in self._waiting if sums.name.first == version]
        # What was live at the oldest version has its changes in it.
        if self._scan.state.log_start == 0 or version > self._scan.state.log_start:
            self._change(record)
        for sums in [sums for sums in self._active if sums.name.last == version]:
            self._active.remove(sums)
            self._compare_range(sums)
        for remove in record.removes:
            if remove.final_path is not None and remove.final_path in self._names:
                found.removed[remove.final_path] = remove, version
            if remove.kind == "part" and (path := self._still_staged.pop(remove.id, None)) is not None:
                found.removed_staged.append(path)
        self._still_staged |= {add.id: add.path for add in record.adds if add.path in self._staged}
        found.letters += [letter for letter in record.dead_letters if letter.path in self._staged]

    def _fold(self, record: Record) -> None:
        """Follow the state, many records at a time, and compare it with the bases."""
        self._pending.append(record)
        bases = [name for name in self._scan.bases if name.version == record.version]
        if not bases and len(self._pending) < RECORDS_AT_ONCE:
            return
        if self._state is not None:
            try:
                self._state = advance(self._state, *self._pending)
            except CorruptData:
                self._state = None
        self._pending.clear()
        for name in bases:
            if self._state is None:
                self._state = self._base_at(record.version)
            elif self._scan.bases[name] != self._state:
                path = layout.base_path(name)
                self._scan.misleading.add(path)
                actions = (MoveAside(path), Rebuild("base"))
                finding = Finding(
                    "bad-base", path, "what the records say", "something else", "warning", REPAIR, "yes", actions
                )
                self._found.findings.append(finding)

    def _change(self, record: Record) -> None:
        """Follow what is live."""
        if self._live is None:
            return
        for remove in record.removes:
            packed = self._live.pop(remove.id, None)
            if packed is None:
                self._tell_of_dead(record, remove)
                continue
            for sums in self._active:
                sums.end(remove.id, packed & _WHOLE, packed >> 64, record.version)
        for add in record.adds:
            found = add_hash(add)
            self._live[add.id] = record.version << 64 | found
            for sums in self._active:
                sums.kept += _with(found, record.version)

    def _compare_range(self, sums: _RangeSums) -> None:
        try:
            content = read_range(self._scan.log.fs, sums.name, ended=True)
        except (NotFound, CorruptData):
            return  # others merge
        kept = ended = 0
        for document in content.kept:
            versions = document.versions()
            for added, add in zip(versions.added, decode_adds(versions.ids, document.rest), strict=True):
                kept += _with(add_hash(add), added)
        for document in content.ended or ():
            versions = document.versions()
            adds = decode_adds(versions.ids, document.rest)
            for added, removed, add in zip(versions.added, versions.removed, adds, strict=True):
                ended += _with(add_hash(add), added, removed)
        removes = sum(hash((add_id, version)) & _WHOLE for add_id, version in content.removes.items())
        if (kept & _WHOLE, ended & _WHOLE, removes & _WHOLE) != sums.sums():
            self._bad_range(sums.name, "other adds than its records")

    def _bad_range(self, name: layout.RangeName, found: str) -> None:
        path = layout.range_path(name)
        self._scan.misleading.add(path)
        expected = f"what the records {name.first} to {name.last} say"
        kept = name.first >= self._scan.state.log_start
        names = {other for other in list_ranges(self._scan.log.fs) if other != name}
        if kept or any(other.first <= name.first and name.last <= other.last for other in names):
            actions = (MoveAside(path), Rebuild("ranges"))
            finding = Finding("bad-range", path, expected, found, "warning", REPAIR, "yes", actions)
        else:
            remedy = "The records are not kept: restore it from a copy of the directory"
            finding = Finding("bad-range", path, expected, found, "error", remedy)
        self._found.findings.append(finding)

    def _tell_of_missing(self, missing: list[int]) -> None:
        if not missing:
            return
        if not self._ranges_stand():
            self._tell_of_hole(missing[0])
            return
        path = layout.record_path(missing[0])
        found = f"{len(missing)} records up to version {missing[-1]} are missing or damaged"
        remedy = (
            f"Restore them from a copy of the directory; if there is none, {ACCEPT} lets the log begin after them. No "
            "row of the newest version is lost: bases and ranges stand for them"
        )
        finding = Finding(
            "missing-record",
            path,
            "all records that are kept",
            found,
            "error",
            remedy,
            "on request",
            (StartLog(missing[-1] + 1),),
        )
        self._found.findings.append(finding)

    def _ranges_stand(self) -> bool:
        """Return True if ranges stand for the records that are missing: then the newest version can be read."""
        try:
            snapshot_at(self._scan.reader(), self._scan.state)
        except CorruptData:
            return False
        return True

    def _tell_of_hole(self, version: int) -> None:
        path = layout.record_path(version)
        found, remedy = "none, and no range stands for it", "Restore it from a copy of the directory"
        finding = Finding("missing-record", path, "a record", found, "error", remedy)
        if self._scan.state.log_start == 0:  # all that comes before it can be read
            remedy += f"; if there is none, {ACCEPT} puts the later records aside, and the files that they made visible"
            finding = replace(finding, remedy=remedy, repair="on request", actions=(CutLog(version),))
        self._found.findings.append(finding)

    def _tell_of_break(self, record: Record) -> None:
        path = layout.record_path(record.version - 1)
        expected = f"the record that version {record.version} follows, {record.previous_nonce!r}"
        remedy = (
            "It was lost, and another commit took its number: restore it from a copy, in the place of the one there; "
            f"if there is none, {ACCEPT} lets the log begin after it"
        )
        actions = (StartLog(record.version),)
        finding = Finding("foreign-record", path, expected, f"{self._nonce!r}", "error", remedy, "on request", actions)
        self._found.findings.append(finding)

    def _tell_of_dead(self, record: Record, remove: Remove) -> None:
        path = layout.record_path(record.version)
        found = f"it removes {remove.id!r}, which is not live"
        remedy = "The log was changed by hand: restore it from a copy of the directory"
        self._found.findings.append(Finding("bad-record", path, "removes of live adds", found, "error", remedy))


def _with(found: int, *versions: int) -> int:
    return hash((found, *versions)) & _WHOLE
