"""The status of a directory: queries, open files, jobs, and unpublished files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.log.format.model import Remove
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.operate.test_verify import World, world

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("world",)

QUERY = "00000000-0000-0000-0000-000000000001"


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
        ("long" * 70, None, "its name has a name that may come to 280 bytes"),
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
    assert "its file is gone" in file.problem


@pytest.mark.parametrize(("add_id", "problem"), [("a", ""), ("a" * 250, "its rows are removed, and it stays")])
def test_a_removed_file_that_is_not_hidden(world: World, add_id: str, problem: str) -> None:
    add = world.driver.commit_new(0)
    world.driver.create_record(author=world.driver.author(1), removes=(replace(Remove.of(add), id=add_id),))
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
    assert first.waiting == "its deadline has not passed"
    assert status.due == 0


def test_due_files(tmp_path: Path) -> None:
    run(tmp_path / "out", 2, maxBatchesPerFile="2")
    status = ftfile.open(str(tmp_path / "out")).status()
    assert status.due == 2
    assert [(file.reason, file.attempts) for file in status.open] == [("batches", 0), ("batches", 0)]
    assert "ftfile.flush" in status.open[0].waiting


class Policy:
    """A rule that asks for what only its driver has."""

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
    assert f"by the policy {__name__}:Policy, not asked" in first.waiting


def test_a_job_that_fails(tmp_path: Path) -> None:
    stream = run(tmp_path / "out", 2, maxBatchesPerFile="2")
    for spool in (tmp_path / "out" / layout.STAGED).rglob("0/*.spool"):
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
    assert set(listed) <= {layout.CHECKPOINTS, layout.LOG, layout.COMPACTED}
