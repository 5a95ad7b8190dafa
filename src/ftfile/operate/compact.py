"""Compaction of a directory and of its log."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Argument, Remedy
from ftfile.log.directory import check_is_files
from ftfile.log.opening import open_with_written_settings
from ftfile.log.read.compacted_writer import write_fewest_compacted
from ftfile.operate.delete import select, settled_for
from ftfile.operate.export.after_commit import operating
from ftfile.operate.rewriter.pieces import pieces_of
from ftfile.operate.rewriter.sorted_files import SortedFiles, order_of, resolve_order
from ftfile.operate.rewriting import RewriteChoice, rewrite
from ftfile.writing.workers import Threads

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    import pyarrow.compute as pc
    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments, OperationArguments
    from ftfile.core.clock import Clock
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.operate.rewriter.pieces import RewritePiece
    from ftfile.operate.rewriter.row_order import RowOrder
    from ftfile.operate.rewriting import Live, RewriteReport
    from ftfile.storage.api import FileSystem


TARGET_BYTES = 128 << 20
# Parts above this share of the target are not merged: each compaction would rewrite them for a small gain.
LARGE_ENOUGH = 0.75


def compact(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression | None = None,
    *,
    sort_by: str | Sequence[str] | None = None,
    dry_run: bool = False,
    target_bytes: int = TARGET_BYTES,
    commit_every: int | None = None,
    threads: int | None = None,
    **access: Unpack[OperationArguments],
) -> RewriteReport:
    """Merge small parts of the same directory and encoding into parts of about `target_bytes`; return the numbers.

    If there is nothing new to merge, no record is created. Safe while queries and readers run: the replaced parts are
    hidden at once, and readers of older versions can read them until a vacuum. The rows of a directory keep their order
    if all of its parts are small. The call can be interrupted or killed at any point: recorded compactions stay.

    Args:
        path: of the directory.
        where: a condition on partition columns that selects directories, as in `ftfile.drop`; by default all.
        sort_by: column names, as a list or as a text such as "day, id". Sort the rows of parts whose values of the
            first column overlap, and of small parts, so that a read with a condition on it opens few files. Nulls are
            first, NaN is last. If nothing overlaps, nothing is done. Up to 2 GiB of a directory are sorted together; if
            more overlaps, repeat the call until it creates no record.
        dry_run: return the compactions that would run now, and write nothing.
        target_bytes: size of new parts; parts of at least three quarters of it on storage stay.
        commit_every: number of new parts after which a record is created; by default there is one record, at the end.
        threads: threads that merge, each with memory for some row groups; by default one for each core.
        **access: how the directory is opened, as in `ftfile.open`; `progress` is called in this thread with a
            `Progress` after each group of parts. An error that it raises ends the compaction.

    Raises:
        ConfigError: the path is not an ftfile directory, or an argument is wrong.
        FtfileError: some parts could not be merged, such as a part without its recorded content (`CorruptData`). These
            parts are unchanged, and all others were merged.
        StorageError: the storage failed; nothing was changed since the last record.
        CommitError: as for a batch write; `NotPublished` means that the compaction is recorded, and published later.
    """
    with operating("compact", path, Access.of(access)) as (log, author):
        check_is_files(log.refresh(), os.fspath(path), Advice("merge its runs: ", Remedy("kv.compact")))
        workers = Threads.of(author.operation_id, threads, log.fs.context)
        choice = choice_of(log, where, sort_by=sort_by, target_bytes=target_bytes, commit_every=commit_every)
        return rewrite(log, author, workers, choice, dry_run=dry_run, progress=access.get("progress"))


def choice_of(
    log: CommitLog,
    where: Mapping[str, object] | str | pc.Expression | None,
    *,
    sort_by: str | Sequence[str] | None,
    target_bytes: int,
    commit_every: int | None,
) -> RewriteChoice:
    """Return the choice of a compaction; a ConfigError for a wrong argument."""
    if target_bytes < 1:
        raise ConfigError(Advice(Argument("target_bytes", target_bytes), ": it must be a number of bytes, 1 or more"))
    order = None
    if sort_by is not None:
        order = order_of(sort_by, target_bytes)
    return CompactionChoice(
        where=where, target_bytes=target_bytes, clock=log.clock, fs=log.fs, order=order, commit_every=commit_every
    )


@dataclass(frozen=True, kw_only=True)
class CompactionChoice(RewriteChoice):
    """The choice of a compaction: parts of one directory that are small, or in an order the parts that overlap."""

    where: Mapping[str, object] | str | pc.Expression | None  # selects directories; None for all
    target_bytes: int
    clock: Clock
    fs: FileSystem
    order: RowOrder | None  # None to merge small parts only
    commit_every: int | None

    def pieces(self, head: LogState, live: Live, excluded_ids: Container[str]) -> list[RewritePiece]:
        """Return the groups of parts to merge or sort."""
        snapshot = live()
        adds = list(snapshot.adds.values())
        if self.where is None:
            chosen = adds
        else:
            chosen = select(head, snapshot, settled_for(head, self.where, self.clock))
        available = []
        for add in chosen:
            if add.id not in excluded_ids:
                available.append(add)
        if self.order is None:
            return pieces_of(adds, groups_to_merge(available, self.target_bytes))
        order = resolve_order(self.order, snapshot)
        return pieces_of(adds, SortedFiles(snapshot, self.fs, order).groups(available), order=order)


def groups_to_merge(adds: Iterable[Add], target_bytes: int) -> list[list[Add]]:
    """Return the groups of parts to merge: two or more consecutive small parts with about the target size each."""
    groups: list[list[Add]] = []
    growing: dict[tuple[str, str], tuple[list[Add], int]] = {}
    for add in adds:
        if add.kind != "part" or add.length >= LARGE_ENOUGH * target_bytes:
            continue
        key = (add.directory_key, add.encoding)
        group, size_bytes = growing.get(key, ([], target_bytes))
        if size_bytes + add.length > target_bytes:
            group, size_bytes = [], 0
            groups.append(group)
        group.append(add)
        growing[key] = group, size_bytes + add.length
    return [group for group in groups if len(group) > 1]


def compact_log(path: str | os.PathLike[str], **access: Unpack[AccessArguments]) -> int:
    """Write the fewest compacted logs for all records, so readers open few files; return the last covered version.

    Missing or damaged files are rewritten from records. Safe while queries run, and idempotent. Commits also merge
    small compacted logs. For `access` see `ftfile.open`.

    Raises:
        ConfigError: the path is not an ftfile directory.
        CorruptData: a compacted log is damaged, and its records are no longer kept.
    """
    log = open_with_written_settings(path, Access.of(access))
    head = log.refresh(durable=True)
    write_fewest_compacted(log, head)
    return head.version
