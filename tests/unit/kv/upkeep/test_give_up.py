"""Permanently lost runs: repair abandons them, reports the rows that return, and keeps their entries in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile import kv
from ftfile.core.errors import CorruptData
from ftfile.kv.definition import DELETE
from ftfile.kv.planning.runs import run_of
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import current, open_filesystem
from tests.unit.kv.upkeep.stores import COLUMNS, PATH, counts, damage, rows_of

if TYPE_CHECKING:
    from ftfile.kv.planning.runs import Run
    from ftfile.operate.repair import RepairReport

WORDS = [f"w{number}" for number in range(9)]


@pytest.fixture(autouse=True)
def written() -> None:
    """A store of nine words in two buckets: one word is deleted, and two are purged."""
    query = counts(buckets="2", deleteColumn="gone", merge="last", flushIntervalCount="1000")
    query.columns = {**COLUMNS, "gone": "boolean"}
    query.run(0, [[{"word": word, "n": 1, "gone": False} for word in WORDS]])
    query.run(1, [[{"word": word, "n": 2, "gone": word == "w1"} for word in WORDS[:4]]])
    kv.purge(PATH, "w7", "w9", context=current())
    assert rows_of(PATH) == dict.fromkeys(WORDS[4:7], 1) | {"w0": 2, "w2": 2, "w3": 2}


def runs() -> list[Run]:
    return [run_of(add) for add in CommitLog(open_filesystem(PATH)).refresh().segments.values()]


def give_up(path: str, *, dry_run: bool = False) -> RepairReport:
    return ftfile.repair(PATH, full=True, give_up=[path], dry_run=dry_run, context=current())


def test_a_whole_store_has_nothing_to_mend() -> None:
    report = ftfile.repair(PATH, full=True, context=current())
    assert report.ok
    assert not report.steps
    assert not report.findings


@pytest.mark.slow
def test_keys_that_a_damaged_run_deleted_are_found_again_and_the_report_says_so() -> None:
    (lost,) = [run for run in runs() if run.metadata.ops & 1 << DELETE]
    damage(PATH, lost.add)
    with pytest.raises(CorruptData):
        rows_of(PATH)
    (finding,) = ftfile.repair(PATH, full=True, context=current()).findings
    assert (finding.code, finding.path) == ("damaged-segment", lost.add.path)
    planned = give_up(lost.add.path, dry_run=True)
    (step,) = give_up(lost.add.path).steps
    for told in (finding.remedy, step.action, planned.steps[0].action):
        assert "its deleted keys exist again: delete these keys again" in told
    found = rows_of(PATH)
    assert found["w1"] == 1
    in_other_run = {word for word, n in found.items() if n == 2}
    assert in_other_run == {"w0", "w2", "w3"} - {word for word, n in found.items() if n == 1}
    assert found.keys() == set(WORDS[:7]), "purged keys stay away"
    kv.compact(PATH, full=True, context=current())
    assert rows_of(PATH) == found
    assert not kv.verify(PATH, context=current()).damaged


def test_older_values_are_told_of_and_deletes_are_not_where_there_are_none() -> None:
    lost = next(run for run in runs() if run.add.rows and not run.metadata.ops & 1 << DELETE)
    damage(PATH, lost.add)
    (finding,) = ftfile.repair(PATH, full=True, context=current()).findings
    assert "are then read from the older runs" in finding.remedy
    assert "deleted" not in finding.remedy


@pytest.mark.slow
def test_purges_of_lost_runs_stay() -> None:
    before, lost = rows_of(PATH), [run for run in runs() if run.metadata.purges]
    (path,) = {run.add.path for run in lost}
    open_filesystem(PATH).delete(path)
    (*findings,) = ftfile.repair(PATH, context=current()).findings
    assert [each.code for each in findings] == ["missing-segment"] * len(lost)
    assert not any("read from the older runs" in each.remedy for each in findings)
    assert give_up(path).ok
    assert rows_of(PATH) == before
    kept = [run for run in runs() if run.metadata.purges]
    assert sorted(run.metadata.at for run in kept) == sorted(run.metadata.at for run in lost)
    assert not kv.verify(PATH, context=current()).damaged
    kv.compact(PATH, full=True, context=current())
    assert rows_of(PATH) == before
