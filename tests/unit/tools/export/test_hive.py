"""Export to Hive: lists of the files of one version, and statements for a metastore."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import ftfile
import ftfile.tools.export.hive
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.export.export import ExportReport
from tests.unit.tools.export.formats import COLUMNS, check_newest, ids_of, keep_only, rows
from tests.unit.tools.export.formats import export as export_to


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def export(url: str, table: str | None = None) -> ExportReport:
    return export_to(url, "hive", table=table)


class Metastore:
    """Keeps the locations that the statements say, as Hive does, and reads the lists there."""

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self.columns = ""  # of the table, and of its partitions

    def run(self, statements: tuple[str, ...]) -> None:
        for statement in statements:
            if statement.startswith("DROP TABLE IF EXISTS"):
                self.locations, self.columns = {}, ""
                continue
            if statement.startswith("CREATE"):
                self.columns = self.columns or statement.partition(" ROW FORMAT")[0]
            partition, location = (
                match[1] if (match := re.search(pattern, statement)) else ""
                for pattern in (r" PARTITION \((.*?)\)", r"LOCATION 'file://(.*?)'$")
            )
            if partition:
                names = re.findall(r"`(\w+)`=", partition)
                assert names == re.findall(r"`(\w+)`", self.columns.partition(" PARTITIONED BY")[2])
            if "DROP IF EXISTS" in statement:
                self.locations.pop(partition, None)
            elif "ADD IF NOT EXISTS" in statement or statement.startswith("CREATE"):
                if "PARTITIONED BY" not in statement:
                    self.locations.setdefault(partition, location)
            else:
                assert partition in self.locations
                self.locations[partition] = location

    def ids(self) -> list[int]:
        found: list[int] = []
        for location in self.locations.values():
            (manifest,) = Path(location).iterdir()
            for line in manifest.read_text().splitlines():
                found += pq.ParquetFile(line.removeprefix("file://")).read(["id"])["id"].to_pylist()
        return sorted(found)


class TestLists:
    @pytest.mark.parametrize("options", [{}, {"partitionBy": "word"}])
    def test_a_metastore_sees_one_version_until_the_statements_are_run(self, out: str, options: dict[str, str]) -> None:
        query, metastore = MicroBatch(out, COLUMNS, options), Metastore()
        for batch in range(4):
            query.run(batch, [rows(batch)])
            before = metastore.ids()
            report = export(out, "t")
            assert metastore.ids() == before
            metastore.run(report.statements)
            assert metastore.ids() == ids_of(out)
            assert report == ExportReport(version=batch, versions=1, statements=report.statements)
            check_newest(out, "hive")
        again = export(out, "t")
        assert again == ExportReport(version=3, versions=0, statements=report.statements)
        assert export(out).statements == ()

    def test_only_partitions_that_changed_have_a_new_list(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"partitionBy": "word"})
        for batch in range(3):
            query.run(batch, [rows(batch)])
            export(out)
        lists = sorted(str(path.relative_to(out)) for path in Path(out).glob("_symlink_format_manifest/*/*/manifest"))
        assert [path.split("/")[1:3] for path in lists] == [
            ["v0", "word=w0"], ["v0", "word=w1"], ["v1", "word=w1"], ["v1", "word=w2"], ["v2", "word=w2"],
            ["v2", "word=w3"],
        ]  # fmt: skip

    def test_partitions_that_are_gone_are_dropped(self, out: str) -> None:
        metastore = Metastore()
        MicroBatch(out, COLUMNS, {"partitionBy": "word"}).run(0, [rows(0, 3)])
        metastore.run(export(out, "t").statements)
        ftfile.drop(out, {"word": "w1"}, context=current())
        metastore.run(export(out, "t").statements)
        assert metastore.ids() == [0, 2]
        # Also by one who missed the statements of a version.
        missed = Metastore()
        missed.run(export(out, "t").statements)
        assert missed.ids() == [0, 2]

    @pytest.mark.slow
    def test_a_change_of_columns_makes_the_table_anew(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ftfile.tools.export.hive, "VERSIONS_KEPT", 3)
        metastore, missed = Metastore(), Metastore()
        query = MicroBatch(out, {**COLUMNS, "n": "long"}, {"partitionBy": "word"})
        query.run(0, [[{**row, "n": 7} for row in rows(0, 3)]])
        first = export(out, "t").statements
        metastore.run(first)
        missed.run(first)
        query.overwrite = True
        for batch, names in enumerate(["n", "", "word"], 1):
            query.options = {"partitionBy": names} if names else {}
            query.run(batch, [[{**row, "n": 7} for row in rows(batch, 3)]])
            statements = export(out, "t").statements
            assert statements[0] == "DROP TABLE IF EXISTS t"
            metastore.run(statements)
            assert metastore.ids() == ids_of(out)
        missed.run(statements)
        assert missed.ids() == ids_of(out)
        query.overwrite = False
        query.columns, query.options = (
            COLUMNS | {"n": "long", "m": "long"},
            {**query.options, "onSchemaChange": "widen"},
        )
        query.run(4, [[{**row, "n": 7, "m": 1} for row in rows(8)]])
        metastore.run(export(out, "t").statements)
        assert "`m` bigint" in metastore.columns
        assert metastore.ids() == ids_of(out)
        # Those who miss it for as long as lists are kept make the table anew.
        for batch in range(5, 8):
            assert export(out, "t").statements[0] == "DROP TABLE IF EXISTS t"
            query.run(batch, [[{**row, "n": 7, "m": 1} for row in rows(batch)]])
            metastore.run(export(out, "t").statements)
            assert metastore.ids() == ids_of(out)
        assert export(out, "t").statements[0].startswith("CREATE")

    def test_values_are_quoted(self, out: str) -> None:
        words = ["it's", "a/b", "x\\y", None]
        query = MicroBatch(out, COLUMNS, {"partitionBy": "word"})
        query.run(0, [[{"id": at, "word": word} for at, word in enumerate(words)]])
        statements = export(out, "t").statements
        values = {match[1] for each in statements if (match := re.search(r"ADD .* PARTITION \((.*?)\) LOC", each))}
        assert values == {
            r"`word`='it\'s'", "`word`='a/b'", r"`word`='x\\y'", "`word`='__HIVE_DEFAULT_PARTITION__'",
        }  # fmt: skip

    def test_the_table_has_hives_types(self, out: str) -> None:
        point = {"type": "struct", "fields": [{"name": "x", "type": "short", "nullable": True, "metadata": {}}]}
        columns = {
            "id": "long", "b": "byte", "d": "decimal(10,2)", "p": point, "day": "date",
            "m": {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True},
            "a": {"type": "array", "elementType": "float", "containsNull": True},
        }  # fmt: skip
        MicroBatch(out, columns, {"partitionBy": "day"}).run(0, [[]])
        create, *_ = export(out, "db.t").statements
        assert create.startswith(
            "CREATE EXTERNAL TABLE IF NOT EXISTS db.t (`id` bigint, `b` tinyint, `d` decimal(10,2), "
            "`p` struct<`x`:smallint>, `m` map<string,int>, `a` array<float>) PARTITIONED BY (`day` date) ROW FORMAT"
        )

    def test_values_end_no_line_and_no_statement(self, out: str) -> None:
        value = "a\n'; DROP TABLE u; --\x1b[2J\u2028"
        MicroBatch(out, COLUMNS, {"partitionBy": "word"}).run(0, [[{"id": 1, "word": value}]])
        add = next(each for each in export(out, "t").statements if " ADD " in each)
        assert all(each.isprintable() for each in export(out, "t").statements)
        assert r"(`word`='a\u000a\'; DROP TABLE u; --\u001b[2J\u2028') LOCATION" in add

    @pytest.mark.parametrize("name", ["a`b", "a:b", "a\rb"])
    def test_names_of_fields_that_hive_cannot_have(self, out: str, name: str) -> None:
        inner = {"type": "struct", "fields": [{"name": name, "type": "short", "nullable": True, "metadata": {}}]}
        kind = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
        MicroBatch(out, {"id": "long", "m": kind}).run(0, [[]])
        with pytest.raises(ConfigError, match=f"column {re.escape(repr(f'm.{name}'))}: Hive takes none of"):
            export(out, "t")

    def test_old_lists_go(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ftfile.tools.export.hive, "VERSIONS_KEPT", 2)
        query = MicroBatch(out, COLUMNS, {"partitionBy": "word"})
        for batch in range(5):
            query.run(batch, [rows(batch)])
            export(out)
            check_newest(out, "hive")
        lists = sorted(str(path.relative_to(out)) for path in Path(out).glob("_symlink_format_manifest/*/*/manifest"))
        assert [path.split("/")[1:3] for path in lists] == [
            ["v0", "word=w0"], ["v1", "word=w1"], ["v2", "word=w2"], ["v3", "word=w3"], ["v3", "word=w4"],
            ["v4", "word=w4"], ["v4", "word=w5"],
        ]  # fmt: skip

    def test_records_that_are_no_longer_kept(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        for batch in range(4):
            query.run(batch, [rows(2 * batch)])
        export(out)
        query.run(4, [rows(8)])
        keep_only(out, 4)
        assert export(out, "t").versions == 1
        check_newest(out, "hive")

    @pytest.mark.parametrize("table", ["t", "Db_1.t2", "`my-db`.`a table`", "db.`t`"])
    def test_names_of_tables(self, out: str, table: str) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        assert f" EXISTS {table} (" in export(out, table).statements[0]


class TestRefusals:
    @pytest.mark.parametrize(
        "table", ["", "t; DROP TABLE u", "a.b.c", "a b", "t (x int)", "`a`b`", "my-t", "t\n", "`a\n`"]
    )
    def test_what_is_no_name_of_a_table(self, out: str, table: str) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        with pytest.raises(ConfigError, match=r"it takes `name` or `database\.name`"):
            export(out, table)

    def test_another_history_is_refused(self, out: str, tmp_path: Path) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        other = str(tmp_path / "other")
        MicroBatch(other, COLUMNS).run(0, [rows(5)])
        export(other)
        (Path(other) / "_symlink_format_manifest").rename(Path(out) / "_symlink_format_manifest")
        with pytest.raises(ConfigError, match="an export of another history"):
            export(out)

    def test_a_moved_directory_is_told(self, out: str) -> None:
        """Its lists name files at the old place."""
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        moved = f"{out}-moved"
        Path(out).rename(moved)
        with pytest.raises(ConfigError, match=r"out-moved/'\. .* delete '_symlink_format_manifest' to export anew"):
            export(moved, "t")

    def test_a_damaged_state_is_told(self, out: str) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        open_filesystem(out).put("_symlink_format_manifest/v0.json", b"{}")
        with pytest.raises(CorruptData, match="the lists of a version"):
            export(out)

    def test_types_that_hive_does_not_have(self, out: str) -> None:
        MicroBatch(out, {"id": "long", "t": "timestamp_ntz"}).run(0, [[]])
        with pytest.raises(ConfigError, match="column 't' is of type timestamp_ntz, which Hive does not have"):
            export(out)
