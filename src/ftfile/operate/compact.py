"""Compaction: the small parts of each directory become few of a good size, in rounds; rows stay the same."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from ftfile.core.context import SYSTEM, is_away
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.core.logs import get_logger
from ftfile.core.progress import Tracker
from ftfile.log.checks import Accepted, accept_rewrites
from ftfile.log.directory import check_is_files
from ftfile.log.format import layout
from ftfile.log.format.model import Body
from ftfile.log.opening import maintaining, written_settings
from ftfile.log.places import delete_file, list_or_empty
from ftfile.log.protocol import Committed, catch_up, commit
from ftfile.log.read.snapshot import snapshot_at, take_snapshot
from ftfile.operate.drop import select, settled_for
from ftfile.operate.merger import Merged, Merging, merges_of
from ftfile.write.messages import JobIdentity
from ftfile.write.options import durability_of
from ftfile.write.workers import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    import pyarrow.compute as pc

    from ftfile.core.context import Clock, Context
    from ftfile.core.progress import OnProgress
    from ftfile.log.checks import Rewrite
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, MaintenanceAuthor
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from ftfile.write.workers import Piece, Workers


def rounds_of(pieces: Sequence[Piece], commit_every: int | None) -> Iterator[Sequence[Piece]]:
    """Yield the pieces for each record, all at once for None; ConfigError if `commit_every` is below 1."""
    if commit_every is not None and commit_every < 1:
        raise ConfigError(f"commit_every={commit_every}: it takes a number of new files of 1 or more")
    step = commit_every or max(len(pieces), 1)
    return (pieces[start : start + step] for start in range(0, len(pieces), step))


@contextlib.contextmanager
def removing_unrecorded(fs: FileSystem, job_id: str) -> Iterator[set[str]]:
    """Give a set for paths of files that a record may name; if the block fails, delete the others that the job staged.

    What cannot be deleted, or is written later by a task that goes on elsewhere, is left to vacuum.
    """
    named: set[str] = set()
    try:
        yield named
    except BaseException as error:  # also when the user interrupts it; it is raised again
        if not (isinstance(error, Exception) and is_away(error)):
            with contextlib.suppress(FtfileError):
                for info in list_or_empty(fs, layout.staged_directory(job_id, JobIdentity.batch_number)):
                    if info.path not in named:
                        delete_file(fs, info.path)
        raise


TARGET_BYTES = 128 << 20
# A part of this share of the target is left as it is: merging it again and again would only write.
LARGE_ENOUGH = 0.75

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The result of a compaction."""

    version: int | None = None  # of its last record; None when nothing was merged, and in a dry run
    parts_replaced: int = 0
    parts_written: int = 0
    rows: int = 0
    bytes_replaced: int = 0  # of the merged parts, on storage
    bytes_written: int = 0  # of the parts made of them
    parts_lost: int = 0  # others replaced or dropped them meanwhile; they were not touched
    records: int = 0  # that it created
    dry_run: bool = False  # nothing was merged; bytes that parts would have are not known

    def plus(self, other: CompactReport) -> CompactReport:
        """Return the result of both, the other one after this."""
        sums = {column.name: getattr(self, column.name) + getattr(other, column.name) for column in fields(self)[1:-1]}
        return CompactReport(self.version if other.version is None else other.version, **sums)


def compact(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression | None = None,
    *,
    dry_run: bool = False,
    target_bytes: int = TARGET_BYTES,
    commit_every: int | None = None,
    threads: int | None = None,
    progress: OnProgress | None = None,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    at_least_version: int | None = None,
    context: Context = SYSTEM,
) -> CompactReport:
    """Merge small finished parts of one directory and encoding into parts of about `target_bytes`; return how many.

    A second compaction with nothing new to merge creates no record. Safe beside running queries and readers. Replaced
    parts are hidden at once, and readers of older versions read them until a vacuum. The rows of a directory keep their
    order where all of its parts are small. It may be interrupted or killed at any point: what is recorded stays.

    Args:
        path: of the directory.
        where: chooses directories by a condition on partition columns, as in `ftfile.drop`; by default all.
        dry_run: return what would be merged now, and write nothing.
        target_bytes: parts of three quarters of it on storage or more stay.
        commit_every: new parts after which a record is created; by default there is one record, at the end.
        threads: that merge, each with memory for some row groups; by default one for each core.
        progress: called in this thread with a `Progress` after each merge; what it raises ends the compaction.
        key_provider: see `ftfile.open`.
        storage: likewise.
        at_least_version: likewise.
        context: likewise.

    Raises:
        ConfigError: the path is no ftfile directory, or an argument is wrong.
        FtfileError: some parts could not be merged, such as one that is not what was recorded (`CorruptData`). They
            are as they were, and all others were merged.
        StorageError: the store failed; nothing was changed since the last record.
        CommitError: as for a batch write; `NotPublished` means that the compaction is recorded, and published later.
    """
    with maintaining("compact", path, key_provider, storage, context, at_least_version) as (log, author):
        check_is_files(log.refresh(), os.fspath(path), "merge its runs with ftfile.kv.compact")
        if dry_run:
            snapshot = take_snapshot(log)
            return _planned(_plan(log.refresh(), snapshot, where, target_bytes, log.clock))
        workers = Threads.of(author.job_id, threads, context)
        return compact_files(
            log, author, workers, where=where, target_bytes=target_bytes, commit_every=commit_every, progress=progress
        )


def compact_files(  # noqa: PLR0913 - all by name
    log: CommitLog,
    author: MaintenanceAuthor,
    workers: Workers,
    *,
    where: Mapping[str, object] | str | pc.Expression | None,
    target_bytes: int,
    commit_every: int | None,
    progress: OnProgress | None,
) -> CompactReport:
    """Merge the parts of a directory of files by these workers; see `compact`."""
    head, problems = catch_up(log, author)
    snapshot = snapshot_at(log, head)
    stuck = {add.id for problem in problems for add in problem.adds}
    plan = _plan(head, snapshot, where, target_bytes, log.clock, stuck)
    merges = merges_of(snapshot.adds.values(), plan)
    encodings = {merge.inputs[0].encoding for merge in merges}
    work = Merging(snapshot.version, {key: snapshot.definitions[key] for key in encodings})
    tracker = Tracker("compact", log.clock, progress, sum(map(len, plan)), sum(map(work.size_of, merges)))
    written = dict(written_settings(head))
    report, errors = CompactReport(), list[FtfileError]()
    with removing_unrecorded(log.fs, author.job_id) as named:
        for some in rounds_of(merges, commit_every):
            outputs: dict[int, Merged] = {}
            for number, merged in workers.do(work, some, log.fs, written):
                outputs[number] = merged
                tracker.add(len(some[number].inputs), work.size_of(some[number]))
            rewrites = [rewrite for _, merged in sorted(outputs.items()) for rewrite in merged.rewrites]
            errors += [error for _, merged in sorted(outputs.items()) for error in merged.errors]
            named |= {add.path for rewrite in rewrites for add in rewrite.adds}
            done, accepted = _commit(log, author, rewrites)
            errors += [refused.error for refused in accepted.refused]
            report = report.plus(_report(done, accepted, rewrites))
    _log.info("compacted: %s", report)
    if errors:
        raise errors[0]
    return report


def _plan(
    head: LogState,
    snapshot: Snapshot,
    where: Mapping[str, object] | str | pc.Expression | None,
    target_bytes: int,
    clock: Clock,
    stuck: Container[str] = (),
) -> list[list[Add]]:
    """Return the parts to be merged, without those that are stuck, by id."""
    if target_bytes < 1:
        raise ConfigError(f"target_bytes={target_bytes}: it takes a number of bytes of 1 or more")
    chosen = list(snapshot.adds.values())
    if where is not None:
        chosen = select(head, snapshot, settled_for(head, where, clock))
    return plan_merges((add for add in chosen if add.id not in stuck), target_bytes)


def _planned(plan: Sequence[Sequence[Add]]) -> CompactReport:
    """Return the report of a dry run."""
    inputs = [add for merge in plan for add in merge]
    return CompactReport(
        parts_replaced=len(inputs),
        parts_written=len(plan),
        rows=sum(add.rows for add in inputs),
        bytes_replaced=sum(add.length for add in inputs),
        dry_run=True,
    )


def plan_merges(adds: Iterable[Add], target_bytes: int) -> list[list[Add]]:
    """Return the parts to be merged, by the part they become: two or more small ones in order, of about the target."""
    merges: list[list[Add]] = []
    growing: dict[tuple[str, str], tuple[list[Add], int]] = {}
    for add in adds:
        if add.kind != "part" or add.length >= LARGE_ENOUGH * target_bytes:
            continue
        key = (add.directory_key, add.encoding)
        merge, size_bytes = growing.get(key, ([], target_bytes))
        if size_bytes + add.length > target_bytes:
            merge, size_bytes = [], 0
            merges.append(merge)
        merge.append(add)
        growing[key] = merge, size_bytes + add.length
    return [merge for merge in merges if len(merge) > 1]


def _commit(
    log: CommitLog, author: MaintenanceAuthor, rewrites: Sequence[Rewrite]
) -> tuple[Committed | None, Accepted]:
    """Record what was merged, without what others have replaced or dropped meanwhile."""
    accepted = Accepted()

    def prepare(head: LogState, snapshot: Callable[[], Snapshot]) -> Body | None:
        nonlocal accepted
        accepted = accept_rewrites(log, head, _still_known(head, snapshot, rewrites))
        if not accepted.rewrites:
            return None
        durability = durability_of("auto", log.fs.capabilities)
        return Body(adds=accepted.adds, removes=accepted.removes, metrics={"durability": durability})

    done = commit(log, author, prepare) if rewrites else None
    return done, accepted


def _still_known(head: LogState, snapshot: Callable[[], Snapshot], rewrites: Sequence[Rewrite]) -> Sequence[Rewrite]:
    """Return rewrites of live parts, of a version from which the head can tell that they are live.

    It remembers some thousands of removed parts, and records of this compaction may have removed more.
    """
    if all(rewrite.read_version >= head.removed_since - 1 for rewrite in rewrites):
        return rewrites
    live = snapshot().adds
    return [
        replace(rewrite, read_version=head.version)
        for rewrite in rewrites
        if all(add.id in live for add in rewrite.inputs)
    ]


def _report(done: Committed | None, accepted: Accepted, rewrites: Sequence[Rewrite]) -> CompactReport:
    refused = {refusal.rewrite.inputs[0].id for refusal in accepted.refused}
    taken = [add for rewrite in rewrites if rewrite.inputs[0].id not in refused for add in rewrite.inputs]
    if done is None or done.record is None:
        return CompactReport(parts_lost=len(taken))
    replaced = {remove.id for remove in done.record.removes}
    inputs = [add for add in taken if add.id in replaced]
    return CompactReport(
        version=done.version,
        parts_replaced=len(inputs),
        parts_written=len(done.record.adds),
        rows=sum(add.rows for add in done.record.adds),
        bytes_replaced=sum(add.length for add in inputs),
        bytes_written=sum(add.length for add in done.record.adds),
        parts_lost=len(taken) - len(inputs),
        records=1,
    )
