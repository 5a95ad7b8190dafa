"""The log as files: how far it can be read, which bases are right, and what is lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ftfile.commit.files import list_or_empty
from ftfile.commit.format import layout
from ftfile.commit.log.bases import decode_base, list_bases
from ftfile.commit.log.fold import after
from ftfile.commit.log.hints import read_published
from ftfile.commit.log.log import CommitLog
from ftfile.commit.log.state import LogState
from ftfile.commit.log.times import created_ms
from ftfile.commit.read.ranges import list_ranges
from ftfile.core.errors import CorruptData, NotFound
from ftfile.maintenance.verify.findings import CutLog, Finding, LowerHorizon, MakeDirectory, MoveAside, Rebuild
from ftfile.maintenance.verify.hiding import without

if TYPE_CHECKING:
    from ftfile.commit.format.model import Record
    from ftfile.fs.api import FileSystem

__all__ = ("ACCEPT", "REPAIR", "LogScan", "advance", "scan_log")

ACCEPT = "ftfile.repair(path, accept_lost_records=True)"
REPAIR = "ftfile.repair(path) mends it"
_RESTORE = "Restore it from a copy of the directory"


@dataclass
class LogScan:
    """What the files of the log say.

    Attributes:
        state: at the newest version that can be read; its list of what is unpublished is empty.
        versions: of the records that are there.
        bases: those that can be read and are of this log.
        broken: the first version that cannot be read although there are later ones, or None.
        published: the version up to which a hint of this log says that everything is published; -1 for none.
        misleading: paths of derived files that readers must not believe.
        beyond: paths of derived files that know versions that the log does not have, and the last of each.
    """

    log: CommitLog
    state: LogState = field(default_factory=LogState)
    versions: frozenset[int] = frozenset()
    bases: dict[layout.BaseName, LogState] = field(default_factory=dict)
    broken: int | None = None
    published: int = -1
    misleading: set[str] = field(default_factory=set)
    beyond: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def read(self, version: int) -> Record | None:
        """Return a record, or None where there is none.

        Raises:
            CorruptData: it is damaged.
        """
        return self.log.read_record(version)

    def reader(self) -> CommitLog:
        """Return a log that does not see what misleads."""
        return CommitLog(without(self.log.fs, self.misleading))


def scan_log(fs: FileSystem) -> LogScan:
    """Read bases and the records after the newest right one."""
    scan = LogScan(CommitLog(fs))
    scan.findings += [_missing_directory(path) for path in _missing_directories(fs)]
    names = (layout.parse_log_name(info.path) for info in list_or_empty(fs, layout.LOG))
    scan.versions = frozenset(name.version for name in names if name is not None and name.nonce is None)
    suspects = _read_bases(scan)
    _follow(scan)
    for path, found in suspects.items():
        scan.misleading.add(path)
        scan.findings.append(_bad_base(path, found, is_needed=scan.state.version < 0))
    _look_beyond(scan)
    _check_hint(scan)
    _check_horizon(scan)
    return scan


def advance(state: LogState, *records: Record) -> LogState:
    """Return the state after some more records; nothing counts as unpublished.

    Raises:
        CorruptData: a record does not follow.
    """
    return replace(after(state, *records), unpublished={})


def _missing_directories(fs: FileSystem) -> list[str]:
    if fs.capabilities.implied_directories:
        return []
    return [path for path in layout.DIRECTORIES if not fs.exists(path)]


def _missing_directory(path: str) -> Finding:
    return Finding(
        "missing-directory",
        path,
        "a directory",
        "none: a copy without empty directories, or somebody deleted it",
        "warning",
        REPAIR,
        "yes",
        (MakeDirectory(path),),
    )


def _read_bases(scan: LogScan) -> dict[str, str]:
    """Take in the bases that are right; return the paths of others, and what is wrong with them."""
    suspects: dict[str, str] = {}
    for name in sorted(list_bases(scan.log.fs)):
        path = layout.base_path(name)
        try:
            base = decode_base(scan.log.fs.read(path), path)
            record = scan.read(name.version)
        except NotFound:
            continue
        except CorruptData as error:
            if error.path == path:
                suspects[path] = error.found
            continue
        if record is None and name.version > max(scan.versions, default=-1):
            scan.beyond[path] = name.version
        elif base.version != name.version or (record is not None and record.nonce != base.nonce):
            suspects[path] = f"version {base.version} of another history"
        elif record is not None:
            scan.bases[name] = replace(base, unpublished={})
    return suspects


def _bad_base(path: str, found: str, *, is_needed: bool) -> Finding:
    expected = "a base of this log"
    if is_needed:
        return Finding("bad-base", path, expected, found, "error", _RESTORE)
    return Finding("bad-base", path, expected, found, "warning", REPAIR, "yes", (MoveAside(path), Rebuild("base")))


def _follow(scan: LogScan) -> None:
    """Read on from the newest base to where the log ends, or cannot be read."""
    newest = max(scan.bases, default=None)
    state = scan.bases[newest] if newest is not None else LogState()
    if newest is None and scan.versions and 0 not in scan.versions:
        first = min(scan.versions)
        scan.broken = first
        found = f"none, and the records before version {first} are gone"
        scan.findings.append(Finding("missing-base", layout.BASES, "a base", found, "error", _RESTORE))
        return
    last = max(scan.versions, default=-1)
    while True:
        version = state.version + 1
        try:
            record = scan.read(version)
            if record is None:
                if version < last:
                    scan.broken = version
                    scan.findings.append(_hole(version, last))
                break
            state = advance(state, record)
        except CorruptData as error:
            scan.broken = version
            scan.findings.append(_unreadable(scan, version, state.nonce, error))
            break
    scan.state = state


def _hole(version: int, last: int) -> Finding:
    path = layout.record_path(version)
    found = f"none, although there are records up to version {last}: somebody deleted it"
    remedy = (
        f"{_RESTORE}; if there is none, {ACCEPT} puts the later records aside, and the files that they made visible"
    )
    return Finding("missing-record", path, "a record", found, "error", remedy, "on request", (CutLog(version),))


def _unreadable(scan: LogScan, version: int, nonce: str, error: CorruptData) -> Finding:
    code, path, remedy = "damaged-record", error.path, _RESTORE
    try:
        record = scan.read(version)
    except CorruptData:
        record = None
    if record is not None and record.previous_nonce not in {None, nonce}:
        code, path = "foreign-record", layout.record_path(version - 1)
        remedy = (
            f"Version {version} follows a record that is not the one of version {version - 1}: that was lost, and "
            f"another commit took its number. Restore version {version - 1} from a copy, in the place of the one there"
        )
    remedy += f"; if there is no copy, {ACCEPT} puts the records from version {version} on aside"
    return Finding(code, path, error.expected, error.found, "error", remedy, "on request", (CutLog(version),))


def _look_beyond(scan: LogScan) -> None:
    """Look for what tells that the newest records are lost."""
    fs, head = scan.log.fs, scan.state.version
    hint = read_published(fs)
    if hint is not None and hint.version > head:
        scan.beyond[layout.PUBLISHED_HINT] = hint.version
    scan.beyond |= {layout.range_path(name): name.last for name in list_ranges(fs) if name.last > head}
    # Queries may have gone on meanwhile.
    scan.beyond = {path: last for path, last in scan.beyond.items() if not fs.exists(layout.record_path(last))}
    scan.misleading |= scan.beyond.keys()
    if not scan.beyond or scan.broken is not None:
        return
    last = max(scan.beyond.values())
    path = next(path for path, version in scan.beyond.items() if version == last)
    remedy = (
        f"Restore the newest records from a copy, with all of {layout.META}; if there is none, {ACCEPT} takes version "
        f"{head} for the newest"
    )
    scan.findings.append(
        Finding(
            "lost-records",
            layout.LOG,
            f"version {last}, which {path!r} knows",
            f"version {head} as the newest one",
            "error",
            remedy,
            "on request",
            tuple(map(MoveAside, sorted(scan.beyond))),
        )
    )


def _check_hint(scan: LogScan) -> None:
    fs, path = scan.log.fs, layout.PUBLISHED_HINT
    if path in scan.beyond or not fs.exists(path):
        return
    hint = read_published(fs)
    if hint is None:
        found = "something else"
    elif hint.version in scan.versions and (record := _read_quietly(scan, hint.version)) is not None:
        if record.nonce == hint.nonce:
            scan.published = hint.version
            return
        found = f"version {hint.version} of another history"
    else:
        return
    scan.misleading.add(path)
    expected = "the newest published version"
    actions = (MoveAside(path), Rebuild("hint"))
    scan.findings.append(Finding("bad-hint", path, expected, found, "warning", REPAIR, "yes", actions))


def _read_quietly(scan: LogScan, version: int) -> Record | None:
    try:
        return scan.read(version)
    except CorruptData:
        return None


def _check_horizon(scan: LogScan) -> None:
    newest = created_ms(scan.log, scan.state.version) if scan.state.version >= 0 else None
    now_ms = max(scan.log.clock.now_ms(), newest or 0)
    if scan.state.horizon_ms > now_ms:
        ahead_s = (scan.state.horizon_ms - now_ms) // 1000
        scan.findings.append(
            Finding(
                "horizon-ahead",
                layout.LOG,
                "a vacuum horizon in the past",
                f"one {ahead_s} s in the future: a vacuum ran while the store's clock was ahead, and commits fail",
                "error",
                REPAIR,
                "yes",
                (LowerHorizon(),),
            )
        )
