"""Liveness, checked from the files on storage: no step stays stuck, even if other files are damaged.

- **L1** A due segment is in a file after at most `k` more batches of its query.
- **L2** After `flush`, only the segments that its error names are open.
- **L3** A created record is published once the cause of the delay is removed, or an error names the one thing that a
person must do.
- **L4** Vacuum frees every file that is not needed within two runs.
- **L5** The number of open segments bounds the size of the writers' state.

Call each check after the step that it checks. Each check raises an `InvariantViolation` that names the broken rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ftfile.log.checkpoints import encode_checkpoint
from ftfile.log.format import layout
from ftfile.log.places import walk
from ftfile.log.read.snapshot import snapshot_at
from ftfile.testing.log_check import require
from tests.kit.rolling import due_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from tests.kit.rolling import RowFacts, Rules

__all__ = (
    "ADD_ID_CHARACTERS",
    "BATCHES_UNTIL_FILE",
    "DueWatch",
    "check_flushed",
    "check_published",
    "check_state_size",
    "check_vacuumed",
)

# `k` of L1: a job is executed in the batch after it was due, some of that batch's tasks may be missing, and a damaged
# input is tried before other jobs are planned without it.
BATCHES_UNTIL_FILE = 8

ADD_ID_CHARACTERS = 128
STATE_BYTES = 64 << 10
BYTES_PER_ENTRY = 2_000


@dataclass
class DueWatch:
    """Counts for how many batches of a query each open segment has been due, without using the product's planning."""

    facts_of: Callable[[Add], Sequence[RowFacts]]  # the rows of a segment; empty if the segment cannot be read
    limit: int = BATCHES_UNTIL_FILE  # `k`
    # by segment id, the number of batches for which it has been due
    waited: dict[str, int] = field(default_factory=dict)

    def after_batch(self, rules: Rules, segments: Iterable[Add], now_ms: int) -> None:
        """Check L1 after a batch of a query. `segments` are all its open segments that are not damaged."""
        groups: dict[tuple[str, str, str], list[tuple[Add, Sequence[RowFacts]]]] = {}
        for segment in segments:
            key = segment.directory_key, segment.encoding, repr(segment.rolling_stats.get("windowUs"))
            groups.setdefault(key, []).append((segment, self.facts_of(segment)))
        waited: dict[str, int] = {}
        for (directory, _, _), group in groups.items():
            for segment, why in due_segments(rules, group, now_ms):
                whole_id = segment.id.partition(".")[0]
                waited[whole_id] = count = self.waited.get(whole_id, 0) + 1
                found = f"{segment.id}, {segment.rows} rows in {directory!r}, is due ({why}) for {count} batches"
                require(count <= self.limit, "L1", f"{found} without becoming a file")
        self.waited = waited


def check_flushed(head: LogState, error: BaseException | None, damaged: Collection[str]) -> None:
    """Check L2 after a flush of all segments that raised `error`. `damaged` are the ids of unreadable segments."""
    for segment in head.segments.values():
        require(segment.id in damaged, "L2", f"{segment.id} of {segment.rows} rows is open after a flush")
        named = error is not None and (segment.path in str(error) or segment.id in str(error))
        require(
            named, "L2", f"the damaged {segment.path!r} is open after a flush whose error does not name it: {error!r}"
        )


def check_published(
    fs: FileSystem,
    live: Iterable[Add],
    removed: Mapping[str, Add],
    gone: Collection[str],
    old_names: Collection[str] = (),
) -> None:
    """Check L3 after every cause was removed and a commit has followed.

    Args:
        fs: rooted at the directory.
        live: adds of the head.
        removed: parts that records have removed, by their final paths.
        gone: ids of parts that another program deleted or damaged.
        old_names: see `check_directory`.
    """
    finals = set()
    for add in live:
        if add.final_path is None:
            continue
        finals.add(add.final_path)
        if add.id not in gone:
            require(fs.exists(add.final_path), "L3", f"{add.final_path!r} is committed but not published")
        if add.path not in (add.final_path, *old_names):
            require(not fs.exists(add.path), "L3", f"{add.path!r} of {add.id} is still staged")
    left = [path for path in removed if path not in finals and fs.exists(path)]
    require(not left, "L3", f"{left} are removed and still visible")


def check_vacuumed(log: CommitLog, since_version: int) -> None:
    """Check L4 after two vacuums, each run later than the retention after all other writes.

    `since_version` is the head before the second vacuum.
    """
    fs, head = log.fs, log.refresh()
    needed = {add.path for add in snapshot_at(log, head).adds.values()}
    needed |= {add.path for entry in head.unpublished.values() for add in entry.adds}
    staged = [path for path in walk(fs, layout.STAGED) if path not in needed]
    require(not staged, "L4", f"{staged} are not needed")
    retired = list(walk(fs, layout.RETIRED))
    require(not retired, "L4", f"{retired} are not needed")
    names = [layout.parse_log_name(path) for path in walk(fs, layout.LOG)]
    old = [name for name in names if name is None or name.version < head.log_start]
    require(not old, "L4", f"records before {head.log_start} exist: {old}")
    checkpoint_names = [layout.parse_checkpoint_name(path) for path in walk(fs, layout.CHECKPOINTS)]
    # A commit of the vacuum itself may have written a newer checkpoint.
    checkpoints = sorted(
        name.version for name in checkpoint_names if name is not None and name.version <= since_version
    )
    if len(checkpoints) > 1:
        kept = checkpoints[-2]
        require(head.log_start >= kept, "L4", f"records from {head.log_start} are kept, but {kept} would be enough")


def check_state_size(state: LogState, open_segments: Collection[str]) -> None:
    """Check L5 of the state at the log's head. `open_segments` are the ids of open segments by the records."""
    require(state.segments.keys() == set(open_segments), "L5", "the state has other open segments than the records")
    due = [segment.id for job in state.jobs for segment in job.inputs]
    require(len(due) == len(set(due)), "L5", f"two jobs have one segment: {sorted(due)}")
    require(state.segments.keys() >= set(due), "L5", "jobs name segments that are no longer open")
    longest = max(map(len, state.segments), default=0)
    require(longest <= ADD_ID_CHARACTERS, "L5", f"the id of a segment has {longest} characters")
    unpublished = sum(len(entry.adds) + len(entry.removes) for entry in state.unpublished.values())
    entries = len(state.segments) + len(due) + unpublished + len(state.queries) + len(state.definitions)
    size, bound = len(encode_checkpoint(state)), STATE_BYTES + BYTES_PER_ENTRY * entries
    require(size <= bound, "L5", f"the state has {size} bytes, more than {bound} for {entries} entries")
