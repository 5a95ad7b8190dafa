"""The invariants of a directory, checked from what is on storage alone, at any moment, also amid a commit.

- **I1** versions are consecutive, each created once, never changed.
- **I2** there is one record per (query, batch) and per (application, version).
- **I3** a batch that Spark recorded has a record.
- **I4** batch ids of a query are consecutive from its recorded start.
- **I5** live adds exist with recorded length and checksum; removed ones until a vacuum may have taken them.
- **I6** no path is written twice, no two parts share a path or a final name, live segments never overlap.
- **I7** snapshots are prefixes of the log: records remove what is live, bases and hints tell the same story.
- **I8** maintenance changes no snapshot's rows.
- **I9** a plain lister sees only whole, finished parts of existing records, and no row twice.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ftfile.commit import layout
from ftfile.commit.bases import decode_base
from ftfile.commit.hints import read_published
from ftfile.commit.model import JobAuthor, MaintenanceAuthor, StreamAuthor
from ftfile.commit.record_format import decode_record
from ftfile.commit.snapshot import open_add
from ftfile.commit.state import LogState
from ftfile.core.checksum import matches
from ftfile.core.errors import CorruptData, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ftfile.commit.model import Add, Author, Record
    from ftfile.fs.api import FileInfo, FileSystem

__all__ = ("DirectoryReport", "InvariantViolation", "check_directory", "list_plainly")

RowsOf = Callable[[bytes], Iterable[Hashable]]

_RECORD_NAME = re.compile(r"(\d{20})\.record")


class InvariantViolation(AssertionError):
    """One of the invariants does not hold.

    Args:
        invariant: such as `I5`.
        found: what contradicts it.
    """

    def __init__(self, invariant: str, found: str) -> None:
        super().__init__(f"{invariant}: {found}")
        self.invariant = invariant


@dataclass
class _Snapshot:
    version: int = -1
    adds: dict[str, Add] = field(default_factory=dict)


@dataclass
class DirectoryReport:
    """What a directory holds.

    Attributes:
        records: the bytes of every record by version.
        authors: who wrote each, in the order of the log.
        committed: by query, its batches in that order.
        live: the adds of the newest snapshot.
        live_rows: how often each row is in them.
        visible: content of every file that a plain lister sees, by path.
        visible_rows: how often each row is in those.
    """

    records: dict[int, bytes] = field(default_factory=dict)
    authors: list[Author] = field(default_factory=list)
    committed: dict[str, list[int]] = field(default_factory=dict)
    live: dict[str, Add] = field(default_factory=dict)
    live_rows: Counter[Hashable] = field(default_factory=Counter)
    visible: dict[str, bytes] = field(default_factory=dict)
    visible_rows: Counter[Hashable] = field(default_factory=Counter)


def check_directory(
    fs: FileSystem,
    *,
    earlier: DirectoryReport | None = None,
    recorded_by_spark: Mapping[str, Iterable[int]] | None = None,
    rows_of: RowsOf = bytes.splitlines,
) -> DirectoryReport:
    """Check I1 to I9 and return what was found. Reads every file; changes nothing.

    Args:
        fs: rooted at the directory.
        earlier: of an earlier check: its records must be there unchanged, its snapshot hold the rows it held.
        recorded_by_spark: by query id, the batches that Spark believes to be committed.
        rows_of: takes a file's content apart; the default suits formats of one row per line.

    Raises:
        InvariantViolation: names the invariant and what was found.
    """
    report = DirectoryReport()
    records = _check_records(fs, report, earlier)
    _check_authors(records, report, recorded_by_spark or {})
    snapshots = _check_snapshots(records)
    _check_bases(fs, records)
    _check_hint(fs, records)
    contents = _check_contents(fs, records, snapshots[-1])
    rows = {add_id: Counter(rows_of(content)) for add_id, content in contents.items()}
    _check_rows(records, snapshots, rows, earlier)
    report.live = snapshots[-1].adds
    report.live_rows = _sum_of(rows, report.live)
    _check_visible(fs, records, report)
    for content in report.visible.values():
        report.visible_rows.update(rows_of(content))
    return report


def list_plainly(fs: FileSystem, directory: str = "") -> Iterator[str]:
    """Yield what Spark, Hive, pandas and pyarrow see: nothing at or below a name starting with `_` or `.`."""
    for child in _children(fs, directory):
        if child.path.rsplit("/", 1)[-1][0] in "_.":
            continue
        if child.is_directory:
            yield from list_plainly(fs, child.path)
        else:
            yield child.path


def _check_records(fs: FileSystem, report: DirectoryReport, earlier: DirectoryReport | None) -> list[Record]:
    for info in _children(fs, layout.LOG):
        match = _RECORD_NAME.fullmatch(info.path.rsplit("/", 1)[-1])
        if match:
            report.records[int(match[1])] = fs.read(info.path)
    versions = sorted(report.records)
    _require(versions == list(range(len(versions))), "I1", f"the versions on storage are {versions}")
    for version, content in (earlier.records if earlier else {}).items():
        _require(report.records.get(version) == content, "I1", f"version {version} changed, or is gone")
    return [_decoded(fs, version, report.records[version]) for version in versions]


def _decoded(fs: FileSystem, version: int, content: bytes) -> Record:
    path = layout.record_path(version)
    try:
        record = decode_record(content, path, fs.read)
    except (CorruptData, NotFound) as error:
        raise InvariantViolation("I1", str(error)) from error
    _require(record.version == version, "I1", f"{path} says it is version {record.version}")
    return record


def _check_authors(
    records: Sequence[Record], report: DirectoryReport, recorded_by_spark: Mapping[str, Iterable[int]]
) -> None:
    transactions: dict[str, int] = {}
    for record in records:
        author = record.author
        report.authors.append(author)
        if isinstance(author, StreamAuthor):
            batches = report.committed.setdefault(author.query_id, [])
            _require(author.batch_id not in batches, "I2", f"version {record.version} repeats {author}")
            start = record.lineage_start
            expected = start if start is not None else batches[-1] + 1 if batches else None
            _require(author.batch_id == expected, "I4", f"{author} follows {batches[-1:]} with start {start}")
            batches.append(author.batch_id)
        elif isinstance(author, JobAuthor) and author.transaction is not None:
            last = transactions.get(author.transaction.app_id, -1)
            _require(author.transaction.version > last, "I2", f"{author} follows version {last}")
            transactions[author.transaction.app_id] = author.transaction.version
    for query_id, batches_of_spark in recorded_by_spark.items():
        missing = set(batches_of_spark) - set(report.committed.get(query_id, ()))
        _require(not missing, "I3", f"batches {sorted(missing)} of {query_id} are in no record")


def _check_snapshots(records: Sequence[Record]) -> list[_Snapshot]:
    """Return the snapshot before the first record and the one after each."""
    snapshots = [_Snapshot()]
    names: set[str] = set()
    for record in records:
        live = snapshots[-1].adds
        removed = [remove.id for remove in record.removes]
        _require(len(set(removed)) == len(removed), "I7", f"version {record.version} removes an add twice")
        dead = [add_id for add_id in removed if add_id not in live]
        _require(not dead, "I7", f"version {record.version} removes {dead}, which are not live")
        left = live.keys() - removed if record.overwrite else ()
        _require(not left, "I7", f"version {record.version} overwrites all and leaves {left}")
        for name in (name for add in (*record.adds, *record.letters) for name in _own_names(add)):
            _require(name not in names, "I6", f"version {record.version} uses {name!r} a second time")
            names.add(name)
        left = {add_id: add for add_id, add in live.items() if add_id not in removed}
        snapshots.append(_Snapshot(record.version, left | {add.id: add for add in record.adds}))
    for snapshot in snapshots:
        _check_segments(snapshot)
    return snapshots


def _own_names(add: Add) -> list[str]:
    """What belongs to this add alone, for ever."""
    return [f"add {add.id}"] if add.kind == "segment" else [f"add {add.id}", add.path, add.final_path or ""]


def _check_segments(snapshot: _Snapshot) -> None:
    segments = (add for add in snapshot.adds.values() if add.kind == "segment")
    found = sorted((add.path, add.offset, add.length) for add in segments)
    for (path, start, length), (next_path, next_start, _) in itertools.pairwise(found):
        apart = path != next_path or start + length <= next_start
        _require(apart, "I6", f"at version {snapshot.version} segments of {path!r} overlap at {next_start}")


def _check_bases(fs: FileSystem, records: Sequence[Record]) -> None:
    """A base is the fold of the records up to it, and forgets no part that is not published."""
    for info in _children(fs, layout.STATE):
        name = layout.parse_base_name(info.path)
        if name is None:
            continue
        base = decode_base(fs.read(info.path), info.path)
        _require(name.version < len(records), "I7", f"{info.path} covers versions that do not exist")
        folded = LogState()
        for record in records[: name.version + 1]:
            folded.apply(record)
        listed, base.unpublished, folded.unpublished = base.unpublished, {}, {}
        _require(base == folded, "I7", f"{info.path} says {base}, and the records up to it say {folded}")
        covered = [record for record in records[: name.version + 1] if record.version not in listed]
        _check_published(fs, covered, info.path)


def _check_hint(fs: FileSystem, records: Sequence[Record]) -> None:
    hint = read_published(fs)
    if hint is not None and hint.version < len(records) and records[hint.version].nonce == hint.nonce:
        _check_published(fs, records[: hint.version + 1], layout.PUBLISHED_HINT)


def _check_published(fs: FileSystem, records: Iterable[Record], source: str) -> None:
    for record in records:
        before = [add.path for add in (*record.adds, *record.letters) if add.kind == "part"]
        before += [remove.final_path for remove in record.removes if remove.final_path]
        left = [path for path in before if fs.exists(path)]
        _require(not left, "I7", f"{source} says that version {record.version} is published, but {left} are left")


def _check_contents(fs: FileSystem, records: Sequence[Record], newest: _Snapshot) -> dict[str, bytes]:
    """Return the bytes of each add; a removed one may be gone once a record sets a horizon for vacuum."""
    vacuumed = any(record.horizon_ms is not None for record in records)
    contents = {}
    for add in (add for record in records for add in (*record.adds, *record.letters)):
        try:
            whole = open_add(add, fs.read)
        except CorruptData as error:
            if vacuumed and add.id not in newest.adds:
                continue
            raise InvariantViolation("I5", str(error)) from error
        content = whole[add.offset :][: add.length] if add.kind == "segment" else whole
        _require(len(content) == add.length, "I5", f"{add} has {len(content)} bytes")
        _require(matches(content, add.checksum), "I5", f"{add} has other bytes than were recorded")
        contents[add.id] = content
    return contents


def _check_rows(
    records: Sequence[Record],
    snapshots: Sequence[_Snapshot],
    rows: Mapping[str, Counter[Hashable]],
    earlier: DirectoryReport | None,
) -> None:
    for record in records:
        removed, author = [remove.id for remove in record.removes], record.author
        if isinstance(author, MaintenanceAuthor) and record.adds and rows.keys() >= set(removed):
            same = _sum_of(rows, removed) == _sum_of(rows, (add.id for add in record.adds))
            _require(same, "I8", f"version {record.version}, {author.operation}, changes rows")
    if earlier is not None and rows.keys() >= earlier.live.keys():
        then = snapshots[len(earlier.records)]
        same = _sum_of(rows, then.adds) == earlier.live_rows
        _require(same, "I8", f"the rows of version {then.version} are not what they were")


def _check_visible(fs: FileSystem, records: Sequence[Record], report: DirectoryReport) -> None:
    known = {add.final_path for record in records for add in record.adds if add.final_path is not None}
    for path in list_plainly(fs):
        # It is whole: its final name is where a part was looked for first, and found to be as recorded.
        _require(path in known, "I9", f"{path} is visible and in no record")
        report.visible[path] = fs.read(path)
    _check_replaced(records, report)
    endings = tuple({"." + path.rsplit(".", 1)[-1] for path in known if "." in path})
    hidden = [path for path in _walk(fs, layout.META) if endings and path.endswith(endings)]
    _require(not hidden, "I9", f"readers that find data by its ending take {hidden} for parts")


def _check_replaced(records: Sequence[Record], report: DirectoryReport) -> None:
    """A part that is still, or again, visible must not meet what replaced it, nor what replaced that."""
    replaced_by: dict[str, Record] = {remove.id: record for record in records for remove in record.removes}
    for record in records:
        for remove in record.removes:
            if remove.final_path not in report.visible:
                continue
            heirs = list(record.adds)
            for add in heirs:
                shown = add.final_path in report.visible
                _require(
                    not shown,
                    "I9",
                    f"{remove.final_path} and what replaced it, {add.final_path}, are visible",
                )
                heirs += replaced_by[add.id].adds if add.id in replaced_by else ()


def _walk(fs: FileSystem, directory: str) -> Iterator[str]:
    for child in _children(fs, directory):
        if child.is_directory:
            yield from _walk(fs, child.path)
        else:
            yield child.path


def _children(fs: FileSystem, directory: str) -> Sequence[FileInfo]:
    try:
        return fs.list(directory)
    except NotFound:
        return ()


def _sum_of(rows: Mapping[str, Counter[Hashable]], add_ids: Iterable[str]) -> Counter[Hashable]:
    total: Counter[Hashable] = Counter()
    for add_id in add_ids:
        total.update(rows[add_id])
    return total


def _require(holds: bool, invariant: str, found: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise InvariantViolation(invariant, found)
