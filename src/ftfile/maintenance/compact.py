"""Compaction: the small parts of each bucket become few of a good size; rows stay the same."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.kind_of_directory import refuse_store
from ftfile.attempt.stage import durability_of
from ftfile.commit.format.model import Body
from ftfile.commit.opening import maintaining
from ftfile.commit.protocol import Committed, catch_up, commit
from ftfile.commit.read.snapshot import snapshot_at
from ftfile.commit.rewrites import Accepted, accept_rewrites
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.maintenance.merger import Merger
from ftfile.maintenance.partition_filter import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ftfile.commit.format.model import Add, MaintenanceAuthor
    from ftfile.commit.log.log import CommitLog
    from ftfile.commit.log.state import LogState
    from ftfile.commit.rewrites import Rewrite
    from ftfile.core.context import Context

__all__ = ("TARGET_BYTES", "CompactReport", "compact", "plan_merges")

TARGET_BYTES = 128 << 20
# A part of this share of the target is left as it is: merging it again and again would only write.
LARGE_ENOUGH = 0.75

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The result of a compaction."""

    version: int | None = None  # of its record; None when nothing was merged
    parts_replaced: int = 0
    parts_written: int = 0
    rows: int = 0
    bytes_replaced: int = 0  # of the merged parts, on storage
    bytes_written: int = 0  # of the parts made of them
    parts_lost: int = 0  # others replaced or dropped them meanwhile; they were not touched


def compact(
    path: str | os.PathLike[str],
    where: Mapping[str, object] | None = None,
    *,
    target_bytes: int = TARGET_BYTES,
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> CompactReport:
    """Merge small finished parts of the same bucket and encoding into parts of about `target_bytes`; return how many.

    A second compaction with nothing new to merge creates no record. Safe beside running queries and readers. Replaced
    parts are hidden at once, and readers of older versions read them until a vacuum. The rows of a bucket keep their
    order where all of its parts are small.

    `where` chooses buckets by values of partition columns: `{"month": "7"}`, `{"month": [7, 8]}`; by default all.
    Parts of three quarters of `target_bytes` on storage or more stay. For the other arguments see `ftfile.open`.

    Raises:
        ConfigError: the path is no ftfile directory, or an argument is wrong.
        FtfileError: some parts could not be merged, such as one that is not what was recorded (`CorruptData`). They
            are as they were, and all others were merged.
        StorageError: the store failed; nothing was changed.
        CommitError: as for a batch write; `NotPublished` means that the compaction is recorded, and published later.
    """
    if target_bytes < 1:
        raise ConfigError(f"target_bytes={target_bytes}: it takes a number of bytes of 1 or more")
    with maintaining("compact", path, key_provider, storage, context) as (log, author):
        refuse_store(log.read_on(), os.fspath(path))
        head, problems = catch_up(log, author)
        snapshot = snapshot_at(log, head)
        chosen = list(snapshot.adds.values()) if where is None else select(head, snapshot, where)
        stuck = {add.id for problem in problems for add in problem.adds}
        plan = plan_merges((add for add in chosen if add.id not in stuck), target_bytes)
        merger = Merger(log.fs, author.job_id, snapshot)
        rewrites = merger.merge_all(plan)
        done, accepted = _commit(log, author, rewrites)
        report = _report(done, accepted, rewrites)
        _log.info("compacted: %s", report)
        error = merger.error or next((refused.error for refused in accepted.refused), None)
        if error is not None:
            raise error
        return report


def plan_merges(adds: Iterable[Add], target_bytes: int) -> list[list[Add]]:
    """Return the parts to be merged, by the part they become: two or more small ones in order, of about the target."""
    merges: list[list[Add]] = []
    growing: dict[tuple[str, str], tuple[list[Add], int]] = {}
    for add in adds:
        if add.kind != "part" or add.length >= LARGE_ENOUGH * target_bytes:
            continue
        key = (add.bucket, add.encoding)
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

    def prepare(head: LogState, _: object) -> Body | None:
        nonlocal accepted
        accepted = accept_rewrites(log, head, rewrites)
        if not accepted.rewrites:
            return None
        durability = durability_of("auto", log.fs.capabilities)
        return Body(adds=accepted.adds, removes=accepted.removes, metrics={"durability": durability})

    done = commit(log, author, prepare) if rewrites else None
    return done, accepted


def _report(done: Committed | None, accepted: Accepted, rewrites: Sequence[Rewrite]) -> CompactReport:
    refused = {each.rewrite.inputs[0].id for each in accepted.refused}
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
    )
