"""`ftfile.spark.compact` without a JVM: rounds, interruptions, concurrent batches, and task payloads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from msgspec import structs

import ftfile
import ftfile.kv
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, FtfileError
from ftfile.kv.compactor import Compactor
from ftfile.kv.key_columns import encode_key
from ftfile.kv.planning.picker import DEFAULT_PLAN, Compaction
from ftfile.kv.planning.plan import PlannedCompaction, Terms
from ftfile.kv.planning.runs import Run, RunMetadata
from ftfile.kv.reading.verify import StoreReport
from ftfile.kv.run import writer
from ftfile.kv.upkeep import compact as compaction
from ftfile.kv.upkeep.compact import CompactionWork, CompactReport
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Origin
from ftfile.spark.maintenance import compact, shares_of, verify
from ftfile.storage.registry import open_filesystem
from tests.kit.store_check import check_store
from tests.unit.kv.stores import counting, file_system, rows_of
from tests.unit.spark.fake_session import Session
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from ftfile.core.progress import Progress
    from ftfile.kv.driver import HowWritten
    from ftfile.testing.micro_batch import StoreBatch

pytestmark = pytest.mark.slow

__all__ = ("ring",)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def query_at(out: str, **options: str) -> StoreBatch:
    return counting(out, **{"buckets": "8", "flushIntervalCount": "4"} | options)


def write(query: StoreBatch, batches: range, keys: int = 60) -> dict[str, int]:
    for batch in batches:
        rows = [{"k": f"confidential-{number}", "n": 1} for number in range(keys)]
        query.run(batch, [rows[task::3] for task in range(3)])
    return {f"confidential-{number}": batches.stop for number in range(keys)}


def run(session: Session, out: str, tasks: int = 3, **more: Any) -> CompactReport:
    report = compact(session, out, tasks=tasks, **more)  # type: ignore[arg-type] # it has the called methods
    assert isinstance(report, CompactReport)
    return report


def how_with(max_file_bytes: int) -> HowWritten:
    """Return the settings of a store that determine the shares."""
    return cast("HowWritten", SimpleNamespace(plan=structs.replace(DEFAULT_PLAN, max_file_bytes=max_file_bytes)))


def staged_by_jobs(out: str) -> int:
    """Return the number of files that compactions staged, with or without a record. Ids of queries contain hyphens."""
    return sum("-" not in path.parts[-2] for path in Path(out, "_ftfile/staged").rglob("*.spool"))


class TestRounds:
    def test_a_round_is_a_record_and_as_in_one_process(self, out: str, tmp_path: Path) -> None:
        session, other = Session(), str(tmp_path / "other")
        expected = write(query_at(out), range(4))
        write(query_at(other), range(4))
        report = run(session, out)
        single = ftfile.kv.compact(other)
        assert (session.rounds, report.records, report.runs_replaced) == ([3], 1, single.runs_replaced)
        assert report.version == 4
        assert rows_of(out) == expected
        assert run(session, out).records == 0
        assert session.rounds == [3]
        check_store(file_system(out))

    def test_jobs_are_shared_among_as_many_tasks_as_there_are(self, out: str) -> None:
        expected = write(query_at(out, flushIntervalCount="100"), range(3))
        session = Session()
        report = run(session, out, full=True)
        assert (session.rounds, report.records, report.runs_written) == ([3], 1, 8)
        assert run(session, out, full=True).records == 0
        assert rows_of(out) == expected
        check_store(file_system(out))

    def test_a_round_takes_the_bytes_of_a_job_for_each_task(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "BLOCK_BYTES", 4096)
        options = {"maxFileSize": "4096", "flushIntervalCount": "100"}
        expected = write(query_at(out, buckets="2", **options), range(3), keys=2000)
        session = Session()
        report = run(session, out, tasks=2, full=True)
        assert report.records == len(session.rounds) > 3
        assert {*session.rounds} <= {1, 2}
        assert rows_of(out) == expected
        check_store(file_system(out))

    @pytest.mark.parametrize(
        ("sizes", "shares"),
        [
            ([10] * 8, [[0], [1]]),
            ([90, 1, 1, 1, 1], [[0], [1, 2, 3, 4]]),
            ([0, 0, 0], [[0, 2], [1]]),
            ([4, 5, 6, 3, 9, 9], [[4, 0], [2, 1, 3]]),
            ([7], [[0]]),
        ],
    )
    def test_shares_are_of_similar_size(self, sizes: list[int], shares: list[list[int]]) -> None:
        origin = Origin("query", 0, 0)
        adds = [Add("a", "segment", "p", None, size, size, "", 1, "b=00000", "e", origin) for size in sizes]
        due = [Compaction("level0", (Run(add, RunMetadata((0, 0), None)),)) for add in adds]
        pieces = [
            (
                PlannedCompaction(
                    compaction=each, terms=Terms(is_bottommost=True, expired_ms=0), cuts=(), max_file_bytes=5
                ),
            )
            for each in due
        ]
        work = CompactionWork(how_with(5), 0)
        found = [work.size_of(piece) for piece in compaction._round_of(work, pieces, 2)]  # noqa: SLF001
        assert shares_of(found, min(len(found), 2)) == shares


class TestFailures:
    def test_a_task_that_dies_is_repeated_and_leaves_files_for_vacuum(self, out: str) -> None:
        expected = write(query_at(out), range(4))
        session = Session(deaths=[0])
        assert run(session, out, tasks=2).records == 1
        assert rows_of(out) == expected
        check_store(file_system(out))
        left = staged_by_jobs(out)
        ftfile.vacuum(out, dry_run=False, retention="0s", force=True)
        assert staged_by_jobs(out) < left
        assert rows_of(out) == expected

    def test_rounds_before_stay_when_spark_gives_up(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "BLOCK_BYTES", 4096)
        options = {"maxFileSize": "4096", "flushIntervalCount": "100"}
        expected = write(query_at(out, buckets="2", **options), range(3), keys=2000)
        with pytest.raises(RuntimeError, match="as often as it may"):
            run(Session(fails_in=2), out, full=True)
        assert CommitLog(file_system(out)).refresh().version == 2 + 2
        assert rows_of(out) == expected
        assert run(Session(), out, full=True).records
        assert rows_of(out) == expected
        check_store(file_system(out))

    def test_runs_that_cannot_be_merged_leave_the_others(self, out: str) -> None:
        write(query_at(out, flushIntervalCount="100"), range(3), keys=2000)
        fs = open_filesystem(f"file://{out}", SYSTEM)
        add = next(iter(CommitLog(fs).refresh().segments.values()))
        content = bytearray(fs.read(add.path))
        content[add.offset + add.length // 2] ^= 1
        Path(out, add.path).write_bytes(content)
        with pytest.raises(CorruptData, match=add.path):
            run(Session(), out, full=True)
        assert len(CommitLog(fs).refresh().segments) == 3 * 3 + 7

    def test_errors_that_are_not_ours_travel_as_text(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        write(query_at(out), range(4))

        class Unpicklable(Exception):
            pass

        def fail(*_: object) -> object:
            raise Unpicklable("no memory")

        monkeypatch.setattr(Compactor, "_rewrite", fail)
        with pytest.raises(FtfileError, match="Unpicklable: no memory"):
            run(Session(), out)


class TestBeside:
    def test_a_batch_that_commits_in_between(self, out: str) -> None:
        query = query_at(out)
        write(query, range(4))
        session = Session()

        def write_once() -> None:
            session.after_tasks = lambda: None
            query.run(4, [[{"k": "confidential-0", "n": 10}, {"k": "new", "n": 7}]])

        session.after_tasks = write_once
        report = run(session, out)
        assert report.version > 4
        # The tasks of the other process ran the same jobs, and committed first.
        assert rows_of(out) == {f"confidential-{n}": 4 + 10 * (n == 0) for n in range(60)} | {"new": 7}
        check_store(file_system(out))

    def test_an_overwrite_in_between(self, out: str) -> None:
        write(query_at(out), range(4))
        replacing = query_at(out)
        replacing.overwrite = True
        session = Session(after_tasks=lambda: replacing.run_batch_write("job", [[{"k": "only", "n": 1}]]))
        assert run(session, out).records == 0
        assert rows_of(out) == {"only": 1}
        check_store(file_system(out))


class TestWhatTravels:
    def test_no_key_of_an_encrypted_store_is_shipped(self, out: str, ring: Path) -> None:
        secret = {"encryption": "aes-gcm", "keyProvider": f"file:{ring}"}
        expected = write(query_at(out, **secret), range(4))
        with ftfile.kv.open(out, key_provider=secret["keyProvider"]) as reader:
            keys = {key for each in reader.runs() for key in each.metadata.keys or ()}
        recorded = [str(value).encode() for key in keys for value in encode_key(key)]
        session = Session()
        assert run(session, out, key_provider=secret["keyProvider"]).records == 1
        assert rows_of(out, secret["keyProvider"]) == expected
        assert recorded
        assert not any(key in travelled for travelled in session.shipped + session.results for key in recorded)
        assert all(b"confidential" not in path.read_bytes() for path in ring.parent.rglob("*") if path.is_file())
        check_store(file_system(out, secret["keyProvider"]))

    def test_a_task_that_sees_another_directory_is_refused(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        write(query_at(out), range(4))
        session = Session()
        range_of = session.range

        def in_another_directory(*args: int) -> Session:
            Path(out, layout.MARKER).unlink()
            return range_of(*args)

        monkeypatch.setattr(session, "range", in_another_directory)
        with pytest.raises(ConfigError, match="sees no such directory there, unlike the driver"):
            run(session, out)


class TestRefusals:
    def test_where_nothing_was_committed(self, out: str) -> None:
        with pytest.raises(ConfigError, match="Nothing was ever committed there"):
            run(Session(), out)
        query_at("memory://spark-compact/store").run(0, [[{"k": "a", "n": 1}]])
        with pytest.raises(ConfigError, match="exists only inside one process"):
            run(Session(), "memory://spark-compact/store")

    @pytest.mark.parametrize("argument", [{"where": {"k": "a"}}, {"target_bytes": 1}, {"commit_every": 1}], ids=str)
    def test_arguments_of_directories_of_files(self, out: str, argument: dict[str, Any]) -> None:
        write(query_at(out), range(1))
        with pytest.raises(ConfigError, match=f"{next(iter(argument))}: .* is a store, and only a directory of files"):
            run(Session(), out, **argument)

    def test_the_number_of_tasks(self, out: str) -> None:
        with pytest.raises(ConfigError, match="tasks=0"):
            run(Session(), out, tasks=0)
        with pytest.raises(ConfigError, match="Spark Connect"):
            compact(Session(), out)  # type: ignore[arg-type] # it has the called methods


class TestVerify:
    def test_damaged_runs_are_named_as_in_one_process(self, out: str) -> None:
        write(query_at(out), range(2))
        session = Session()
        report = verify(session, out, tasks=2)  # type: ignore[arg-type] # it has the called methods
        assert isinstance(report, StoreReport)
        assert report == ftfile.kv.verify(out)
        assert (report.ok, report.runs, session.rounds) == (
            True,
            len(CommitLog(file_system(out)).refresh().segments),
            [2],
        )
        damaged = sorted(Path(out).rglob("*.spool"))[2]
        damaged.write_bytes(damaged.read_bytes()[:-9])
        reports: list[Progress] = []
        report = verify(Session(), out, tasks=2, progress=reports.append)  # type: ignore[arg-type] # it has the called methods
        assert isinstance(report, StoreReport)
        assert report == ftfile.kv.verify(out)
        assert not report.ok
        assert {each.path for each in report.damaged} == {str(damaged.relative_to(out))}
        assert [each.done for each in reports] == [*range(1, 7)]
        assert reports[-1].total == 6

    def test_full_is_of_files(self, out: str) -> None:
        write(query_at(out), range(1))
        with pytest.raises(ConfigError, match=r"full: .* is a store, and only a directory of files"):
            verify(Session(), out, tasks=2, full=True)  # type: ignore[arg-type] # it has the called methods
