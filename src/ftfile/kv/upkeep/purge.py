"""Purges, which delete all rows in a key range with one record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ftfile.core.arguments import Access
from ftfile.core.logs import get_logger
from ftfile.kv.driver import how_written, new_stage, open_store_log
from ftfile.kv.planning.runs import adds_of, open_metadata, place_adds, run_of, seal_metadata
from ftfile.kv.user_keys import UserKeys, require_range
from ftfile.log.format.model import Body, Origin
from ftfile.log.opening import maintaining
from ftfile.log.protocol import commit
from ftfile.writing.messages import segment_of
from ftfile.writing.options import durability_of

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments
    from ftfile.kv.driver import HowWritten
    from ftfile.kv.key_columns import KeyRange
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, MaintenanceAuthor
    from ftfile.log.state import LogState
    from ftfile.writing.messages import StagedSegment


_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The result of a purge.

    Attributes:
        version: of its record; None if no run has a key in the range.
        buckets: number of buckets with runs that have a key in the range.
    """

    version: int | None = None
    buckets: int = 0


def purge(
    path: str | os.PathLike[str],
    start: Any = None,  # noqa: ANN401 - a key
    end: Any = None,  # noqa: ANN401
    prefix: Any = (),  # noqa: ANN401
    *,
    everything: bool = False,
    **access: Unpack[AccessArguments],
) -> PurgeReport:
    """Delete all rows of a store whose keys are in `[start, end)` with one record, independent of their number.

    The version before the record has all of these rows, the version of the record has none; later jobs drop them from
    files. Rows written later stay; later merges start without an old value. Older versions can be read until a vacuum.
    Repeating a purge is harmless.

    Args:
        path: an absolute local path or a URL.
        start: the first key, or its first values; None for the first key within `prefix`, if given.
        end: the exclusive end, a key or its first values; None for no end.
        prefix: a value of the first key column, or a tuple of values of the first ones; `start` and `end` then contain
            values of the following columns.
        everything: delete all keys; not with a start, an end or a prefix.
        **access: how the directory is opened, see `ftfile.open`.

    Raises:
        ConfigError: the path is not a store, its keys are unknown, or the range is empty, does not match the key
            columns, or is missing and `everything` is not set.
        TypeError: the type of a value does not match its key column, or `start`, `end` or `prefix` is a list.
        CommitError: as for a batch write.
    """
    require_range((start, end, prefix), everything=everything)
    with maintaining("purge", path, Access.of(access), open_store_log) as (log, author):
        staged = _PurgeRuns(log, author, (start, end, prefix))
        done = commit(log, author, staged.prepare)
        if done.record is None:
            return PurgeReport()
        report = PurgeReport(done.version, len(done.record.adds))
        _log.info("purged: %s", report)
        return report


class _PurgeRuns:
    """Runs without rows, one for each bucket with rows to delete; written when the head shows that they are needed."""

    def __init__(self, log: CommitLog, author: MaintenanceAuthor, keys: tuple[Any, Any, Any]) -> None:
        self._log = log
        self._author = author
        self._keys = keys  # start, end, prefix
        self._written: dict[str, StagedSegment] = {}

    def prepare(self, head: LogState, _: object) -> Body | None:
        """Return the record of the purge; None if no run has a key in the range."""
        log = self._log
        how = how_written(head, log.fs)
        key_range = UserKeys(how.definition).range_of(*self._keys)
        buckets = set()
        for run in map(run_of, open_metadata(log.fs, head.segments.values(), how.definition.key_types)):
            if run.has_rows_in([key_range]):
                buckets.add(run.add.directory_key)
        if not buckets:
            return None
        missing = sorted(buckets - self._written.keys())
        if missing:
            written = _write_purges(log, self._author, how, [(bucket, [key_range]) for bucket in missing])
            self._written |= zip(missing, written, strict=True)
        origin = Origin(self._author.operation_id, 0, 0)
        adds = []
        for bucket in sorted(buckets):
            adds.append(segment_of(self._written[bucket], how.encoding, origin, {}))
        return Body(
            adds=seal_metadata(log.fs, place_adds(adds, head.version + 1, log.clock.now_ms())),
            metrics={"durability": durability_of(how.storage.durability, log.fs.capabilities)},
        )


def keep_purges(log: CommitLog, author: MaintenanceAuthor, lost: Sequence[Add]) -> list[tuple[Add, Add]]:
    """Write the purges of lost runs, from the log, as runs with the same positions; return pairs (lost, new)."""
    how = how_written(log.refresh(), log.fs)
    runs = []
    purges = []
    for run in map(run_of, open_metadata(log.fs, lost, how.definition.key_types)):
        if run.metadata.purges:
            runs.append(run)
            purges.append((run.add.directory_key, run.metadata.purges))
    if not runs:
        return []
    written = _write_purges(log, author, how, purges)
    origin = Origin(author.operation_id, 0, 0)
    adds = []
    for segment, run in zip(written, runs, strict=True):
        metadata = replace(run.metadata, keys=None, ops=0, deletes=0, plain_bytes=0)
        adds.append(segment_of(segment, how.encoding, origin, metadata.to_json()))
    return [*zip(adds_of(runs), seal_metadata(log.fs, adds), strict=True)]


def _write_purges(
    log: CommitLog, author: MaintenanceAuthor, how: HowWritten, purges: Sequence[tuple[str, Sequence[KeyRange]]]
) -> list[StagedSegment]:
    """Write a run without rows for each bucket and its purges."""
    spool = how.spool(new_stage(log, author, how.storage.durability))
    return spool.write_all((bucket, (), ranges) for bucket, ranges in purges)
