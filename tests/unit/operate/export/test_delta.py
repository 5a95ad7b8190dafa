"""Export to Delta: other programs read exactly the rows of the newest exported version."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import ftfile
import ftfile.operate.export.delta
from ftfile.core.errors import ConfigError, PermissionDenied
from ftfile.formats.parquet_files import check_library
from ftfile.log import apply as fold
from ftfile.operate.export.export import ExportReport
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.kit.parameters import parametrize
from tests.kit.rewriting import rewrite_without
from tests.unit.operate.export.formats import (
    COLUMNS,
    check_newest,
    commits,
    export,
    forget_follow_up,
    ids_of,
    keep_only,
    rows,
)
from tests.unit.tools.migrate.foreign import parquet
from tests.unit.writing.files.encrypted import ring

__all__ = ("ring",)

UTC = datetime.timezone.utc


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def delta_rows(url: str, version: int | None = None) -> list[dict[str, Any]]:
    """Return the rows that an independent implementation of Delta's protocol reads."""
    deltalake = pytest.importorskip("deltalake")
    table = deltalake.DeltaTable(url, version=version)
    found: list[dict[str, Any]] = table.to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["id"])


class TestVersions:
    @pytest.mark.slow
    @pytest.mark.packages
    def test_each_is_a_commit_with_its_rows(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        with pytest.raises(ConfigError, match="not an ftfile directory"):
            export(out)
        query.run(0, [rows(0)])
        assert export(out) == ExportReport(version=0, versions=1)
        for batch in range(1, 4):
            query.run(batch, [rows(2 * batch)])
        assert export(out) == ExportReport(version=3, versions=3)
        assert export(out) == ExportReport(version=3, versions=0)
        for version in range(4):
            assert [row["id"] for row in delta_rows(out, version)] == ids_of(out, version)
        check_newest(out)

    def test_the_first_has_all_rows_that_are_there(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        for batch in range(3):
            query.run(batch, [rows(2 * batch)])
        assert export(out) == ExportReport(version=2, versions=1)
        assert delta_rows(out) == rows(0, 6)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_overwrites_drops_and_compactions(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"partitionBy": "word"})
        query.run(0, [rows(0, 4)])
        export(out)
        for batch in range(1, 3):
            query.run(batch, [rows(0, 4)])
        ftfile.compact(out, context=current())
        ftfile.drop(out, {"word": "w1"}, context=current())
        assert export(out) == ExportReport(version=4, versions=0)
        check_newest(out)
        assert [row["id"] for row in delta_rows(out)] == [0, 0, 0, 2, 2, 2, 3, 3, 3]
        *_, compacted, dropped = commits(open_filesystem(out))
        changes = [
            [action[name]["dataChange"] for action in actions for name in action if name in {"add", "remove"}]
            for actions in (compacted, dropped)
        ]
        assert changes == [[False] * 16, [True]]
        MicroBatch(out, COLUMNS, {"partitionBy": "word"}, overwrite=True).run_batch_write("job", [rows(7)])
        export(out)
        assert delta_rows(out) == rows(7)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_rows_that_end_in_as_many_files(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        query.run(0, [rows(0), rows(2)])
        export(out)
        rewrite_without(out, pc.field("id").isin([1, 3]))
        export(out)
        assert [row["id"] for row in delta_rows(out)] == [0, 2]
        *_, rewritten = commits(open_filesystem(out))
        changes = [action[name]["dataChange"] for action in rewritten for name in action if name in {"add", "remove"}]
        assert changes == [True] * 4

    @pytest.mark.slow
    @pytest.mark.packages
    def test_new_columns(self, out: str) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        wider = MicroBatch(out, COLUMNS | {"more": "double"}, {"onSchemaChange": "widen"})
        wider.run(1, [[{"id": 9, "word": "x", "more": 1.5}]])
        export(out)
        assert delta_rows(out) == [row | {"more": None} for row in rows(0)] + [{"id": 9, "word": "x", "more": 1.5}]
        assert [row["id"] for row in delta_rows(out, 0)] == [0, 1]

    @pytest.mark.slow
    @pytest.mark.packages
    @pytest.mark.parametrize("before", [False, True])
    def test_more_definitions_than_the_head_remembers(
        self, out: str, monkeypatch: pytest.MonkeyPatch, *, before: bool
    ) -> None:
        monkeypatch.setattr(fold, "DEFINITIONS_KEPT", 4)
        for batch in range(20):
            columns = {"id": "long"} | {f"c{number}": "long" for number in range(batch % 11)}
            rest = {"onSchemaChange": "any"}
            MicroBatch(out, columns, rest).run(batch, [[dict.fromkeys(columns, batch)]])
            if before and batch == 1:
                export(out)
        assert len(ftfile.open(out).snapshot().definitions) > 2 * fold.DEFINITIONS_KEPT
        export(out)
        check_newest(out)
        schemas = [
            a["metaData"]["schemaString"]
            for actions in commits(open_filesystem(out))
            for a in actions
            if "metaData" in a
        ]
        assert schemas[-1] == ftfile.open(out).spark_schema()

    def test_open_files_are_told_and_come_when_they_are_finished(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"maxBatchesPerFile": "100"})
        query.run(0, [rows(0)])
        assert export(out) == ExportReport(version=0, versions=1, open_rows=2)
        assert delta_rows(out) == []
        ftfile.flush(out, context=current())
        assert export(out).open_rows == 0
        check_newest(out)
        assert delta_rows(out) == rows(0)
        adds = [action["add"] for action in commits(open_filesystem(out))[-1] if "add" in action]
        assert [add["dataChange"] for add in adds] == [True]

    @pytest.mark.slow
    def test_partition_values_of_every_type(self, out: str) -> None:
        values: dict[str, tuple[str, list[Any]]] = {
            "s": ("string", ["a b", "x/y%=", "ü'{[", None]),
            "d": ("date", [datetime.date(1, 1, 1), datetime.date(2026, 7, 8), None, datetime.date(9999, 12, 31)]),
            "t": ("timestamp", [datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), None] * 2),
            "n": ("timestamp_ntz", [datetime.datetime(2026, 1, 2, 3, 4, 5), None] * 2),  # noqa: DTZ001
            "b": ("boolean", [True, False, None, True]),
            "i": ("integer", [-(2**31), 2**31 - 1, 0, None]),
            "m": ("decimal(10,2)", [Decimal("1.50"), None, Decimal("0.00"), Decimal("99999999.99")]),
            "f": ("double", [1.5, -0.25, 1e300, None]),
        }
        for name, (kind, texts) in values.items():
            url = f"{out}-{name}"
            query = MicroBatch(url, {"id": "long", name: kind}, {"partitionBy": name})
            query.run(0, [[{"id": number, name: value} for number, value in enumerate(texts)]])
            export(url)
            assert delta_rows(url) == sorted(ftfile.open(url).to_arrow().to_pylist(), key=lambda row: row["id"])
            assert [row[name] for row in delta_rows(url)] == texts

    def test_partition_values_before_and_after_those_of_python(self, out: str) -> None:
        query = MicroBatch(out, {"id": "long", "d": "date", "t": "timestamp"}, {"partitionBy": "d,t"})
        query.run(0, [[{"id": 0, "d": 3_000_000, "t": 2**60}, {"id": 1, "d": -1_000_000, "t": -(2**59)}]])
        export(out)
        found = [action["add"]["partitionValues"] for action in commits(open_filesystem(out))[0] if "add" in action]
        assert sorted(found, key=repr) == [
            {"d": "+10183-09-21", "t": "+38504-08-17T21:30:06.846976Z"},
            {"d": "-0768-02-04", "t": "-16298-09-08T13:14:56.576512Z"},
        ]

    def test_decimals_in_migrated_directories_of_another_scale(self, out: str) -> None:
        """Readers take the values from the log, not from the paths."""
        parquet(Path(out, "n=1/part-0.parquet"), [1])
        ftfile.migrate(out, partition_by={"n": "decimal(20,1)"}, dry_run=False)
        export(out)
        assert delta_rows(out) == [{"id": 1, "n": Decimal("1.0")}]
        check_newest(out)

    def test_other_programs_refuse_to_write(self, out: str) -> None:
        deltalake = pytest.importorskip("deltalake")
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        with pytest.raises(Exception, match="ftfileExport"):
            deltalake.write_deltalake(out, deltalake.DeltaTable(out).to_pyarrow_table(), mode="append")
        assert delta_rows(out) == rows(0)

    @parametrize(
        ("before", "after"), [({}, {"partitionBy": "word"}), ({"partitionBy": "word"}, {})], quick=1, packages=True
    )
    def test_an_overwrite_by_other_partition_columns(
        self, out: str, monkeypatch: pytest.MonkeyPatch, before: dict[str, str], after: dict[str, str]
    ) -> None:
        monkeypatch.setattr(ftfile.operate.export.delta, "CHECKPOINT_EVERY", 2)
        MicroBatch(out, COLUMNS, before).run(0, [rows(0)])
        export(out)
        MicroBatch(out, COLUMNS, before).run(1, [rows(2)])
        MicroBatch(out, COLUMNS, after, overwrite=True).run_batch_write("job", [rows(5)])
        MicroBatch(out, COLUMNS, after | {"onNewQuery": "continue"}, query_id="next").run(0, [rows(7)])
        export(out)
        assert delta_rows(out) == rows(5, 4)
        check_newest(out)


class TestHistory:
    @pytest.mark.slow
    def test_a_checkpoint_stands_for_the_commits_before(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ftfile.operate.export.delta, "CHECKPOINT_EVERY", 3)
        query = MicroBatch(out, COLUMNS, {"partitionBy": "word"})
        for batch in range(5):
            query.run(batch, [rows(batch)])
            export(out)
        for number in range(3):
            (Path(out) / f"_delta_log/{number:020}.json").unlink()
        assert [row["id"] for row in delta_rows(out)] == ids_of(out)
        assert ftfile.operate.export.delta.DeltaLog(open_filesystem(out)).live_paths() == {
            file.path for file in ftfile.open(out).files()
        }
        query.run(5, [rows(5)])
        export(out)
        assert [row["id"] for row in delta_rows(out)] == ids_of(out)

    @pytest.mark.slow
    def test_old_commits_go(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ftfile.operate.export.delta, "CHECKPOINT_EVERY", 3)
        monkeypatch.setattr(ftfile.operate.export.delta, "COMMITS_KEPT", 5)
        query = MicroBatch(out, COLUMNS)
        for batch in range(13):
            query.run(batch, [rows(2 * batch)])
            export(out)
        names = sorted(path.name for path in Path(out, "_delta_log").iterdir())
        kept = [
            *(f"{number:020}.json" for number in range(6, 13)),
            *(f"{n:020}.checkpoint.parquet" for n in (6, 9, 12)),
        ]
        assert names == sorted(kept)
        assert delta_rows(out) == rows(0, 26)
        for version in range(6, 13):
            assert [row["id"] for row in delta_rows(out, version)] == ids_of(out, version)
        Path(out, "_delta_log", f"{12:020}.checkpoint.parquet").unlink()
        assert export(out) == ExportReport(version=12, versions=0)
        assert delta_rows(out) == rows(0, 26)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_old_commits_that_cannot_be_deleted_hold_nothing_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Kept(WrapperFileSystem):
            def delete(self, path: str) -> None:
                raise PermissionDenied("delete", path, "not now")

        monkeypatch.setattr(ftfile.operate.export.delta, "CHECKPOINT_EVERY", 1)
        monkeypatch.setattr(ftfile.operate.export.delta, "COMMITS_KEPT", 1)
        fs = Kept(CrashingFileSystem())
        with mounted(fs) as url:
            query = MicroBatch(url, COLUMNS)
            for batch in range(4):
                query.run(batch, [rows(2 * batch)])
                export(url)
            assert len(fs.list("_delta_log")) == 4 + 3

    @pytest.mark.slow
    def test_twelve_hundred_commits_are_bounded(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        query.run(0, [rows(0)])
        export(out)
        for batch in range(1, 1_201):
            query.run(batch, [rows(batch, 1)] if batch % 100 == 0 else [[]])
        export(out)
        kept = sorted(int(path.stem) for path in Path(out, "_delta_log").glob("*.json"))
        assert kept == list(range(200, 1_201))
        for version in (200, 777, 1_200):
            assert [row["id"] for row in delta_rows(out, version)] == ids_of(out, version)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_a_checkpoint_that_a_crash_left_out_comes_with_the_next_export(
        self, out: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A checkpoint is due after every few commits, and after the columns of a table with partitions changed."""
        monkeypatch.setattr(ftfile.operate.export.delta, "CHECKPOINT_EVERY", 3)
        query = MicroBatch(out, COLUMNS, {"partitionBy": "word", "onSchemaChange": "any"})
        query.run(0, [rows(0)])
        export(out)
        query.columns = {**COLUMNS, "more": "long"}
        for batch in range(1, 5):
            query.run(batch, [[row | {"more": 7} for row in rows(2 * batch)]])
            for versions in (1, 0):
                assert export(out) == ExportReport(version=batch, versions=versions)
                found = {int(path.name[:20]) for path in Path(out).glob("_delta_log/*.checkpoint.parquet")}
                assert found == {1, 3} & {batch - versions, batch}
                forget_follow_up(out)
        assert len(delta_rows(out)) == 10

    @pytest.mark.slow
    @pytest.mark.packages
    @pytest.mark.parametrize("every", [2, 100])
    @pytest.mark.parametrize("is_missing", [False, True])
    def test_versions_that_are_no_longer_kept_are_one_commit(
        self, out: str, monkeypatch: pytest.MonkeyPatch, every: int, *, is_missing: bool
    ) -> None:
        monkeypatch.setattr(ftfile.operate.export.delta, "CHECKPOINT_EVERY", every)
        query = MicroBatch(out, COLUMNS)
        for batch in range(3):
            query.run(batch, [rows(2 * batch)])
            export(out)
        ftfile.compact(out, context=current())
        for batch in range(3, 6):
            query.run(batch, [rows(2 * batch)])
        keep_only(out, 6)
        for checkpoint in Path(out).glob("_delta_log/*.checkpoint.parquet") if is_missing else ():
            checkpoint.unlink()
        assert export(out) == ExportReport(version=7, versions=1)
        check_newest(out)
        assert delta_rows(out) == rows(0, 12)

    def test_another_history_is_refused(self, out: str, tmp_path: Path) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        other = str(tmp_path / "other")
        MicroBatch(other, COLUMNS).run(0, [rows(5)])
        export(other)
        (Path(other) / "_delta_log").rename(Path(out) / "_delta_log")
        with pytest.raises(ConfigError, match="an export of another history"):
            export(out)

    def test_a_table_of_another_program_is_refused(self, out: str) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        foreign = Path(out) / f"_delta_log/{1:020}.json"
        foreign.write_text('{"commitInfo":{"operation":"WRITE"}}\n')
        with pytest.raises(ConfigError, match="another program wrote to this table"):
            export(out)


class TestRefusals:
    @pytest.mark.parametrize(
        ("columns", "options", "text"),
        [
            (COLUMNS, {"fileFormat": "json"}, "files are json"),
            (COLUMNS | {"a b": "long"}, {}, "column 'a b': Delta accepts no blank"),
            (COLUMNS | {"name": "string"}, {"fileNameColumn": "name"}, "column 'name' is only in the names of files"),
        ],
    )
    def test_what_delta_cannot_say(self, out: str, columns: dict[str, Any], options: dict[str, str], text: str) -> None:
        row = {"id": 1, "word": "w", "a b": 1, "name": "n"}
        MicroBatch(out, columns, options).run(0, [[{name: row[name] for name in columns}]])
        with pytest.raises(ConfigError, match=text):
            export(out)
        assert not (Path(out) / "_delta_log").exists()

    @pytest.mark.slow
    @pytest.mark.packages
    def test_older_files_of_another_type(self, out: str) -> None:
        MicroBatch(out, {"id": "integer"}).run(0, [[{"id": 1}]])
        export(out)
        MicroBatch(out, {"id": "long"}, {"onSchemaChange": "widen"}).run(1, [[{"id": 2**40}]])
        with pytest.raises(ConfigError, match="column 'id' is bigint, but older files contain int"):
            export(out)
        assert [row["id"] for row in delta_rows(out)] == [1]
        MicroBatch(out, {"id": "long"}, overwrite=True).run_batch_write("job", [[{"id": 2**41}]])
        assert export(out) == ExportReport(version=2, versions=1)
        assert [row["id"] for row in delta_rows(out)] == [2**41]
        check_newest(out)

    @pytest.mark.parametrize("kind", ["aes-gcm", "parquet"])
    def test_encrypted_files(self, out: str, ring: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        if kind == "parquet":
            try:
                check_library()
            except ConfigError as error:
                pytest.skip(str(error))
        monkeypatch.setenv("FTFILE_KEY_PROVIDER", f"file:{ring}")
        MicroBatch(out, COLUMNS, {"encryption": kind, "keyProvider": f"file:{ring}"}).run(0, [rows(0)])
        with pytest.raises(ConfigError, match="files are encrypted"):
            export(out)

    def test_stores_and_other_formats(self, out: str) -> None:
        StoreBatch(out, COLUMNS, {"keyColumns": "id"}).run(0, [rows(0)])
        with pytest.raises(ConfigError, match=r"ftfile\.kv"):
            export(out)
        with pytest.raises(ConfigError, match="to='hudi'"):
            ftfile.export(out, "hudi")
