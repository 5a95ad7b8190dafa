"""The invariants of a directory, checked only from the storage, at any moment, also during a commit.

- **I1** versions are consecutive, each created once, never changed.
- **I2** there is one record per (query, batch) and per (application, version).
- **I3** a batch that Spark recorded has a record.
- **I4** batch ids of a query are consecutive from its recorded start.
- **I5** live adds exist with recorded length and checksum; removed adds exist until a vacuum can have deleted them.
- **I6** no path is written twice, no two parts share a path or a final name, live segments never overlap.
- **I7** snapshots are prefixes of the log: records remove only live adds, checkpoints and hints agree with the records.
- **I8** maintenance removes only the rows that its record counts as removed, and a restore has the rows of the
  version that it names.
- **I9** a plain lister sees only complete parts of existing records, and no row twice.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from ftfile.core.checksum import matches
from ftfile.core.errors import CorruptData
from ftfile.filters.chain import Chain
from ftfile.filters.decoded import decode_piece
from ftfile.log.format import layout
from ftfile.log.format.layout import restored_version
from ftfile.log.format.model import BatchWriteAuthor, MaintenanceAuthor, StreamAuthor
from ftfile.log.places import list_or_empty, open_add, walk
from ftfile.log.records import read_published
from ftfile.log.sealed import identity_of_letters, keys_of
from ftfile.testing.log_check import InvariantViolation, LogContents, ids_of, read_log, require, segments_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ftfile.log.format.model import Add, Author, Record
    from ftfile.storage.api import FileSystem


__all__ = ("DirectoryReport", "InvariantViolation", "check_directory", "list_plainly", "rows_of_add")


RowsOf = Callable[[bytes], Iterable[Hashable]]


@dataclass(kw_only=True)
class DirectoryReport:
    """The content of a directory."""

    records: dict[int, bytes] = field(default_factory=dict)  # the bytes of each kept record, by version
    log_start: int = 0  # version of the oldest kept record
    authors: list[Author] = field(default_factory=list)  # in the order of the log
    committed: dict[str, list[int]] = field(default_factory=dict)  # the batches of each query, in the order of the log
    live: dict[str, Add] = field(default_factory=dict)  # the adds of the newest snapshot
    live_rows: Counter[Hashable] = field(default_factory=Counter)  # the number of times that each row is in live adds
    visible: dict[str, bytes] = field(default_factory=dict)  # files that a plain lister sees, without their filters
    # the number of times that each row is in visible files
    visible_rows: Counter[Hashable] = field(default_factory=Counter)
    old_names: set[str] = field(default_factory=set)  # the accepted `old_names`, which stay until a vacuum
    log: LogContents = field(default_factory=LogContents, repr=False, compare=False)


def check_directory(  # noqa: PLR0913 - all but one have defaults
    fs: FileSystem,
    *,
    earlier: DirectoryReport | None = None,
    recorded_by_spark: Mapping[str, Iterable[int]] | None = None,
    rows_of: RowsOf = bytes.splitlines,
    direct: bool = False,
    damaged: Collection[str] = (),
    foreign: Collection[str] = (),
    old_names: Collection[str] = (),
) -> DirectoryReport:
    """Check I1 to I9, and return the content of the directory. Reads every file; changes nothing.

    Args:
        fs: rooted at the directory.
        earlier: an earlier report: its records must be unchanged, and its snapshot must have the same rows.
        recorded_by_spark: by query id, the batches that Spark has recorded as committed.
        rows_of: splits a file's content, without its filters, into rows; the default suits formats of one row per line.
        direct: files are written under their final names, so I9 does not hold: files without a record are ignored.
        damaged: ids of adds that another program changed or deleted; their content and rows are ignored.
        foreign: paths of files of other programs; removed parts with one of these paths are ignored.
        old_names: paths that a power cut left beside the new names of the files; if a part was known as published,
            its staged path may be one of them. After a recovery, pass only the `old_names` of the report before it.

    Raises:
        InvariantViolation: names the invariant and the violation.
    """
    log = read_log(fs)
    report = DirectoryReport(records=log.texts, log_start=log.start, log=log)
    for version, content in (earlier.records if earlier else {}).items():
        same = log.texts.get(version) == content or version < log.start
        require(same, "I1", f"version {version} changed, or is gone")
    _check_authors(log, report, recorded_by_spark or {})
    for version, adds in log.snapshots.items():
        _check_segments(version, adds)
    for source, records in _list_published(fs, log):
        report.old_names |= _check_published(fs, records, source, foreign, old_names)
    report.live = log.snapshots[max(log.snapshots)]
    unread = set(damaged)
    ignored_paths: set[str | None] = set(foreign)
    for add in log.adds():
        if add.id in damaged:
            ignored_paths.add(add.final_path)
        elif add.final_path in foreign and add.id not in report.live:
            unread.add(add.id)
    rows: dict[str, Counter[Hashable]] = {}
    for add, content in _check_contents(fs, log, unread):
        rows[add.id] = Counter(_rows_of(add, content, rows_of))
    _check_rows(log, rows, earlier)
    report.live_rows = _sum_of(rows, report.live.keys() - set(damaged))
    _check_visible(fs, log, report, ignored_paths, direct=direct)
    for content in report.visible.values():
        report.visible_rows.update(rows_of(content))
    return report


def list_plainly(fs: FileSystem, directory: str = "") -> Iterator[str]:
    """Yield the files that Spark, Hive, pandas and pyarrow see: they ignore names that begin with `_` or `.`."""
    for child in list_or_empty(fs, directory):
        if child.path.rsplit("/", 1)[-1][0] in "_.":
            continue
        if child.is_directory:
            yield from list_plainly(fs, child.path)
        else:
            yield child.path


def _check_authors(log: LogContents, report: DirectoryReport, recorded_by_spark: Mapping[str, Iterable[int]]) -> None:
    transactions: dict[str, int] = {}
    for record in log.records:
        author = record.author
        report.authors.append(author)
        if isinstance(author, StreamAuthor):
            batches = report.committed.setdefault(author.query_id, [])
            require(author.batch_id not in batches, "I2", "version {} repeats {}", record.version, author)
            start = record.lineage_start
            if start is not None:
                expected = start
            elif batches:
                expected = batches[-1] + 1
            else:
                expected = None
            # If older records are not kept, the previous batch of the query is unknown.
            follows = author.batch_id == expected or (expected is None and log.start > 0)
            require(follows, "I4", "{} follows {} with start {}", author, batches[-1:], start)
            batches.append(author.batch_id)
        elif isinstance(author, BatchWriteAuthor) and author.transaction is not None:
            last = transactions.get(author.transaction.app_id, -1)
            require(author.transaction.version > last, "I2", f"{author} follows version {last}")
            transactions[author.transaction.app_id] = author.transaction.version
    for query_id, batches_of_spark in recorded_by_spark.items():
        committed = report.committed.get(query_id, [])
        oldest = log.oldest_batch(query_id)
        missing = []
        for batch in sorted(set(batches_of_spark) - set(committed)):
            if batch >= oldest:
                missing.append(batch)
        require(not missing, "I3", f"batches {missing} of {query_id} are in no record")


def _check_segments(version: int, adds: Mapping[str, Add]) -> None:
    segments = sorted(segments_in(adds), key=attrgetter("path", "offset", "length"))
    for segment, following in itertools.pairwise(segments):
        apart = segment.path != following.path or segment.offset + segment.length <= following.offset
        require(apart, "I6", f"at version {version} segments of {segment.path!r} overlap at {following.offset}")


def _list_published(fs: FileSystem, log: LogContents) -> Iterator[tuple[str, list[Record]]]:
    """Yield each file that says what is published, with the records whose files are published by it.

    A checkpoint lists each record with a part that is not published. A record gives the version up to which all files
    are published, and so does the hint, if its record exists.
    """
    for name, checkpoint in log.checkpoints.items():
        records = [record for record in log.records_upto(name.version) if record.version not in checkpoint.unpublished]
        yield layout.log_checkpoint_path(name), records
    hint = read_published(fs)
    sources: dict[int, str] = {}
    for record in log.records:
        if record.published is not None:
            sources[record.published] = layout.record_path(record.version)
        if hint is not None and (record.version, record.nonce) == (hint.version, hint.nonce):
            yield layout.PUBLISHED_HINT, list(log.records_upto(hint.version))
    if sources:
        published = max(sources)
        yield sources[published], list(log.records_upto(published))


def _check_published(
    fs: FileSystem, records: Iterable[Record], source: str, foreign: Collection[str], old_names: Collection[str]
) -> set[str]:
    """Check that no file of these records remains at the place before its publication; return the `old_names` there."""
    accepted = set()
    for record in records:
        remaining = []
        for add in (*record.adds, *record.dead_letters):
            if add.kind != "part" or add.path == add.final_path or not fs.exists(add.path):
                continue
            # The staged path of a restored part is in the directory of retired parts, which is synced.
            if add.path in old_names and layout.is_staged(add.path):
                accepted.add(add.path)
            else:
                remaining.append(add.path)
        for remove in record.removes:
            if remove.final_path and fs.exists(remove.final_path):
                remaining.append(remove.final_path)
        remaining = [path for path in remaining if path not in foreign]
        require(
            not remaining, "I7", f"{source} says that version {record.version} is published, but {remaining} are left"
        )
    return accepted


def _rows_of(add: Add, content: bytes, rows_of: RowsOf) -> Iterable[Hashable]:
    """Return the rows of an add, without the `skip_rows` rows at the start of a segment that another part contains."""
    return itertools.islice(rows_of(content), add.skip_rows, None)


def _decode_content(fs: FileSystem, add: Add, content: bytes) -> bytes:
    if not add.filters:
        return content
    is_letters = (add.final_path or "").startswith(f"{layout.DEAD_LETTERS}/")
    if is_letters:
        identity = identity_of_letters(fs, add.path)
    else:
        identity = layout.storage_identity(add.kind, add.path, add.offset)
    return decode_piece(content, Chain.for_reading(add.filters, keys_of(fs)), identity, add.path)


def _check_contents(fs: FileSystem, log: LogContents, damaged: Collection[str]) -> list[tuple[Add, bytes]]:
    """Return each add and dead letter with its content, without missing ones that can have been deleted."""
    letters: list[Add] = []
    deletable: set[str] = set()
    vacuumed_to = log.vacuumed_to
    for record in log.records:
        letters += record.dead_letters
        deletable.update(ids_of(record.dead_letters))
        if record.version <= vacuumed_to:
            deletable.update(ids_of(record.removes))
    # Restores move files, so the newest record that restored an add contains its path.
    log_adds = log.adds()
    newest: dict[str, Add] = {}
    for add in sorted(log_adds, key=_restored_version):
        newest[layout.original_id(add.id)] = add
    contents = []
    for add in (*log_adds, *letters):
        # Dead letters are not restored.
        moved = newest.get(layout.original_id(add.id), add)
        if add.id in damaged or moved.id in damaged:
            continue
        plain = _content_of(fs, moved, may_be_gone=add.id in deletable)
        if plain is not None:
            contents.append((add, plain))
    return contents


def _restored_version(add: Add) -> int:
    return restored_version(add.id)


def _content_of(fs: FileSystem, add: Add, *, may_be_gone: bool) -> bytes | None:
    """Return the content of an add, without its filters; None if it is missing and `may_be_gone`."""
    try:
        whole = open_add(add, fs.read)
    except CorruptData as error:
        if may_be_gone:
            return None
        raise InvariantViolation("I5", str(error)) from error
    content = whole
    if add.kind == "segment":
        content = whole[add.offset :][: add.length]
    require(len(content) == add.length, "I5", "{} has {} bytes", add, len(content))
    require(matches(content, add.checksum), "I5", "{} has other bytes than were recorded", add)
    try:
        plain = _decode_content(fs, add, content)
    except CorruptData as error:
        raise InvariantViolation("I5", str(error)) from error
    require(len(plain) == add.logical_length, "I5", "{} holds {} bytes", add, len(plain))
    return plain


def rows_of_add(fs: FileSystem, add: Add, rows_of: RowsOf = bytes.splitlines) -> list[Hashable]:
    """Return the rows of an add at its current path; raises I5 if its content differs from its record."""
    content = _content_of(fs, add, may_be_gone=False)
    assert content is not None, add
    return list(_rows_of(add, content, rows_of))


def _check_rows(log: LogContents, rows: Mapping[str, Counter[Hashable]], earlier: DirectoryReport | None) -> None:
    for record in log.records:
        author = record.author
        removed, added = ids_of(record.removes), ids_of(record.adds)
        # Rows of adds that a vacuum deleted, or another program damaged, cannot be counted.
        if record.restored is not None:
            _check_restored(log, rows, record)
        elif isinstance(author, MaintenanceAuthor) and removed and rows.keys() >= {*removed, *added}:
            before, now = _sum_of(rows, removed), _sum_of(rows, added)
            is_right = now <= before and (before - now).total() == record.rows_removed
            require(is_right, "I8", f"version {record.version}, {author.operation}, changes other rows than it says")
    if earlier is None:
        return
    then = max(earlier.records, default=-1)
    if then in log.snapshots and rows.keys() >= earlier.live.keys() | log.snapshots[then].keys():
        same = _sum_of(rows, log.snapshots[then]) == earlier.live_rows
        require(same, "I8", f"the rows of version {then} are not what they were")


def _check_restored(log: LogContents, rows: Mapping[str, Counter[Hashable]], record: Record) -> None:
    then, now = log.snapshots.get(record.restored or 0), log.snapshots[record.version]
    if then is not None and rows.keys() >= then.keys() | now.keys():
        same = _sum_of(rows, then) == _sum_of(rows, now)
        require(
            same, "I8", f"version {record.version} has other rows than version {record.restored}, which it restores"
        )


def _check_visible(
    fs: FileSystem, log: LogContents, report: DirectoryReport, ignored_paths: Collection[str | None], *, direct: bool
) -> None:
    adds_by_path: dict[str, Add] = {}
    endings: set[str] = set()
    for add in log.adds():
        path = add.final_path
        if path is None:
            continue
        adds_by_path[path] = add
        if "." in path:
            endings.add("." + path.rsplit(".", 1)[-1])
    for path in list_plainly(fs):
        if path in ignored_paths or (direct and path not in adds_by_path):
            continue
        # The file is complete: `_check_contents` reads a part at its final name first, and compares it with its record.
        require(path in adds_by_path, "I9", f"{path} is visible and in no record")
        report.visible[path] = _decode_content(fs, adds_by_path[path], fs.read(path))
    _check_replaced(log.records, report)
    if endings:
        _check_hidden(fs, tuple(endings))


def _check_hidden(fs: FileSystem, endings: tuple[str, ...]) -> None:
    """Check that no file of ftfile has the ending of a part."""
    for path in walk(fs, layout.META):
        require(not path.endswith(endings), "I9", f"readers that find data by its ending take {path} for a part")


def _check_replaced(records: Sequence[Record], report: DirectoryReport) -> None:
    """Check that if a removed part is visible, neither its replacements nor their replacements are visible."""
    replaced_by: dict[str, Record] = {}
    for record in records:
        replaced_by.update(dict.fromkeys(ids_of(record.removes), record))
    for record in records:
        for remove in record.removes:
            if remove.final_path not in report.visible:
                continue
            heirs = _heirs(record, remove.final_path)
            for add in heirs:
                shown = add.final_path in report.visible
                require(not shown, "I9", f"{remove.final_path} and what replaced it, {add.final_path}, are visible")
                heirs += _heirs(replaced_by[add.id], remove.final_path) if add.id in replaced_by else ()


def _heirs(record: Record, path: str | None) -> list[Add]:
    """Return the adds that replace the part of a path; if the record replaces partitions, only in its directory."""
    # After a power cut, some partitions can be old and others new, until the next commit publishes the record.
    in_partitions = record.replaces is not None or record.restored is not None
    if not in_partitions:
        return list(record.adds)
    directory = layout.parent(path or "")
    heirs = []
    for add in record.adds:
        if layout.parent(add.final_path or "") == directory:
            heirs.append(add)
    return heirs


def _sum_of(rows: Mapping[str, Counter[Hashable]], add_ids: Iterable[str]) -> Counter[Hashable]:
    total: Counter[Hashable] = Counter()
    for add_id in add_ids:
        total.update(rows[add_id])
    return total
