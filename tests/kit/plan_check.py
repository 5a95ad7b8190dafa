"""The invariants of streams of files, checked against their plans: S2 to S4, S6 to S8; runs check S1 and S5."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import CorruptData
from ftfile.log.checkpoints import CHECKPOINTS_KEPT, list_checkpoints
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.places import list_own
from ftfile.source import plan_log
from ftfile.source.known_files import KnownFiles
from ftfile.source.known_rows import is_parked
from ftfile.source.plan import SourcePlan, position_of
from ftfile.testing.log_check import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.format.model import Record
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from tests.kit.files_run import FilesRun

__all__ = ("Plans", "check_batches", "check_plans", "check_skipped", "read_plans")

KNOWN_BYTES_MAX = 65
# The size of a columns file without known files.
HEADER_BYTES_MAX = 4 << 10


@dataclass
class Plans:
    """The plans that the plan log keeps."""

    state: LogState
    records: dict[int, Record] = field(default_factory=dict)
    plans: dict[int, SourcePlan] = field(default_factory=dict)


def check_plans(fs: FileSystem, offsets: Sequence[str], commits: int, kept_max: int | None = None) -> Plans:
    """Check a plan log against Spark's checkpoint; it holds at any moment.

    - **S2** Each offset names a durable plan, and this plan names the offset before it.
    - **S3** The ranges of a file follow each other, without overlap and without a gap.
    - **S4** No plan is trimmed whose batch Spark may still retry.
    - **S8** A columns file has at most 65 bytes for each known file, and few plans are kept.

    Args:
        fs: the directory of the plan log.
        offsets: the end of each batch, as JSON.
        commits: number of batches that Spark has committed.
        kept_max: greatest number of plans that are kept; by default it is not checked.

    Raises:
        InvariantViolation: an invariant does not hold.
    """
    found = read_plans(fs)
    state = found.state
    before: str = ""
    for offset in offsets:
        position = position_of(json.loads(offset))
        if position is None:
            continue
        require(position.plan <= state.version, "S2", f"{offset} is ahead of plan {state.version}")
        record = found.records.get(position.plan)
        if record is not None:
            require(record.nonce == position.nonce, "S2", f"{offset} names a plan that is {record.nonce!r}")
            require(record.previous_nonce == before, "S2", f"{offset} does not follow {before!r}")
        before = position.nonce
    # The plans of the uncommitted batch, and of positions in older copies of the checkpoint, are needed.
    ends = [position.plan for position in map(position_of, map(json.loads, offsets)) if position is not None]
    done = ends[:commits]
    needed = (done[-1] if done else -1) - plan_log.VERSIONS_KEPT
    require(state.log_start <= max(0, needed), "S4", f"plans before {state.log_start} are trimmed, {done[-1:]} is done")
    _check_ranges(found)
    _check_columns(fs, found)
    if kept_max is not None:
        require(len(found.plans) <= kept_max, "S8", f"{len(found.plans)} plans are kept")
    return found


def read_plans(fs: FileSystem) -> Plans:
    """Return the plans that the log keeps."""
    log = CommitLog(fs)
    found = Plans(log.refresh())
    for version in range(found.state.log_start, found.state.version + 1):
        record = log.read_record(version)
        if record is None:
            raise CorruptData(layout.record_path(version), "a plan", "nothing")
        found.records[version] = record
        found.plans[version] = SourcePlan.from_json(record.payload)
    return found


def check_skipped(fs: FileSystem, report: dict[str, Any]) -> None:
    """Check **S7**: a stream reports the files that its plans leave out, if all plans are kept."""
    found = read_plans(fs)
    if found.state.log_start > 0:
        return
    late = sum(len(plan.late) for plan in found.plans.values())
    require(report["late"] == late, "S7", f"{late} files were late, but the report has {report['late']}")
    known = KnownFiles()
    for plan in found.plans.values():
        known = known.apply(plan)
    parked = int(is_parked(known.rows).sum())
    require(report["parked"] == parked, "S7", f"{parked} files are parked, but the report has {report['parked']}")


def check_batches(run: FilesRun) -> None:
    """Check **S6**: each range was read in exactly one batch."""
    found = Counter(read for reads in run.adds.values() for read in reads)
    twice = [read for read, times in found.items() if times > 1]
    require(not twice, "S6", f"{twice} were read twice")


def _check_ranges(found: Plans) -> None:
    ends: dict[str, int] = {}
    for number, plan in found.plans.items():
        moved = {entry.path for entry in plan.files if entry.previous_keys}
        for read in plan.ranges:
            told = f"plan {number} reads {read.path!r} from {read.start} on, and it was read to {ends.get(read.path)}"
            require(read.start < read.end or (read.whole and read.end == 0), "S3", told)
            if read.start and read.path in ends and read.path not in moved:
                require(read.start == ends[read.path], "S3", told)
            ends[read.path] = read.end
        ends.update((entry.path, entry.position) for entry in plan.files)


def _check_columns(fs: FileSystem, found: Plans) -> None:
    """Check that each columns file equals the one before it, updated by the plans between them."""
    state = found.state
    files = plan_log.columns_files(state)[::-1]
    require(len(files) <= plan_log.COLUMNS_KEPT, "S8", f"{files} are named")
    version, known = -1, KnownFiles() if state.log_start == 0 else None
    for file in files:
        later = KnownFiles.from_bytes(plan_log.read_columns(fs, file))
        require(
            file.size_bytes <= KNOWN_BYTES_MAX * len(later) + HEADER_BYTES_MAX,
            "S8",
            f"{file.path} has {file.size_bytes} bytes for {len(later)} files",
        )
        if known is not None:
            for number in range(version + 1, file.name.version + 1):
                known = known.apply(found.plans[number])
            require(known.to_bytes() == later.to_bytes(), "S1", f"{file.path} differs from the result of its plans")
        version, known = file.name.version, later
    if state.log_start > 0:
        covered = sorted(name.version for name in list_checkpoints(fs))[-CHECKPOINTS_KEPT:]
        require(
            len(covered) == CHECKPOINTS_KEPT and covered[0] >= state.log_start,
            "S4",
            f"checkpoints {covered} for {state.log_start}",
        )
        require(files[0].name.version + 1 >= state.log_start, "S4", f"columns {files} for {state.log_start}")
        names = [layout.parse_columns_name(info.path) for info in list_own(fs, layout.COLUMNS)]
        require(files[-1].name in names, "S4", f"{files[-1].path} is missing")
