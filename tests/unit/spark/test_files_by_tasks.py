"""`ftfile.spark.compact` and similar functions of files without a JVM: rounds, interruptions, and task payloads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, FtfileError, StillOpen
from ftfile.core.progress import Progress
from ftfile.log.format import layout
from ftfile.operate.rewriter.row_rewriter import RowRewriter
from ftfile.operate.rewriting import RewriteReport
from ftfile.spark import compact, delete, flush, verify
from ftfile.spark import maintenance as spark_tasks
from ftfile.spark.maintenance import shares_of
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.assembler import Assembled, Assembler
from tests.kit.parameters import parametrize
from tests.unit.spark.fake_session import Session
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.log.format.model import Job

__all__ = ("ring",)

COLUMNS = {"id": "long", "bucket": "string"}
LETTERS = "abcdef"


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def written(out: str, **options: str) -> MicroBatch:
    """Write one small part of each bucket in each of three batches."""
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "bucket"} | options)
    for batch in range(3):
        query.run(batch, [[{"id": batch, "bucket": letter} for letter in LETTERS]])
    return query


def ids(out: str, key_provider: str | None = None) -> list[int]:
    return sorted(ftfile.open(out, key_provider=key_provider).to_arrow()["id"].to_pylist())


IDS = sorted(number for number in range(3) for _ in LETTERS)
# Operations that renew exports: the options of the writer, and the arguments of the operation.
EXPORTED = [(flush, {"rolling": "policy"}, {}), (compact, {}, {}), (delete, {}, {"where": "id = 1"})]


def run(call: Callable[..., Any], session: Session, out: str, **more: Any) -> Any:
    return call(session, out, **({"tasks": 3} | more))


def parts(out: str) -> list[Path]:
    return sorted(path for path in Path(out).rglob("part-*") if "_ftfile" not in path.parts)


def staged(out: str) -> list[Path]:
    return [*Path(out, layout.STAGED).rglob("*.staged")]


class TestRounds:
    @pytest.mark.slow
    def test_a_compaction_is_one_job_and_one_record_as_in_one_process(self, out: str, tmp_path: Path) -> None:
        session, other = Session(), str(tmp_path / "other")
        written(out)
        written(other)
        report, single = run(compact, session, out), ftfile.compact(other)
        assert session.rounds == [3]
        assert isinstance(report, RewriteReport)
        assert report == single
        assert ids(out) == IDS
        found = [ftfile.open(path).snapshot().adds.values() for path in (out, other)]
        assert len({tuple((add.directory_key, add.rows, add.length) for add in adds) for adds in found}) == 1
        assert run(compact, session, out).version is None
        assert session.rounds == [3]
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_a_compaction_sorts_rows_as_in_one_process(self, out: str, tmp_path: Path) -> None:
        session, other = Session(), str(tmp_path / "other")
        written(out)
        written(other)
        assert run(compact, session, out, sort_by="id") == ftfile.compact(other, sort_by="id")
        assert session.rounds == [3]
        assert ids(out) == IDS
        assert run(compact, session, out, sort_by="id").version is None
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_records_on_the_way(self, out: str) -> None:
        session, reports = Session(), list[Progress]()
        written(out)
        report = run(compact, session, out, commit_every=4, progress=reports.append)
        assert (session.rounds, report.records, report.version) == ([3, 2], 2, 4)
        assert [each.done for each in reports] == [3, 6, 9, 12, 15, 18]
        assert ids(out) == IDS
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_more_bytes_than_a_share_has(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spark_tasks, "SHARE_BYTES", 1)
        session = Session()
        written(out)
        assert run(compact, session, out).files_written == 6
        assert session.rounds == [6]

    @pytest.mark.slow
    def test_of_some_partitions(self, out: str) -> None:
        written(out)
        report = run(compact, Session(), out, where={"bucket": "b"})
        assert (report.files_removed, report.files_written) == (3, 1)

    @parametrize(("call", "options", "arguments"), EXPORTED, ids=["flush", "compact", "delete"], quick=1)
    def test_exports_are_renewed(
        self, call: Callable[..., Any], options: dict[str, str], arguments: dict[str, str], out: str
    ) -> None:
        written(out, fileFormat="parquet", **options)
        ftfile.export(out)
        run(call, Session(), out, **arguments)
        assert len([*Path(out, "_delta_log").iterdir()]) == 2
        table = pytest.importorskip("deltalake").DeltaTable(out).to_pyarrow_table()
        assert sorted(table["id"].to_pylist()) == [number for number in IDS if number != 1 or not arguments]

    @pytest.mark.slow
    def test_a_flush(self, out: str) -> None:
        session = Session()
        written(out, rolling="policy")
        report = run(flush, session, out, commit_every=4)
        assert (session.rounds, report.files, report.rows, report.version) == ([3, 2], 6, 18, 4)
        assert ids(out) == IDS
        assert run(flush, session, out).files == 0
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_a_verification(self, out: str) -> None:
        session = Session()
        written(out)
        assert run(verify, session, out).ok
        damaged = parts(out)[4]
        damaged.write_bytes(damaged.read_bytes().replace(b"1", b"7"))
        report = run(verify, session, out)
        assert [finding.path for finding in report.findings] == [str(damaged.relative_to(out))]
        # Without `full`, or if the check is repeated during a vacuum, it starts no tasks.
        rounds = len(session.rounds)
        assert run(verify, session, out, full=False).ok
        assert len(session.rounds) == rounds

    def test_shares_are_of_similar_size_and_none_is_empty(self) -> None:
        assert shares_of([10] * 4, 2) == [[0, 2], [1, 3]]
        assert shares_of([9, 1, 1, 1], 2) == [[0], [1, 2, 3]]
        assert shares_of([0, 0, 0], 2) == [[0, 2], [1]]


class TestFailures:
    @parametrize("rolling", [True, False], ids=["flush", "compact"], quick=1)
    def test_a_task_that_dies_is_repeated_and_leaves_files_for_vacuum(self, out: str, *, rolling: bool) -> None:
        written(out, **({"rolling": "policy"} if rolling else {}))
        run(flush if rolling else compact, Session(deaths=[0, 2]), out)
        assert len(parts(out)) == 6
        assert ids(out) == IDS
        assert len(staged(out)) == 4
        check_directory(open_filesystem(out))
        ftfile.vacuum(out, dry_run=False, retention="0s", force=True)
        assert not staged(out)
        assert ids(out) == IDS

    @pytest.mark.slow
    def test_records_before_stay_when_spark_gives_up(self, out: str) -> None:
        written(out)
        with pytest.raises(RuntimeError, match="as often as it may"):
            run(compact, Session(fails_in=1), out, commit_every=4)
        assert len(parts(out)) == 4 + 6
        assert not staged(out)
        assert ids(out) == IDS
        assert run(compact, Session(), out).files_written == 2
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_an_interruption_leaves_what_is_recorded(self, out: str) -> None:
        written(out)

        def stop(progress: Progress) -> None:
            if progress.done > 12:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(compact, Session(), out, commit_every=4, progress=stop)
        assert len(parts(out)) == 4 + 6
        assert not staged(out)
        assert ids(out) == IDS

    @pytest.mark.slow
    def test_parts_that_cannot_be_merged_leave_the_others(self, out: str) -> None:
        written(out)
        damaged = parts(out)[4]
        damaged.write_bytes(damaged.read_bytes().replace(b"1", b"7"))
        with pytest.raises(CorruptData, match=damaged.name):
            run(compact, Session(), out)
        assert len(parts(out)) == 5 + 3

    @pytest.mark.slow
    def test_segments_that_cannot_be_read_stay_open(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        written(out, rolling="policy")

        class Unpicklable(Exception):
            pass

        honest = Assembler.assemble_readable

        errors = {"bucket=a": CorruptData("path", "this", "that"), "bucket=b": Unpicklable("no memory")}

        def assemble(*arguments: Any) -> Any:
            inputs = arguments[1].inputs
            error = errors.get(inputs[0].directory_key)
            if error is not None:
                return Assembled(None, {segment.id: error for segment in inputs})
            return honest(*arguments)

        monkeypatch.setattr(Assembler, "assemble_readable", assemble)
        with pytest.raises(StillOpen, match="no memory"):
            run(flush, Session(), out)
        assert len(parts(out)) == 4

    def test_errors_that_are_not_ours_fail_a_task(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        written(out)

        def fail(*_: object) -> Iterator[object]:
            raise MemoryError("no memory")

        monkeypatch.setattr(RowRewriter, "do", fail)
        with pytest.raises(MemoryError):
            run(compact, Session(), out)
        assert len(parts(out)) == 18


class TestDeletes:
    @pytest.mark.slow
    @pytest.mark.parametrize("where", ["id = 1", "id = 1 AND bucket = 'b'", pc.field("id") == 1], ids=str)
    def test_of_rows_are_as_in_one_process(self, out: str, tmp_path: Path, where: Any) -> None:
        session, other = Session(), str(tmp_path / "other")
        for path in (out, other):
            query = MicroBatch(path, COLUMNS, {"fileFormat": "parquet", "partitionBy": "bucket"})
            for batch in range(3):
                query.run(batch, [[{"id": n, "bucket": letter} for n in range(4) for letter in "abc"]])
        plan = run(delete, session, out, where=where, dry_run=True)
        assert ftfile.open(out).version() == 2
        report, single = run(delete, session, out, where=where), ftfile.delete(other, where)
        assert session.rounds == [3, 3]
        assert report == single
        assert plan.rows_removed == report.rows_removed == (3 if "bucket" in str(where) else 9)
        assert ids(out) == ids(other)
        assert ftfile.open(out).count(where=where) == 0
        assert ftfile.open(out).verify(full=True).ok

    @pytest.mark.slow
    def test_finish_open_files_first(self, out: str) -> None:
        session = Session()
        written(out, rolling="policy")
        assert run(delete, session, out, where="id = 1").rows_removed == 6
        assert len(session.rounds) == 3, "tasks search rows, finish files, and rewrite files"
        assert ids(out) == [number for number in IDS if number != 1]
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_encrypted_rows(self, out: str, ring: Path) -> None:
        provider, session = f"file:{ring}", Session()
        written(out, encryption="aes-gcm", keyProvider=provider)
        assert run(delete, session, out, where="id = 1", key_provider=provider).rows_removed == 6
        assert ids(out, provider) == [number for number in IDS if number != 1]

    @pytest.mark.slow
    def test_a_compaction_in_between(self, out: str) -> None:
        query = written(out)
        query.run(3, [[{"id": number, "bucket": letter} for letter in LETTERS for number in (1, 5)]])
        passed = list[object]()

        def compact_once() -> None:
            if not passed:
                passed.append(ftfile.compact(out))

        assert run(delete, Session(after_tasks=compact_once), out, where="id = 1").rows_removed == 12
        assert 1 not in ids(out)
        check_directory(open_filesystem(out))


@pytest.mark.slow
class TestBeside:
    def test_a_batch_that_commits_in_between(self, out: str) -> None:
        query = written(out)
        session = Session(after_tasks=lambda: query.run(3, [[{"id": 3, "bucket": "a"}]]))
        assert run(compact, session, out).files_written == 6
        assert ids(out) == [*IDS, 3]
        check_directory(open_filesystem(out))

    def test_an_overwrite_in_between(self, out: str) -> None:
        written(out)
        replacing = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "bucket"}, overwrite=True)
        session = Session(after_tasks=lambda: replacing.run_batch_write("job", [[{"id": 9, "bucket": "a"}]]))
        assert run(compact, session, out) == RewriteReport(files_lost=18)
        assert ids(out) == [9]
        check_directory(open_filesystem(out))


class TestWhatTravels:
    @parametrize("call", [compact, flush, verify], ids=["compact", "flush", "verify"], quick=1)
    def test_nothing_of_an_encrypted_directory_in_the_clear(
        self, out: str, ring: Path, call: Callable[..., Any]
    ) -> None:
        """Tasks receive no names of directories, either; the log contains them."""
        provider = f"file:{ring}"
        rolling = {"rolling": "policy"} if call is flush else {}
        written(out, encryption="aes-gcm", keyProvider=provider, **rolling)
        session = Session()
        run(call, session, out, key_provider=provider)
        assert session.rounds == [3]
        travelled = session.shipped + session.results
        assert not any(b"bucket=" in each or b"part-" in each for each in travelled)
        keys = [line.split()[-1] for line in ring.read_bytes().splitlines() if line.split()]
        assert keys
        assert not any(key in each for each in travelled for key in keys)
        assert ids(out, provider) == IDS

    @pytest.mark.slow
    def test_a_task_that_sees_another_directory_is_refused(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        written(out)
        session = Session()
        range_of = session.range

        def in_another_directory(*args: int) -> Session:
            Path(out, layout.MARKER).unlink()
            return range_of(*args)

        monkeypatch.setattr(session, "range", in_another_directory)
        with pytest.raises(ConfigError, match="sees no such directory there, unlike the driver"):
            run(compact, session, out)

    @pytest.mark.slow
    def test_tasks_write_with_the_settings_of_the_directory(self, out: str) -> None:
        written(out, filePermission="604")
        run(compact, Session(), out)
        assert {path.stat().st_mode & 0o777 for path in parts(out)} == {0o604}


class TestRefusals:
    @parametrize("call", [compact, flush, verify], ids=["compact", "flush", "verify"], quick=1)
    def test_what_no_cluster_can_do(self, out: str, call: Callable[..., Any]) -> None:
        with pytest.raises(ConfigError, match="is not an ftfile directory"):
            run(call, Session(), out)
        written("memory://by-tasks/out")
        with pytest.raises(ConfigError, match="exists only inside one process"):
            run(call, Session(), "memory://by-tasks/out")
        written(out)
        with pytest.raises(ConfigError, match="tasks=0"):
            run(call, Session(), out, tasks=0)
        with pytest.raises(ConfigError, match="Spark Connect"):
            call(Session(), out)

    def test_what_is_of_stores(self, out: str) -> None:
        written(out)
        with pytest.raises(ConfigError, match=r"full: .* is a directory of files, and only a store takes it"):
            run(compact, Session(), out, full=True)

    def test_records_of_no_file(self, out: str) -> None:
        written(out)
        for call in (compact, flush):
            with pytest.raises(ConfigError, match="commit_every=0"):
                run(call, Session(), out, commit_every=0)


def test_storage_that_is_away_ends_a_flush(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written(out, rolling="policy")
    monkeypatch.setattr("ftfile.writing.files.assembler.is_away", lambda _: True)
    tried = []

    def assemble(_: object, job: Job, *__: object) -> object:
        tried.append(job.id)
        raise FtfileError("away")

    monkeypatch.setattr(Assembler, "assemble", assemble)
    with pytest.raises(FtfileError, match="away"):
        ftfile.flush(out, threads=1)
    assert len(tried) == 1
