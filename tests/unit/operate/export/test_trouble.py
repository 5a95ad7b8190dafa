"""Exports to each format during crashes, faults, and other exports."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ConfigError, NotPublished, PermissionDenied
from ftfile.log import checkpoints, publish
from ftfile.log.commit_log import CommitLog
from ftfile.operate.export.export import ExportReport
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem, crash_states
from ftfile.testing.fs.faulty import STANDARD_FAULTS, Fault, fault_sweep
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH, some
from tests.kit.parameters import parametrize
from tests.unit.operate.export.formats import COLUMNS, MOUNTED, check_newest, count_commits, export, rows

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileInfo, FileSystem

FORMATS = ("delta", "iceberg")
DIRECTORIES = {"delta": "_delta_log", "iceberg": "_iceberg/metadata"}
COMMITS = {
    "delta": re.compile("_delta_log/"),
    "iceberg": re.compile(r"_iceberg/metadata/v\d+\.metadata\.json"),
}
# The suite tries each fault with one format, and each format with one fault. `make long` tries all pairs.
PAIRS = list((itertools.product if THOROUGH else zip)(STANDARD_FAULTS, FORMATS if THOROUGH else FORMATS * 3))


@pytest.fixture(autouse=True)
def one_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.operate.export.export.normalise", lambda _: MOUNTED)


class TestTrouble:
    @pytest.mark.parametrize("to", FORMATS)
    def test_files_that_are_not_published_yet_are_waited_for(self, to: str) -> None:
        class Stuck(WrapperFileSystem):
            is_stuck = True

            def rename(self, source: str, target: str) -> None:
                if self.is_stuck and "part-0000000001" in target:
                    raise PermissionDenied("rename", target, "not now")
                super().rename(source, target)

        fs = Stuck(CrashingFileSystem())
        with mounted(fs) as url:
            query = MicroBatch(url, COLUMNS)
            query.run(0, [rows(0)])
            with pytest.raises(NotPublished):
                query.run(1, [rows(2)])
            MicroBatch(url, COLUMNS, {"onNewQuery": "continue"}, query_id="other").run(0, [rows(4)])
            assert export(url, to) == ExportReport(version=0, versions=1, waiting=2)
            fs.is_stuck = False
            assert export(url, to) == ExportReport(version=2, versions=2)
            check_newest(url, to)

    @pytest.mark.parametrize("to", FORMATS)
    def test_the_first_rows_of_a_directory_are_waited_for(self, to: str) -> None:
        """A table needs columns, which an opening of a writer, or a position, does not have."""

        class Stuck(WrapperFileSystem):
            is_stuck = True

            def rename(self, source: str, target: str) -> None:
                if self.is_stuck and "part-" in target:
                    raise PermissionDenied("rename", target, "not now")
                super().rename(source, target)

        fs = Stuck(CrashingFileSystem())
        with mounted(fs) as url:
            with ftfile.writer(url, "app") as writer:
                writer.commit("a position")
            assert export(url, to) == ExportReport(version=1)
            with pytest.raises(NotPublished):
                MicroBatch(url, COLUMNS).run(0, [rows(0)])
            assert ftfile.export(url, to, dry_run=True) == ExportReport(version=1, waiting=1, dry_run=True)
            assert export(url, to) == ExportReport(version=1, waiting=1)
            assert not open_filesystem(url).exists(DIRECTORIES[to].partition("/")[0])
            fs.is_stuck = False
            assert export(url, to) == ExportReport(version=2, versions=1)
            check_newest(url, to)

    @pytest.mark.parametrize("is_exported", [False, True])
    @pytest.mark.parametrize("to", FORMATS)
    def test_versions_may_be_vacuumed_while_a_later_one_is_waited_for(
        self, to: str, is_exported: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The log then begins with the version that is waited for."""

        class Stuck(WrapperFileSystem):
            is_stuck = True

            def rename(self, source: str, target: str) -> None:
                if self.is_stuck and "part-0000000010" in target:
                    raise PermissionDenied("rename", target, "not now")
                super().rename(source, target)

        monkeypatch.setattr(checkpoints, "CHECKPOINT_MIN_BYTES", 2 * checkpoints.RECORD_COST_BYTES)
        monkeypatch.setattr(publish, "COMPACTED_EVERY", 2)
        clock = ManualClock()
        fs = Stuck(CrashingFileSystem(clock=clock))
        with repeatable(clock), mounted(fs) as url:
            query = MicroBatch(url, COLUMNS)
            for number in range(10):
                query.run(number, [rows(2 * number)])
                if number == 0 and is_exported:
                    export(url, to)
            with pytest.raises(NotPublished):
                query.run(10, [rows(20)])
            for number in range(10):
                MicroBatch(url, COLUMNS, {"onNewQuery": "continue"}, query_id="other").run(number, [rows(30 + number)])
            for _ in range(2):
                clock.advance(8 * 86_400)
                MicroBatch(url, COLUMNS, {"onNewQuery": "continue"}).run_batch_write(current().ids.unique(), [rows(50)])
                ftfile.vacuum(url, dry_run=False, context=current())
            assert CommitLog(fs).refresh().log_start == 10
            assert export(url, to).versions == 0
            fs.is_stuck = False
            assert export(url, to).versions == 1
            check_newest(url, to)

    @parametrize(
        ("name", "to"),
        [*itertools.product(["a\tb", "a\nb", "a\x7fb"], FORMATS), ("a#b", "iceberg"), ("a?b", "iceberg")],
        quick=1,
        packages=True,
    )
    def test_a_name_that_no_reader_opens_is_refused(self, name: str, to: str, tmp_path: Path) -> None:
        """ftfile never writes this name, but a migration does not rename files. An overwrite replaces the file."""
        pq.write_table(pa.Table.from_pylist(rows(0)), tmp_path / f"{name}.parquet")
        url = str(tmp_path)
        ftfile.migrate(url, dry_run=False, context=current())
        for dry_run in (True, False):
            with pytest.raises(ConfigError, match=re.escape(f"{name}.parquet"[1:].encode("unicode_escape").decode())):
                export(url, to, dry_run=dry_run)
        assert not (tmp_path / DIRECTORIES[to]).exists()
        MicroBatch(url, COLUMNS, overwrite=True).run_batch_write("job", [rows(2)])
        assert export(url, to) == ExportReport(version=1, versions=1)

    @pytest.mark.parametrize("name", ["a#b", "a?b"])
    def test_a_directory_in_whose_name_a_url_ends_is_refused(
        self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("ftfile.operate.export.export.normalise", lambda path: f"file://{path}")
        url = str(tmp_path / name)
        MicroBatch(url, COLUMNS).run(0, [rows(0)])
        with pytest.raises(ConfigError, match=re.escape(f"the directory 'file://{url}/' contains `#`, `?`")):
            export(url, "iceberg")
        assert not (tmp_path / name / "_iceberg").exists()
        assert export(url, "delta") == ExportReport(version=0, versions=1)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("fault", "to"), PAIRS, ids=[f"{to}-{fault.error.__name__}-{fault.effect}" for fault, to in PAIRS]
    )
    def test_after_any_fault_an_export_goes_on(self, fault: Fault, to: str) -> None:
        def make() -> CrashingFileSystem:
            fs = CrashingFileSystem()
            with mounted(fs) as url:
                query = MicroBatch(url, COLUMNS)
                query.run(0, [rows(0)])
                export(url, to)
                query.run(1, [rows(2)])
                MicroBatch(url, COLUMNS, overwrite=True).run_batch_write("job", [rows(4)])
            return fs

        def scenario(fs: FileSystem) -> None:
            with mounted(fs) as url:
                export(url, to)

        runs = 0
        with repeatable():
            for run in fault_sweep(fault, make, scenario):
                runs += 1
                with mounted(run.file_system) as url:
                    export(url, to)
                    check_newest(url, to)
                    assert count_commits(run.file_system, to) == 3, str(run)
        assert runs > 5

    @pytest.mark.slow
    @pytest.mark.parametrize("to", FORMATS)
    def test_after_any_crash_of_a_batch_or_an_export_the_next_one_goes_on(self, to: str, seed: int) -> None:
        """The suite tries a third of the disks that a crash may leave."""
        fs = CrashingFileSystem()
        with mounted(fs) as url:
            query = MicroBatch(url, COLUMNS)
            query.run(0, [rows(0)])
            export(url, to)
            fs.note("exported")
            query.run(1, [rows(2)])
            export(url, to)
        states = [state for state in crash_states(fs, seen=set()) if "exported" in state.notes]
        assert len(states) > 10
        for state in some(states, seed, 1 / 3):
            with mounted(state.filesystem()) as url:
                MicroBatch(url, COLUMNS).run(1, [rows(2)])
                export(url, to)
                check_newest(url, to)
                assert count_commits(open_filesystem(url), to) == 2, str(state)

    @parametrize("to", FORMATS, quick=1, packages=True)
    def test_files_that_a_repair_gave_up_go(self, to: str, tmp_path: Path) -> None:
        """The record of the repair has other paths, so it publishes no file. Later versions are normal commits."""
        url = str(tmp_path)
        query = MicroBatch(url, COLUMNS)
        for batch in range(2):
            query.run(batch, [rows(2 * batch)])
        export(url, to)
        lost = min(file.path for file in ftfile.open(url).files())
        (tmp_path / lost).unlink()
        assert ftfile.repair(url, dry_run=False, give_up=[lost], context=current()).ok
        query.run(2, [rows(4)])
        export(url, to)
        check_newest(url, to)
        assert count_commits(open_filesystem(url), to) == 3

    @pytest.mark.parametrize("to", FORMATS)
    def test_another_export_may_be_further(self, to: str) -> None:
        inner = CrashingFileSystem()

        class Rival(WrapperFileSystem):
            armed = True

            def list(self, path: str) -> list[FileInfo]:
                if path == DIRECTORIES[to] and self.armed:
                    self.armed = False
                    with mounted(inner) as raced:
                        MicroBatch(raced, COLUMNS).run(1, [rows(2)])
                        export(raced, to)
                return super().list(path)

        with mounted(inner) as url:
            MicroBatch(url, COLUMNS).run(0, [rows(0)])
            export(url, to)
        with mounted(Rival(inner)) as url:
            assert export(url, to) == ExportReport(version=1, versions=0)

    @pytest.mark.parametrize("to", FORMATS)
    def test_of_two_exports_each_commit_is_one_of_theirs(self, to: str) -> None:
        inner = CrashingFileSystem()

        class Rival(WrapperFileSystem):
            armed = 2

            def create_exclusive(self, path: str, content: bytes) -> None:
                if COMMITS[to].match(path) and self.armed:
                    self.armed -= 1
                    with mounted(inner) as raced:
                        export(raced, to)
                super().create_exclusive(path, content)

        with mounted(inner) as url:
            query = MicroBatch(url, COLUMNS)
            for batch in range(3):
                query.run(batch, [rows(2 * batch)])
        with mounted(Rival(inner)) as url:
            assert export(url, to) == ExportReport(version=2, versions=0)
        with mounted(inner) as url:
            check_newest(url, to)
            assert count_commits(inner, to) == 1
