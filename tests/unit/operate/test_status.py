"""The status of a directory: queries, open files, jobs, and unpublished files."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.units import time_text
from ftfile.log.format import layout
from ftfile.log.format.model import Remove
from ftfile.operate.lag import CheckpointStatus, SourceLag
from ftfile.operate.status import UnpublishedFile, findings_of
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.rolling_rules import PendingRule
from tests.kit.parameters import parametrize
from tests.unit.kv.stores import query_of, rows
from tests.unit.operate.test_verify import World, world

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("world",)

QUERY = "00000000-0000-0000-0000-000000000001"
STUCK = "remove the cause, or see the possible repairs: ftfile.repair(path, dry_run=True)"


def test_nothing_was_committed(world: World) -> None:
    world.driver.log.prepare_directory()
    status = ftfile.open(world.url).status()
    assert (status.version, status.time_ms, status.queries, status.open, status.unpublished) == (-1, None, (), (), ())


def test_queries(world: World) -> None:
    world.driver.commit_new(0)
    world.driver.commit_new(1)
    status = ftfile.open(world.url).status()
    (query,) = status.queries
    assert (query.query_id, query.last_batch, query.version) == ("query-1", 1, 1)
    assert query.time_ms == status.time_ms == world.fs.stat(layout.record_path(1)).modified_ms


def test_damage_before_the_newest_checkpoint(world: World) -> None:
    """A status reads the newest checkpoint and the records after it. `verify` finds damage in older records."""
    for batch in range(220):
        world.driver.commit_new(batch)
    world.write(layout.record_path(20), b"{broken")
    assert ftfile.status(world.url).verdict.startswith("well: version 219")
    assert not ftfile.verify(world.url).ok


def test_what_is_pending_has_no_problem(world: World) -> None:
    add = world.driver.stage(0)
    world.driver.create_record(author=world.driver.author(0), adds=(add,))
    (file,) = ftfile.open(world.url).status().unpublished
    assert (file.version, file.query_id, file.path, file.problem) == (0, "query-1", add.final_path, "")


def test_what_was_published_is_not_listed(world: World) -> None:
    world.driver.commit_new(0)
    world.fs.delete(layout.PUBLISHED_HINT)
    assert ftfile.open(world.url).status().unpublished == ()


@pytest.mark.parametrize(
    ("name", "foreign", "problem"),
    [
        ("part.txt", "part.txt", "a foreign file of 4 bytes is at 'part.txt'"),
        ("key=1/part.txt", "key=1", "a foreign file of 4 bytes is at 'key=1'"),
        ("long" * 70, None, "its name has a name of up to 280 bytes"),
    ],
)
def test_why_it_cannot_be_published(world: World, name: str, foreign: str | None, problem: str) -> None:
    add = world.driver.stage(0, name=name)
    world.driver.create_record(author=world.driver.author(0), adds=(add,))
    if foreign is not None:
        world.write(foreign, b"mine")
    (file,) = ftfile.open(world.url).status().unpublished
    assert problem in file.problem


def test_a_pending_file_is_gone(world: World) -> None:
    add = world.driver.stage(0)
    world.driver.create_record(author=world.driver.author(0), adds=(add,))
    world.fs.delete(add.path)
    (file,) = ftfile.open(world.url).status().unpublished
    assert "its file is missing" in file.problem


@pytest.mark.parametrize(
    ("add_id", "problem"), [("a", ""), ("a" * 250, "its rows are removed, but it cannot be hidden")]
)
def test_a_removed_file_that_is_not_hidden(world: World, add_id: str, problem: str) -> None:
    add = world.driver.commit_new(0)
    world.driver.create_record(author=world.driver.author(1), removes=(structs.replace(Remove.of(add), id=add_id),))
    (file,) = ftfile.open(world.url).status().unpublished
    assert (file.version, file.path, file.removed) == (1, add.final_path, True)
    assert file.problem.startswith(problem)
    assert bool(file.problem) == bool(problem)


def run(path: Path, batches: int, **options: str) -> MicroBatch:
    options = {"fileFormat": "json", "rolling": "policy"} | options
    stream = MicroBatch(str(path), {"id": "long", "key": "string"}, options | {"partitionBy": "key"})
    for batch in range(batches):
        stream.run(batch, [[{"id": batch, "key": "a"}, {"id": batch, "key": "b"}]])
    return stream


def test_open_files(tmp_path: Path) -> None:
    run(tmp_path / "out", 3, inactivityInterval="1h")
    status = ftfile.open(str(tmp_path / "out")).status()
    assert [(file.query_id, file.directory, file.segments, file.rows, file.reason) for file in status.open] == [
        (QUERY, "key=a", 3, 3, ""),
        (QUERY, "key=b", 3, 3, ""),
    ]
    (first, _) = status.open
    assert first.deadline_ms == first.last_ms + 3_600_000
    assert first.first_ms <= first.last_ms
    assert first.waiting == (
        f"until {time_text(first.deadline_ms)} UTC by inactivityInterval, or 1,000 segments by "
        "maxSegmentsPerPart (3 segments now)"
    )
    assert status.due == 0


@parametrize(
    ("options", "shown"),
    [
        ({"rolloverInterval": "30min"}, "until T UTC by rolloverInterval"),
        ({"rolloverInterval": "2h"}, "until T UTC by inactivityInterval"),
        ({"maxRecordsPerFile": "10"}, "10 rows by maxRecordsPerFile (3 rows now)"),
        ({"maxBatchesPerFile": "4"}, "4 batches by maxBatchesPerFile (3 batches now)"),
        ({"maxBytesPerFile": "100"}, "100 B by maxBytesPerFile (27 B now)"),
    ],
    quick=3,
)
def test_why_a_file_is_open(tmp_path: Path, options: dict[str, str], shown: str) -> None:
    """The rule with the earliest deadline, and the rule with the largest amount. `rules` is sorted in this order."""
    run(tmp_path / "out", 3, **options)
    (first, _) = ftfile.status(str(tmp_path / "out")).open
    assert shown in first.waiting.replace(time_text(first.deadline_ms), "T").split(", or ")
    assert first.rules[0].deadline_ms == first.deadline_ms
    by_amount = [(rule.amount or 0) / rule.limit for rule in first.rules if rule.limit is not None]
    assert len(by_amount) > 1
    assert by_amount == sorted(by_amount, reverse=True)


def test_a_row_may_end_it(tmp_path: Path) -> None:
    options = {"fileFormat": "json", "finalizeColumn": "last"}
    stream = MicroBatch(str(tmp_path / "out"), {"id": "long", "last": "boolean"}, options)
    stream.run(0, [[{"id": 1, "last": False}]])
    (file,) = ftfile.status(stream.path).open
    assert file.waiting.endswith(", or a row that ends it by finalizeColumn")
    assert file.rules[-1] == PendingRule(reason="finalize", option="finalizeColumn")


def test_due_files(tmp_path: Path) -> None:
    run(tmp_path / "out", 2, maxBatchesPerFile="2")
    status = ftfile.open(str(tmp_path / "out")).status()
    assert status.due == 2
    assert [(file.reason, file.attempts) for file in status.open] == [("batches", 0), ("batches", 0)]
    assert "ftfile.flush" in status.open[0].waiting


class Policy:
    """A rule that needs data which only its driver has."""

    def reason_to_end(self, group: object, now_ms: int) -> None:
        del group, now_ms
        if OUTSIDE:
            raise AssertionError("it is not asked here")

    def deadline_ms(self, group: object) -> None:
        del group


OUTSIDE: list[bool] = []


def test_a_policy_is_named_and_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "out", 1, rollingPolicy=f"{__name__}:Policy")
    monkeypatch.setattr(f"{__name__}.OUTSIDE", [True])
    (first, _) = ftfile.open(str(tmp_path / "out")).status().open
    assert (first.rows, first.reason) == (1, "")
    assert first.waiting.startswith("until ")
    assert f", or by the policy {__name__}:Policy, which is not called here" in first.waiting


def test_a_job_that_fails(tmp_path: Path) -> None:
    stream = run(tmp_path / "out", 2, maxBatchesPerFile="2")
    for spool in (tmp_path / "out" / layout.STAGED).rglob("_0-*.spool"):
        spool.write_bytes(bytes(len(spool.read_bytes())))
    stream.run(2, [[{"id": 2, "key": "c"}]])
    status = ftfile.open(str(tmp_path / "out")).status()
    failed = [file for file in status.open if file.directory == "key=a"]
    assert failed[0].attempts > 0
    assert "failed" in failed[0].waiting


def test_nothing_is_listed_but_the_log_and_what_is_derived_of_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.driver.commit_new(0)
    listed: list[str] = []
    inner = type(world.fs).list

    def list_directory(self: Any, path: str) -> object:
        listed.append(path)
        return inner(self, path)

    monkeypatch.setattr(type(world.fs), "list", list_directory)
    ftfile.open(world.url).status()
    assert set(listed) <= {layout.CHECKPOINTS, layout.LOG, layout.COMPACTED, layout.QUARANTINE}


class TestVerdict:
    """The first sentence of a status."""

    @staticmethod
    def of(path: object, **arguments: Any) -> str:
        status = ftfile.status(str(path), **arguments)
        assert str(status).splitlines() == [status.verdict, *map(str, status.findings)]
        return re.sub(r"\d+(\.\d)? s old", "3 s old", status.verdict)

    def test_well(self, tmp_path: Path) -> None:
        stream = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"})
        stream.run(0, [[{"id": 1}]])
        assert self.of(tmp_path / "out") == "well: version 0, 3 s old, 1 query"
        run(tmp_path / "rolled", 3)
        assert self.of(tmp_path / "rolled") == "well: version 2, 3 s old, 2 open files, 1 query"

    def test_empty(self, world: World) -> None:
        world.driver.log.prepare_directory()
        assert self.of(world.url) == "well: nothing was committed yet"

    def test_an_open_file_is_due(self, tmp_path: Path) -> None:
        run(tmp_path / "out", 2, maxBatchesPerFile="2")
        assert self.of(tmp_path / "out") == (
            "Open files are due: plain readers miss their rows: the query's next batch finishes them. "
            "If no batch runs: ftfile.flush(path, due_only=True)"
        )

    def test_an_open_file_fails(self, tmp_path: Path) -> None:
        stream = run(tmp_path / "out", 2, maxBatchesPerFile="2")
        for spool in (tmp_path / "out" / layout.STAGED).rglob("_0-*.spool"):
            spool.write_bytes(bytes(len(spool.read_bytes())))
        stream.run(2, [[{"id": 2, "key": "c"}]])
        assert self.of(tmp_path / "out") == (
            "Open files could not be finished: ftfile.flush(path) tries again and reports why it fails; "
            "ftfile.verify(path, full=True) finds damaged rows"
        )

    def test_a_file_is_not_published(self, world: World) -> None:
        add = world.driver.stage(0)
        world.driver.create_record(author=world.driver.author(0), adds=(add,))
        assert self.of(world.url).startswith(
            "Committed files are not at their final names yet: plain readers miss their rows: "
        )
        world.write(add.final_path or "", b"mine")
        assert self.of(world.url) == f"Committed files cannot be published, or removed files cannot be hidden: {STUCK}"
        (finding,) = ftfile.status(world.url).findings
        problem = f"a foreign file of 4 bytes is at {add.final_path!r}: move it away"
        assert (finding.code, finding.actual) == ("not-publishable", f"{add.final_path!r}: {problem}")

    def test_a_query_is_behind(self, world: World) -> None:
        world.driver.commit_new(0)
        read = SourceLag(source=0, kind="ftfile", offset=None, versions_behind=0)
        status = ftfile.status(world.url)

        def with_checkpoint(*sources: SourceLag, **fields: Any) -> str:
            checkpoint = CheckpointStatus(path="file:///checkpoint", sources=sources, **fields)
            queries = (replace(status.queries[0], checkpoint=checkpoint),)
            changed = replace(status, queries=queries, made_ms=(status.time_ms or 0) + 40_000)
            return replace(changed, findings=(*findings_of(changed),)).verdict

        assert with_checkpoint(read) == "well: version 0, 40 s old, 1 query, none behind"
        assert with_checkpoint(
            replace(read, versions_behind=3), replace(read, versions_behind=None, files_behind=1)
        ) == ("well: version 0, 40 s old, 1 query, query query-1 has 3 versions and 1 file to read")
        assert with_checkpoint(replace(read, unknown="who knows")) == "well: version 0, 40 s old, 1 query"
        assert with_checkpoint(problem="it did not answer") == "well: version 0, 40 s old, 1 query"
        problem = "it ends with batch 1, but the directory with batch 7"
        assert with_checkpoint(problem=problem, contradicts=True) == (
            "A query's checkpoint and the directory are from different times: see docs/disaster-recovery.md"
        )

    def test_damage(self, world: World) -> None:
        world.driver.commit_new(0)
        world.driver.commit_new(1)
        world.fs.delete(layout.record_path(1))
        assert self.of(world.url).startswith("The newest records of commits are lost: restore the newest records")

    def test_the_log_is_gone(self, world: World) -> None:
        world.driver.commit_new(0)
        world.fs.delete(layout.record_path(0))
        assert "accept_lost_records=True" in self.of(world.url)
        with pytest.raises(ConfigError, match="not an ftfile directory: it has no log"):
            ftfile.status(f"{world.url}/nowhere")

    def test_files_in_quarantine(self, world: World) -> None:
        world.driver.commit_new(0)
        world.write("stranger.txt", b"")
        ftfile.repair(world.url, quarantine=["stranger.txt"], dry_run=False)
        assert ftfile.status(world.url).quarantined == 1
        assert self.of(world.url) == "well: version 0, 3 s old, 1 query, 1 file in _ftfile/quarantine"

    def test_merges_are_due(self, tmp_path: Path) -> None:
        store = query_of(str(tmp_path / "store"), flushIntervalCount="2", buckets="1")
        for batch in range(2):
            store.run(batch, [rows("a", n=batch)])
        status = ftfile.status(store.path)
        assert (status.kind, status.open, status.due, status.held) == ("store", (), 1, 0)
        assert self.of(store.path) == "well: version 1, 3 s old, 1 compaction due, 1 query"
        (finding,) = findings_of(replace(status, held=1))
        assert (finding.code, finding.actual, finding.command("/x")) == (
            "compaction-fails",
            "1 skipped",
            "ftfile kv verify /x",
        )

    def test_the_worst_goes_before_the_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The due file comes before the stuck file, but is less severe."""
        stream = run(tmp_path / "out", 2, maxBatchesPerFile="2")
        stuck = UnpublishedFile(version=1, query_id=None, path="part.json", problem="its file is missing")
        monkeypatch.setattr("ftfile.operate.status._list_unpublished", lambda *_: [stuck])
        status = ftfile.status(stream.path)
        assert [finding.code for finding in findings_of(status)] == ["open-file-due", "not-publishable"]
        assert [finding.code for finding in status.findings] == ["not-publishable", "open-file-due"]
        assert status.verdict.endswith(STUCK)
