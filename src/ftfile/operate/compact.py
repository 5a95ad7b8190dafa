"""Compaction: small files of each directory become few of a good size; and one range is made of all records."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError
from ftfile.log.directory import check_is_files
from ftfile.log.opening import open_with_written_settings
from ftfile.log.read.range_writer import merge_all
from ftfile.operate.delete import select, settled_for
from ftfile.operate.export.after_commit import operating
from ftfile.operate.rewriting import Choice, pieces_of, rewrite
from ftfile.write.workers import Threads

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    import pyarrow.compute as pc
    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments, OperationArguments
    from ftfile.core.context import Clock
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.operate.rewriting import Live, Piece, RewriteReport


TARGET_BYTES = 128 << 20
# A part of this share of the target is left as it is: merging it again and again would only write.
LARGE_ENOUGH = 0.75


def compact(
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression | None = None,
    *,
    dry_run: bool = False,
    target_bytes: int = TARGET_BYTES,
    commit_every: int | None = None,
    threads: int | None = None,
    **access: Unpack[OperationArguments],
) -> RewriteReport:
    """Merge small finished parts of one directory and encoding into parts of about `target_bytes`; return how many.

    A second compaction with nothing new to merge creates no record. Safe beside queries and readers: those of older
    versions read replaced parts, which are hidden at once, until a vacuum. The rows of a directory keep their order
    where all of its parts are small. It may be interrupted or killed at any point: what is recorded stays.

    Args:
        path: of the directory.
        where: chooses directories by a condition on partition columns, as in `ftfile.drop`; by default all.
        dry_run: return what would be merged now, and write nothing.
        target_bytes: parts of three quarters of it on storage or more stay.
        commit_every: new parts after which a record is created; by default there is one record, at the end.
        threads: that merge, each with memory for some row groups; by default one for each core.
        **access: how the directory is opened, as `ftfile.open` does; `progress` is called in this thread with a
            `Progress` after each merge; what it raises ends the compaction.

    Raises:
        ConfigError: the path is no ftfile directory, or an argument is wrong.
        FtfileError: some parts could not be merged, such as one that is not what was recorded (`CorruptData`). They
            are as they were, and all others were merged.
        StorageError: the store failed; nothing was changed since the last record.
        CommitError: as for a batch write; `NotPublished`: the compaction is recorded, and published later.
    """
    with operating("compact", path, Access.of(access)) as (log, author):
        check_is_files(log.refresh(), os.fspath(path), "merge its runs with ftfile.kv.compact")
        workers = Threads.of(author.job_id, threads, log.fs.context)
        choice = SmallFiles(where, target_bytes, log.clock, commit_every)
        return rewrite(log, author, workers, choice, dry_run=dry_run, progress=access.get("progress"))


@dataclass(frozen=True)
class SmallFiles(Choice):
    """The choice of a compaction: small files of one directory become one of about `target_bytes`."""

    where: Mapping[str, object] | str | pc.Expression | None  # chooses directories; None for all
    target_bytes: int
    clock: Clock
    commit_every: int | None

    def __post_init__(self) -> None:
        """Raise a ConfigError for a target that cannot be."""
        if self.target_bytes < 1:
            raise ConfigError(f"target_bytes={self.target_bytes}: it must be a number of bytes, 1 or more")

    def pieces(self, head: LogState, live: Live, apart: Container[str]) -> list[Piece]:
        """Return the merges."""
        snapshot = live()
        adds = list(snapshot.adds.values())
        chosen = adds if self.where is None else select(head, snapshot, settled_for(head, self.where, self.clock))
        merges = plan_merges((add for add in chosen if add.id not in apart), self.target_bytes)
        return pieces_of(adds, merges, lambda _: None)


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


def merge_ranges(path: str | os.PathLike[str], **access: Unpack[AccessArguments]) -> int:
    """Write the fewest ranges for all records, so that readers open few files; return the last version they cover.

    Ranges that are missing or damaged are written again from records. Safe while queries run, and idempotent. Commits
    merge small ranges themselves. For `access` see `ftfile.open`.

    Raises:
        ConfigError: the path is no ftfile directory.
        CorruptData: a range is damaged, and the records that it stood for are not kept.
    """
    log = open_with_written_settings(path, Access.of(access))
    head = log.refresh(durable=True)
    merge_all(log, head)
    return head.version
