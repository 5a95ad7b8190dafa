"""Statistics of the segments of open files: within a limit, in plans, rests, checkpoints and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData
from ftfile.log.checkpoints import encode_checkpoint, write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format.model import Add, Job, Origin
from ftfile.log.state import LogState, SharedMap
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.assembly_plan import owner_of, plan_of
from ftfile.writing.files.segment_statistics import SEGMENTS_WITH_STATISTICS_MAX
from tests.unit.writing.files.encrypted import out, snapshot

__all__ = ("out",)

Row = dict[str, Any]
COLUMNS = {"k": "long", "id": "long", "word": "string"}


def query_of(out: str, **options: str) -> MicroBatch:
    return MicroBatch(out, COLUMNS, {"fileFormat": "json", "rolling": "policy", **options})


def rows_of(*numbers: int | None) -> list[Row]:
    return [{"k": 0, "id": number, "word": str(number)} for number in numbers]


def head_of(out: str) -> LogState:
    return CommitLog(open_filesystem(out)).refresh()


def id_entries(out: str) -> list[tuple[Any, ...] | None]:
    """Return the entries of the column `id`, of parts and of segments in the order of their rows."""
    adds = sorted(snapshot(out).adds.values(), key=lambda add: (add.kind, add.final_path or "", add.id))
    return [add.statistics.get("id") for add in adds]


def segment(number: int, statistics: dict[str, tuple[Any, ...]]) -> Add:
    return Add(
        id=f"{number:032x}-0",
        kind="segment",
        path=f"_ftfile/staged/query/_0-00000-0-{number:032x}.spool",
        final_path=None,
        length=4,
        logical_length=4,
        checksum="crc32:0",
        rows=4,
        directory_key=f"k={number}",
        encoding="json",
        origin=Origin("query", 0, 0),
        rolling_stats={"partition": 0, "index": number, "committedMs": 1},
        statistics=statistics,
    )


def test_segments_beyond_the_limit_have_no_statistics(out: str) -> None:
    query = query_of(out, partitionBy="k")
    query.run(0, [rows_of(7)])
    assert id_entries(out) == [(7, 7, 0)]
    query.run(1, [[{"k": number, "id": number, "word": ""} for number in range(SEGMENTS_WITH_STATISTICS_MAX)]])
    entries = [add.statistics.get("id") for add in head_of(out).segments.values()]
    assert entries == [(7, 7, 0), *[None] * SEGMENTS_WITH_STATISTICS_MAX]
    assert ftfile.open(out).count(where="id = 5") == 1


def test_a_task_collects_no_statistics_beyond_the_limit(out: str) -> None:
    rows = [{"k": number, "id": number, "word": ""} for number in range(SEGMENTS_WITH_STATISTICS_MAX + 1)]
    (message,) = query_of(out, partitionBy="k").run_tasks(0, [rows])
    assert len(message.segments) == len(rows)
    assert not any(piece.statistics for piece in message.segments)


def test_the_rest_of_a_segment_has_the_bounds_of_all_rows(out: str) -> None:
    query = query_of(out, maxRecordsPerFile="2")
    query.run(0, [rows_of(5, None, 1)])
    query.run(1, [rows_of()])
    # The number of nulls of some rows is unknown, except of `k`, which has none.
    assert id_entries(out) == [(1, 5, None), (1, 5, None)]
    assert [add.statistics["k"] for add in snapshot(out).adds.values()] == [(0, 0, 0)] * 2
    query.run(2, [rows_of(9)])
    query.run(3, [rows_of()])
    assert id_entries(out) == [(1, 5, None), (1, 9, None)]


def test_a_job_has_the_statistics_once(out: str) -> None:
    query = query_of(out, maxBatchesPerFile="2")
    query.run(0, [rows_of(5, None)])
    query.run(1, [rows_of(1)])
    (job,) = head_of(out).jobs
    assert not any(add.statistics for add in job.inputs)
    assert job.payload["rows"] == 3
    assert job.payload["statistics"] == {"k": [0, 0, 0], "id": [1, 5, 1], "word": ["1", "None", 0]}


def test_a_part_without_a_damaged_segment_has_bounds(out: str) -> None:
    query = query_of(out, maxBatchesPerFile="2")
    query.run(0, [rows_of(5, None)])
    (damaged,) = head_of(out).segments.values()
    query.run(1, [rows_of(1)])
    with Path(out, damaged.path).open("r+b") as file:
        file.write(b"X")
    query.run(2, [rows_of()])
    parts = [add for add in snapshot(out).adds.values() if add.kind == "part"]
    assert [add.statistics["id"] for add in parts] == [(1, 5, None)]


def test_a_restart_from_a_checkpoint_keeps_the_statistics(out: str) -> None:
    query = query_of(out, maxBatchesPerFile="2")
    query.run(0, [rows_of(5, None)])
    log = CommitLog(open_filesystem(out))
    head = log.refresh()
    write_checkpoint(log.fs, SYSTEM.ids, head)
    assert head_of(out) == head
    query.restart()
    query.run(1, [rows_of(1)])
    query.run(2, [rows_of()])
    assert id_entries(out) == [(1, 5, 1)]
    assert ftfile.open(out).verify(full=True).ok


@pytest.mark.parametrize(("columns", "bytes_max"), [(6, 1_000_000), (32, 5_000_000)])
def test_statistics_make_a_checkpoint_a_little_longer(columns: int, bytes_max: int) -> None:
    entry = (1_700_000_000_000_000, 1_700_000_000_999_999, 123)
    entries = {f"column_{number}": entry for number in range(columns)}
    lengths = []
    for statistics in (entries, {}):
        segments = {}
        for number in range(100_000):
            add = segment(number, statistics if number < SEGMENTS_WITH_STATISTICS_MAX else {})
            segments[add.id] = add
        plan: dict[str, Any] = {"rows": 4, "statistics": statistics}
        job = Job("job", "age", (add.without_statistics(),), payload=plan)
        state = LogState(0, "0", segments=SharedMap(segments), jobs=(job,))
        lengths.append(len(encode_checkpoint(state)))
    assert 0 < lengths[0] - lengths[1] < bytes_max


def test_a_forged_plan_is_damage() -> None:
    plan = {"maxBytesPerFile": 1, "maxRecordsPerFile": 1, "strictFileSize": True, "keepTail": True, "taskCount": 1}
    forgeries: list[Row] = [
        {"taskCount": "2"},
        {"taskCount": -1},
        {"keepTail": 1},
        {"maxBytesPerFile": 0},
        {"maxRecordsPerFile": 1 << 63},
        {"rows": -1},
        {"statistics": []},
        {"statistics": {"id": [1]}},
        {"statistics": {"id": [1, 2, "x"]}},
    ]
    for forged in forgeries:
        job = Job("job", "age", (segment(0, {}),), payload=plan | forged)
        with pytest.raises(CorruptData, match="the plan of the job"):
            plan_of(job)
    with pytest.raises(CorruptData, match="inputs of the job"):
        owner_of(Job("job", "age", (), payload=plan))
