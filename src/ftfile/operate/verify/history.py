"""The sequence of kept records, compared with checkpoints and compacted logs.

Adds are compared by sums of their hashes, so that they need not be kept in memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain, starmap
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import CorruptData, NotFound
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.format import layout
from ftfile.log.format.adds import ids_of
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.places import list_or_empty
from ftfile.log.read.compacted_records import list_compacted, read_compacted
from ftfile.log.read.snapshot import snapshot_at
from ftfile.log.state import LogState
from ftfile.operate.findings import Action, Finding, find
from ftfile.operate.verify.log_scan import advance, is_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence

    from ftfile.log.format.compacted import Document
    from ftfile.log.format.model import Add, Record, Remove
    from ftfile.operate.verify.log_scan import LogScan


# Applied to the state together.
RECORDS_AT_ONCE = 256
# Sums are kept to 64 bits.
WHOLE = (1 << 64) - 1
_FIELDS = attrgetter(
    "id",
    "kind",
    "path",
    "final_path",
    "length",
    "logical_length",
    "checksum",
    "rows",
    "directory_key",
    "encoding",
    "origin.query_id",
    "origin.first_batch",
    "origin.last_batch",
    "offset",
    "filters",
    "skip_rows",
)


def read_history(
    scan: LogScan, names: Container[str], staged: Container[str], on_record: Callable[[Record], object] | None
) -> History:
    """Read and compare the kept records; `names` are the visible files, `staged` the staged files.

    `on_record` is called with each record.
    """
    history = History(scan, names, staged)
    history.read(on_record)
    return history


def add_hash(add: Add) -> int:
    """Return a hash of all fields of an add that compacted logs contain; it is stable only within this process."""
    stats = ""
    if add.rolling_stats:
        stats = repr(add.rolling_stats)
    return hash((_FIELDS(add), stats)) & WHOLE


def _sum_with(add_sum: int, added: int, removed: int | None = None) -> int:
    return hash((add_sum, added, removed)) & WHOLE


@dataclass(slots=True)
class _CompactedSums:
    """The expected content of a compacted log: sums over its kept, ended and removed adds."""

    name: layout.CompactedName
    log_start: int
    kept: int = 0
    ended: int = 0
    removes: int = 0

    def end(self, add_id: str, add_sum: int, added: int, version: int) -> None:
        if added < self.name.first:
            self.removes += hash((add_id, version)) & WHOLE
            return
        self.kept -= _sum_with(add_sum, added)
        if version > self.log_start:
            self.ended += _sum_with(add_sum, added, version)


class History:
    """The history in the kept records."""

    def __init__(self, scan: LogScan, names: Container[str], staged: Container[str]) -> None:
        self.records = 0  # number of records that were read
        self.live_sum: int | None = None  # of the hashes of all live adds; None if records are missing
        # The newest removed part of each final name that exists, and the version that removed it.
        self.removed: dict[str, tuple[Remove, int]] = {}
        self.removed_staged: dict[str, Remove] = {}  # by path
        self.staged_letters: list[Add] = []
        self.letters: dict[str, Add] = {}  # dead letters by their final path
        self.given_up: set[str] = set()  # ids of adds that repairs have removed: their files may be missing
        self.findings: list[Finding] = []
        self._scan = scan
        self._start = scan.state.log_start
        self._names = names
        self._staged = staged
        self._live: dict[str, int] | None = {}  # by id: the version that added it, and its hash, packed into one number
        self._state: LogState | None = LogState()
        self._pending: list[Record] = []
        self._last_checkpoint = max((name.version for name in scan.checkpoints), default=-1)
        self._still_staged: dict[str, str] = {}
        self._waiting: list[_CompactedSums] = []
        self._active: list[_CompactedSums] = []

    def read(self, on_record: Callable[[Record], object] | None) -> None:
        """Read the records; see `read_history`."""
        if self._start > 0:
            self._begin()
        self._report_strange_names()
        self._waiting = list(self._comparable_sums())
        missing: list[int] = []
        for version, record, after, behind in _pair_with_next(
            self._scan.records(self._start, self._scan.state.version)
        ):
            if record is None:
                missing.append(version)
                self._skip(version)
            elif after is not None and is_foreign(record, after, behind):
                self._report_foreign(record, after)
                self._skip(version)
            else:
                self._take_in(record)
                if on_record is not None:
                    on_record(record)
        if missing:
            self._report_missing(missing)
        if self._live is not None:
            live_sum = 0
            for packed in self._live.values():
                live_sum += packed & WHOLE
            self.live_sum = live_sum & WHOLE
            self._live = None  # frees memory: the snapshot contains the live adds again

    def _begin(self) -> None:
        """Begin with the oldest kept version, if older versions were deleted."""
        self._state = None
        try:
            snapshot = snapshot_at(self._scan.reader(), self._scan.state, self._start)
            added = self._start << 64
            self._live = {add.id: added | add_hash(add) for add in snapshot.adds.values()}
        except CorruptData:
            self._live = None  # the head's snapshot also fails, and the failure is reported there

    def _comparable_sums(self) -> Iterator[_CompactedSums]:
        """Yield the compacted logs that can be compared with records; check the others as far as possible."""
        for name in sorted(list_compacted(self._scan.log.fs)):
            if layout.compacted_path(name) in self._scan.misleading:
                continue
            try:
                content = read_compacted(self._scan.log.fs, name, ended=True, statistics=True)
            except NotFound:
                continue
            except CorruptData as error:
                self._bad_compacted(name, error.found)
                continue
            record = None
            if name.last >= self._start:
                record = self._scan.readable(name.last)
            if self._scan.contradicts(name.last, record, content.nonce):
                self._bad_compacted(name, f"versions to {name.last} of another history")
            elif name.first > self._start or self._start == 0:
                yield _CompactedSums(name, content.log_start)

    def _report_strange_names(self) -> None:
        """Report files with a compacted log's ending but an invalid version interval; readers ignore them."""
        for info in list_or_empty(self._scan.log.fs, layout.COMPACTED):
            if info.path.endswith(".compacted") and layout.parse_compacted_name(info.path) is None:
                expected = "a name with versions that one compacted log may contain"
                finding = find(
                    "bad-compacted-log",
                    info.path,
                    expected,
                    "other versions",
                    actions=[Action("move-aside", info.path)],
                )
                self.findings.append(finding)

    def _skip(self, version: int) -> None:
        """Continue after a missing record: its changes are known from the next checkpoint on."""
        self._live = None
        self._waiting, self._active = [], []
        self._pending.clear()
        self._state = self._checkpoint_at(version)

    def _checkpoint_at(self, version: int) -> LogState | None:
        for name, checkpoint in self._scan.checkpoints.items():
            if name.version == version:
                return checkpoint
        return None

    def _sums_from(self, version: int) -> list[_CompactedSums]:
        """Return the waiting compacted logs that begin with a version."""
        waiting = []
        for sums in self._waiting:
            if sums.name.first == version:
                waiting.append(sums)
        return waiting

    def _take_in(self, record: Record) -> None:
        version = record.version
        self.records += 1
        self._fold(record)
        if self._live is not None:  # a compacted log may remove adds of records that are missing
            self._active += self._sums_from(version)
        # The snapshot of the oldest version already contains its changes.
        if self._live is not None and (self._start == 0 or version > self._start):
            self._change(record, self._live)
        for sums in list(self._active):
            if sums.name.last == version:
                self._active.remove(sums)
                self._compare_compacted(sums)
        for remove in record.removes:
            if remove.final_path is not None and remove.final_path in self._names:
                self.removed[remove.final_path] = remove, version
            if remove.kind == "part" and (path := self._still_staged.pop(remove.id, "")):
                self.removed_staged[path] = remove
        self._note_staged(record)
        if isinstance(record.author, MaintenanceAuthor) and record.author.operation == "repair":
            self.given_up |= ids_of(record.removes)

    def _note_staged(self, record: Record) -> None:
        """Note the dead letters of a record, and its adds that are still staged."""
        for add in record.adds:
            if add.path in self._staged:
                self._still_staged[add.id] = add.path
        for letter in record.dead_letters:
            self.letters[letter.final_path or letter.path] = letter
            if letter.path in self._staged:
                self.staged_letters.append(letter)

    def _fold(self, record: Record) -> None:
        """Apply many records at a time up to the newest checkpoint, and compare the state with the checkpoints."""
        if record.version > self._last_checkpoint:
            return
        self._pending.append(record)
        checkpoints = []
        for name in self._scan.checkpoints:
            if name.version == record.version:
                checkpoints.append(name)
        if not checkpoints and len(self._pending) < RECORDS_AT_ONCE:
            return
        if self._state is not None:
            try:
                self._state = advance(self._state, *self._pending)
            except CorruptData:
                self._state = None
        self._pending.clear()
        for name in checkpoints:
            if self._state is None:
                self._state = self._checkpoint_at(record.version)
            elif self._scan.checkpoints[name] != self._state:
                path = layout.log_checkpoint_path(name)
                self._scan.misleading.add(path)
                actions = Action("move-aside", path), Action("rebuild-checkpoint")
                self.findings.append(
                    find("bad-checkpoint", path, "the state that the records give", "another state", actions=actions),
                )

    def _change(self, record: Record, live: dict[str, int]) -> None:
        """Apply a record to the live adds."""
        for remove in record.removes:
            packed = live.pop(remove.id, None)
            if packed is None:
                path, actual = layout.record_path(record.version), f"it removes {remove.id!r}, which is not live"
                self.findings.append(find("bad-record", path, "removes of live adds", actual))
                continue
            for sums in self._active:
                sums.end(remove.id, packed & WHOLE, packed >> 64, record.version)
        for add in record.adds:
            hashed = add_hash(add)
            live[add.id] = record.version << 64 | hashed
            for sums in self._active:
                sums.kept += _sum_with(hashed, record.version)

    def _compare_compacted(self, sums: _CompactedSums) -> None:
        try:
            content = read_compacted(self._scan.log.fs, sums.name, ended=True)
        except (NotFound, CorruptData):
            return  # another process is merging compacted logs
        removes = 0
        for ended in content.removes.items():
            removes += hash(ended) & WHOLE
        sums_read = _sum_of(content.kept), _sum_of(content.ended or ()), removes & WHOLE
        if sums_read != (sums.kept & WHOLE, sums.ended & WHOLE, sums.removes & WHOLE):
            self._bad_compacted(sums.name, "other adds than in its records")

    def _bad_compacted(self, name: layout.CompactedName, actual: str) -> None:
        path = layout.compacted_path(name)
        self._scan.misleading.add(path)
        expected = f"the content of the records {name.first} to {name.last}"
        finding = find(
            "bad-compacted-log",
            path,
            expected,
            actual,
            actions=[Action("move-aside", path), Action("rebuild-compacted-logs")],
        )
        if name.first < self._start and not self._is_covered(name):
            finding = finding.without_repair("The records no longer exist: restore it from a copy of the directory")
        self.findings.append(finding)

    def _is_covered(self, name: layout.CompactedName) -> bool:
        """Return True if another compacted log contains the versions of a compacted log."""
        for other in list_compacted(self._scan.log.fs):
            if other != name and other.first <= name.first and name.last <= other.last:
                return True
        return False

    def _report_foreign(self, record: Record, after: Record) -> None:
        path, action = layout.record_path(record.version), Action("start-log", version=after.version)
        expected = f"the record that version {after.version} follows, {after.previous_nonce!r}"
        self._scan.misleading.add(path)
        self.findings.append(find("foreign-record", path, expected, f"{record.nonce!r}", actions=[action]))

    def _report_missing(self, missing: list[int]) -> None:
        path, expected = layout.record_path(missing[0]), "all records since the oldest"
        actual = f"{len(missing)} records up to version {missing[-1]} are missing or damaged"
        try:
            snapshot_at(self._scan.reader(), self._scan.state)
        except CorruptData:
            finding = find("missing-record", path, expected, actual, actions=[Action("cut-log", version=missing[0])])
            # A log that starts at version 0 can be read up to the first missing record.
            if self._start > 0:
                finding = finding.without_repair()
            self.findings.append(finding)
            return
        remedy = Advice(
            "Restore them from a copy; if there is no copy, ",
            Remedy("repair", accept_lost_records=True, dry_run=False),
            " starts the log after them. No row of the newest version is lost: log checkpoints and compacted logs "
            "replace them",
        )
        action = Action("start-log", version=missing[-1] + 1)
        self.findings.append(find("missing-record", path, expected, actual, actions=[action], remedy=remedy))


class _VersionedAdd(NamedTuple):
    """An add of a compacted log, with the versions that added and removed it."""

    added: int
    removed: int | None
    add: Add


def adds_in(documents: Iterable[Document]) -> Iterator[_VersionedAdd]:
    """Yield the adds of a compacted log's documents, each after the versions that added and removed it."""
    for document in documents:
        versions = document.versions()
        removed: Sequence[int | None] = versions.removed or [None] * document.count
        yield from starmap(_VersionedAdd, zip(versions.added, removed, document.adds(versions.ids), strict=True))


class _RecordWithNext(NamedTuple):
    """A version with its record and the next two records; None for missing records."""

    version: int
    record: Record | None
    after: Record | None
    behind: Record | None


def _pair_with_next(
    records: Iterable[tuple[int, Record | None]],
) -> Iterator[_RecordWithNext]:
    """Yield each version with its record and the next two records; None for missing records."""
    window: deque[tuple[int, Record | None]] = deque()
    for pair in chain(records, [(-1, None)] * 2):
        window.append(pair)
        if len(window) == 3:  # noqa: PLR2004
            (version, record), (_, after), (_, behind) = window
            yield _RecordWithNext(version, record, after, behind)
            window.popleft()


def _sum_of(documents: Iterable[Document]) -> int:
    """Return the sum of the adds with their versions, as in `_CompactedSums`."""
    total = 0
    for added, removed, add in adds_in(documents):
        total += _sum_with(add_hash(add), added, removed)
    return total & WHOLE
