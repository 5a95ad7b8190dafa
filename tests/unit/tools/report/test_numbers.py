"""Groups of versions, axes, and the numbers that are read from a log."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import ftfile
from ftfile.core.arguments import Access
from ftfile.log.format.model import NUMBER_MAX
from ftfile.log.opening import open_log
from ftfile.operate.compact import compact_log
from ftfile.operate.verify.verify_directory import verify
from ftfile.tools.report.bars import size_bars
from ftfile.tools.report.charts import BINS_MAX, bin_values, starts_of, timeline_of
from ftfile.tools.report.history import CommitColumns, LiveFiles, live_files_of, read_commits
from ftfile.tools.report.scales import BYTES, COUNT, SECONDS, scale_of
from tests.kit.parameters import parametrize
from tests.unit.tools.report.samples import commits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.log.commit_log import CommitLog
    from ftfile.testing.micro_batch import MicroBatch
    from ftfile.tools.report.history import Commits
    from ftfile.tools.report.scales import Measure


@pytest.mark.slow
@given(st.lists(st.one_of(st.floats(0, 1e12), st.just(float("nan"))), max_size=60), st.integers(1, 20))
def test_groups_have_every_value_once(values: list[float], bins_max: int) -> None:
    series, starts = np.array(values, float), starts_of(len(values), bins_max)
    groups = np.split(series, starts[1:]) if len(starts) else []
    assert sum(map(len, groups)) == len(values)
    assert max(map(len, groups), default=0) - min(map(len, groups), default=0) <= 1
    found = bin_values(series, starts)
    for at, group in enumerate(groups):
        known = group[~np.isnan(group)]
        if not len(known):
            assert np.isnan([found.least[at], found.mean[at], found.most[at]]).all()
            continue
        assert (found.least[at], found.most[at]) == (known.min(), known.max())
        assert found.mean[at] == pytest.approx(known.mean())
        assert found.least[at] <= found.mean[at] <= found.most[at]


@pytest.mark.slow
def test_more_versions_than_places_are_grouped() -> None:
    timeline = timeline_of(commits_of(BINS_MAX + 1), is_store=False)
    assert (timeline.bins, timeline.group) == (BINS_MAX, 2)
    assert timeline.labels[-1][0] == "399\u2013400"
    assert timeline.charts[0].heads == ("least", "mean", "greatest")
    timeline = timeline_of(commits_of(BINS_MAX), is_store=False)
    assert (timeline.bins, timeline.group, timeline.charts[0].band) == (BINS_MAX, 1, "")
    rows = commits_of(BINS_MAX).columns["rows"]
    assert [row[0] for row in timeline.charts[0].rows] == [f"{each:,}" for each in rows]


@pytest.mark.slow
@given(st.sampled_from([COUNT, BYTES, SECONDS]), st.lists(st.floats(0, 1e13), max_size=20))
def test_axes_have_room_for_all_values_and_few_marks(kind: Measure, values: list[float]) -> None:
    scale = scale_of(kind, np.array(values, float))
    places = scale.places(np.array([*values, *scale.ticks]))
    assert ((places >= 0) & (places <= 1 + 1e-9)).all()
    assert 2 <= len(scale.ticks) <= 6
    texts = [kind.text(tick) for tick in scale.ticks]
    assert len(set(texts)) == len(texts), texts


def test_an_outlier_makes_an_axis_logarithmic() -> None:
    usual = np.full(100, 5.0)
    assert not scale_of(SECONDS, usual).is_logarithmic
    scale = scale_of(SECONDS, np.append(usual, 5_000))
    assert scale.is_logarithmic
    assert scale.places(np.array([5.0]))[0] > 0.3


@pytest.mark.parametrize("outlier", [5.0, 5_000.0])
def test_negative_values_are_at_the_bottom(outlier: float) -> None:
    """A clock that was set back makes durations negative."""
    scale = scale_of(SECONDS, np.append(np.full(100, 5.0), outlier))
    assert scale.places(np.array([-3_600.0, 0, math.nan])).tolist()[:2] == [0, 0]


def test_sizes_of_files() -> None:
    sizes = np.array([0, 1_023, 1_024, 2_047, 2_048, 1 << 40])
    rows = size_bars(LiveFiles(sizes), is_store=False).rows
    assert sum(int(row.cells[0]) for row in rows) == len(sizes)
    assert len(rows) <= 14
    rows = size_bars(LiveFiles(sizes[:5]), is_store=False).rows
    assert [(row.label, row.cells[0]) for row in rows] == [
        ("under 1.0 KiB", "2"),
        ("1.0 KiB to 2.0 KiB", "2"),
        ("2.0 KiB to 4.0 KiB", "1"),
    ]
    assert not size_bars(LiveFiles(sizes[:0]), is_store=False).rows


def read_with_comparisons(log: CommitLog, times: int) -> Commits:
    """Return the commits that comparisons of storage and log read. Each comparison reads the log from its start."""
    columns = CommitColumns()
    for _ in range(times):
        found = verify(log.fs, on_record=columns.add)
    return columns.commits(log, found.version)


READS = [
    read_commits,
    functools.partial(read_with_comparisons, times=1),
    functools.partial(read_with_comparisons, times=2),
]


@parametrize("read", READS, ids=["alone", "with a comparison", "with one that starts over"], quick=1)
def test_commits_are_those_of_the_history(read: Callable[[CommitLog], Commits], rolled: MicroBatch) -> None:
    log = open_log(rolled.path, Access())
    commits, history = read(log), ftfile.open(rolled.path).history()
    for name in ("version", "time_ms", "rows", "size_bytes", "files", "files_removed", "bad_records"):
        assert commits.columns[name].tolist() == [getattr(each, name) for each in history]
    for name in ("prepare", "write", "create", "publish"):
        wanted = [getattr(each.metrics, f"{name}_seconds") for each in history]
        assert [None if found != found else found for found in commits.columns[name].tolist()] == wanted  # noqa: PLR0124
    assert commits.columns["create"][:-1].tolist() == [each.metrics.create_seconds for each in history][:-1]
    assert commits.operations == {"stream": 3}
    assert commits.reasons == {"rows": sum(each.metrics.files_by_reason.get("rows", 0) for each in history)}
    assert np.isnan(commits.pauses()[0])
    assert len(commits.pauses()) == 3


def test_sums_of_what_records_say_have_no_bound(rolled: MicroBatch) -> None:
    log = open_log(rolled.path, Access())
    record = log.read_record(0)
    assert record is not None
    adds = tuple(structs.replace(add, length=NUMBER_MAX) for add in (*record.adds, *record.adds))
    columns = CommitColumns()
    columns.add(structs.replace(record, adds=adds))
    commits, live = columns.commits(log, 0), LiveFiles(np.array([NUMBER_MAX] * 3))
    assert commits.columns["size_bytes"].tolist() == [len(adds) * float(NUMBER_MAX)]
    assert live.size_bytes == 3 * float(NUMBER_MAX)
    assert timeline_of(commits, is_store=False).charts


@parametrize("is_merged", [False, True], quick=1)
def test_live_files_are_those_that_are_listed(rolled: MicroBatch, *, is_merged: bool) -> None:
    ftfile.flush(rolled.path)
    ftfile.compact(rolled.path)
    if is_merged:
        compact_log(rolled.path)
    directory = ftfile.open(rolled.path)
    found, files = live_files_of(directory.snapshot(), is_store=False), directory.files()
    assert sorted(found.sizes.tolist()) == sorted(each.size_bytes for each in files)
    assert found.rows == sum(each.rows for each in files)
    assert found.directories.keys() == {each.directory for each in files}


@pytest.mark.parametrize("read", READS[:2], ids=["alone", "with a comparison"])
def test_versions_that_cannot_be_read_are_counted(read: Callable[[CommitLog], Commits], damaged: str) -> None:
    commits = read(open_log(damaged, Access()))
    assert (commits.columns["version"].tolist(), commits.unreadable) == ([0, 2], 1)
    # The values of each version include the values of the previous version.
    assert np.isnan(commits.columns["create"]).all()
