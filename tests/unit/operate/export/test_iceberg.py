"""Export to Iceberg: other programs read exactly the rows of each exported version."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import shutil
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

import ftfile
import ftfile.operate.export.iceberg
import ftfile.operate.export.iceberg_manifests
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.operate.export.export import ExportReport
from ftfile.operate.export.iceberg_schemas import FieldIds
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.kit.parameters import parametrize
from tests.unit.operate.export.formats import (
    COLUMNS,
    HINT,
    METADATA,
    check_newest,
    iceberg_entries,
    iceberg_manifests,
    iceberg_metadata,
    ids_of,
    keep_only,
    rows,
)
from tests.unit.operate.export.formats import export as export_to

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem

UTC = datetime.timezone.utc


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "o t")


def export(url: str, *, dry_run: bool = False) -> ExportReport:
    return export_to(url, "iceberg", dry_run=dry_run)


def table_rows(url: str, version: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a version of the directory, as an independent implementation of Iceberg reads them."""
    table = pytest.importorskip("pyiceberg.table")
    opened = table.StaticTable.from_metadata(f"{url}/_iceberg")
    scan = opened.scan() if version is None else opened.scan(snapshot_id=version + 1)
    found: list[dict[str, Any]] = scan.to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def own_rows(url: str, version: int | None = None) -> list[dict[str, Any]]:
    return sorted(ftfile.open(url).to_arrow(version).to_pylist(), key=lambda row: row["id"])


@pytest.fixture
def few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ftfile.operate.export.iceberg, "SNAPSHOTS_KEPT", 3)
    monkeypatch.setattr(ftfile.operate.export.iceberg, "METADATA_KEPT", 2)
    monkeypatch.setattr(ftfile.operate.export.iceberg, "EXPIRE_EVERY", 4)
    monkeypatch.setattr(ftfile.operate.export.iceberg_manifests, "SMALL_MANIFESTS", 3)


def check_bounds(fs: FileSystem) -> None:
    """Check that with `few_kept`, the only existing files are those needed by two commits and three snapshots."""
    metadata = iceberg_metadata(fs)
    assert len(metadata) == 2
    start, snapshots = metadata[-1]["location"].removesuffix("_iceberg"), metadata[-1]["snapshots"]
    assert len(snapshots) == 3
    lists = {snapshot["manifest-list"].removeprefix(start) for snapshot in snapshots}
    manifests = {
        entry["manifest_path"].removeprefix(start)  # type: ignore[index, call-overload]
        for path in lists
        for entry in fastavro.reader(io.BytesIO(fs.read(path)))
    }
    newest = metadata[-1]["last-sequence-number"]
    names = {HINT, *(f"{METADATA}/v{number}.metadata.json" for number in (newest - 1, newest))}
    assert {info.path for info in fs.list(METADATA)} == names | lists | manifests


def newest(url: str) -> dict[str, Any]:
    return iceberg_metadata(open_filesystem(url))[-1]


class TestVersions:
    @pytest.mark.packages
    @pytest.mark.slow
    def test_each_is_a_snapshot_with_its_rows(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        query.run(0, [rows(0)])
        assert export(out) == ExportReport(version=0, versions=1)
        for batch in range(1, 4):
            query.run(batch, [rows(2 * batch)])
        assert export(out) == ExportReport(version=3, versions=3)
        assert export(out) == ExportReport(version=3, versions=0)
        for version in range(4):
            assert table_rows(out, version) == own_rows(out, version)
        check_newest(out, "iceberg")
        assert (Path(out) / METADATA / "version-hint.text").read_text() == "4"
        snapshots = newest(out)["snapshots"]
        assert [each["summary"]["ftfile.version"] for each in snapshots] == ["0", "1", "2", "3"]
        assert [each["summary"]["total-records"] for each in snapshots] == ["2", "4", "6", "8"]
        created = [version.time_ms for version in ftfile.open(out).history()]
        assert [each["timestamp-ms"] for each in snapshots] == pytest.approx(created, abs=1)

    def test_only_what_changed_is_written(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        for batch in range(3):
            query.run(batch, [rows(2 * batch)])
            export(out)
        # Each version has a manifest and a manifest list.
        names = [path.name.partition("-")[0] for path in (Path(out) / METADATA).glob("*-m-*.avro")]
        assert sorted(names) == ["1", "2", "3"]
        assert len(list((Path(out) / METADATA).glob("snap-*.avro"))) == 3

    @pytest.mark.slow
    def test_overwrites_drops_and_compactions(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"partitionBy": "word"})
        query.run(0, [rows(0, 4)])
        export(out)
        for batch in range(1, 3):
            query.run(batch, [rows(0, 4)])
        ftfile.compact(out, context=current())
        ftfile.drop(out, {"word": "w1"}, context=current())
        assert export(out) == ExportReport(version=4, versions=0)
        check_newest(out, "iceberg")
        assert table_rows(out) == own_rows(out)
        assert [row["id"] for row in table_rows(out)] == [0, 0, 0, 2, 2, 2, 3, 3, 3]
        metadata = newest(out)
        assert [each["summary"]["operation"] for each in metadata["snapshots"]] == [
            "append", "append", "append", "replace", "delete",
        ]  # fmt: skip
        entries = iceberg_entries(open_filesystem(out), metadata)
        deleted = [entry for entry in entries if entry["status"] == 2]
        assert [(each["snapshot_id"], each["data_file"]["partition"]) for each in deleted] == [(5, {"word": "w1"})]
        MicroBatch(out, COLUMNS, {"partitionBy": "word"}, overwrite=True).run_batch_write("job", [rows(7)])
        export(out)
        assert table_rows(out) == rows(7)
        assert newest(out)["snapshots"][-1]["summary"]["operation"] == "overwrite"

    @pytest.mark.slow
    def test_new_wider_and_nested_columns(self, out: str) -> None:
        point = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}]}
        MicroBatch(out, {"id": "integer", "p": point}).run(0, [[{"id": 1, "p": {"x": 5}}]])
        export(out)
        wide = {"type": "struct", "fields": [{**point["fields"][0], "type": "long"}]}  # type: ignore[dict-item]
        texts = {"type": "array", "elementType": "string", "containsNull": True}
        pairs = {"type": "map", "keyType": "string", "valueType": point, "valueContainsNull": True}
        columns = {"id": "long", "p": wide, "a": texts, "m": pairs}
        MicroBatch(out, columns, {"onSchemaChange": "any"}).run(
            1, [[{"id": 2**40, "p": {"x": 2**50}, "a": ["u", None], "m": {"k": {"x": 1}}}]]
        )
        export(out)
        assert table_rows(out) == own_rows(out)
        assert table_rows(out, 0) == [{"id": 1, "p": {"x": 5}}]
        fields = [{field["name"]: field["id"] for field in schema["fields"]} for schema in newest(out)["schemas"]]
        assert fields[1].items() >= fields[0].items()

    @pytest.mark.slow
    @pytest.mark.packages
    def test_a_column_that_comes_back_is_the_same(self, out: str) -> None:
        rest = {"onSchemaChange": "any"}
        for batch, names in enumerate((["id", "word"], ["id"], ["id", "word"])):
            columns = {name: COLUMNS[name] for name in names}
            MicroBatch(out, columns, rest).run(batch, [[{"id": batch, "word": "w"} if "word" in names else {"id": 1}]])
            export(out)
        assert table_rows(out) == own_rows(out)
        assert [row["word"] for row in table_rows(out)] == ["w", None, "w"]
        assert len(newest(out)["schemas"]) == 2

    @pytest.mark.slow
    @pytest.mark.packages
    def test_open_files_are_told_and_come_when_they_are_finished(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"maxBatchesPerFile": "100"})
        query.run(0, [rows(0)])
        assert export(out) == ExportReport(version=0, versions=1, open_rows=2)
        assert table_rows(out) == []
        ftfile.flush(out, context=current())
        assert export(out).open_rows == 0
        assert table_rows(out) == rows(0)
        assert newest(out)["snapshots"][-1]["summary"]["operation"] == "append"

    @pytest.mark.slow
    @pytest.mark.packages
    def test_partition_values_of_every_type(self, out: str) -> None:
        values: dict[str, tuple[str, list[Any]]] = {
            "s 1": ("string", ["a b", "x/y%=", "ü'{[", None]),
            "d": ("date", [datetime.date(1, 1, 1), datetime.date(2026, 7, 8), None, datetime.date(9999, 12, 31)]),
            "t": ("timestamp", [datetime.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), None] * 2),
            "n": ("timestamp_ntz", [datetime.datetime(2026, 1, 2, 3, 4, 5), None] * 2),  # noqa: DTZ001
            "b": ("boolean", [True, False, None, True]),
            "i": ("integer", [-(2**31), 2**31 - 1, 0, None]),
            "y": ("byte", [-1, 127, 0, None]),
            "m": ("decimal(10,2)", [Decimal("-1.50"), None, Decimal("0.00"), Decimal("99999999.99")]),
            "f": ("double", [1.5, -0.25, 2.0**90, None]),
        }
        columns = {"id": "long"} | {name: kind for name, (kind, _) in values.items()}
        query = MicroBatch(out, columns, {"partitionBy": ",".join(values)})
        given = [{"id": at, **{name: texts[at] for name, (_, texts) in values.items()}} for at in range(4)]
        query.run(0, [given])
        export(out)
        assert table_rows(out) == given == own_rows(out)
        ftfile.drop(out, {"i": 0}, context=current())  # its manifest is read and rewritten
        export(out)
        assert table_rows(out) == [row for row in given if row["id"] != 2]

    @parametrize(
        ("before", "after"), [({}, {"partitionBy": "word"}), ({"partitionBy": "word"}, {})], quick=1, packages=True
    )
    def test_an_overwrite_by_other_partition_columns(
        self, out: str, before: dict[str, str], after: dict[str, str]
    ) -> None:
        MicroBatch(out, COLUMNS, before).run(0, [rows(0)])
        export(out)
        MicroBatch(out, COLUMNS, after, overwrite=True).run_batch_write("job", [rows(5)])
        MicroBatch(out, COLUMNS, after | {"onNewQuery": "continue"}, query_id="next").run(0, [rows(7)])
        export(out)
        assert table_rows(out) == rows(5, 4)
        check_newest(out, "iceberg")
        assert len(newest(out)["partition-specs"]) == 2

    def test_directories_that_are_no_columns(self, out: str) -> None:
        columns = COLUMNS | {"at": "timestamp"}
        query = MicroBatch(out, columns, {"directoryPattern": "at:yyyy-MM-dd", "partitionBy": "word"})
        given = [{**row, "at": datetime.datetime(2026, 1, 2 + row["id"], tzinfo=UTC)} for row in rows(0, 3)]
        query.run(0, [given])
        export(out)
        assert table_rows(out) == given
        assert [field["name"] for field in newest(out)["partition-specs"][0]["fields"]] == ["word"]


class TestMetadata:
    @pytest.mark.packages
    @pytest.mark.slow
    def test_many_small_manifests_are_merged(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ftfile.operate.export.iceberg_manifests, "SMALL_MANIFESTS", 3)
        query = MicroBatch(out, COLUMNS)
        for batch in range(9):
            query.run(batch, [rows(2 * batch)])
            export(out)
            metadata = newest(out)
            assert len(iceberg_manifests(open_filesystem(out), metadata)) <= 3
            assert [row["id"] for row in table_rows(out)] == ids_of(out)
        entries = iceberg_entries(open_filesystem(out), metadata)
        assert sorted(entry["sequence_number"] for entry in entries) == list(range(1, 10))
        check_newest(out, "iceberg")
        for version in range(9):
            assert [row["id"] for row in table_rows(out, version)] == ids_of(out, version)

    def test_a_manifest_has_a_bounded_number_of_files(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ftfile.operate.export.iceberg_manifests, "MANIFEST_FILES", 4)
        MicroBatch(out, COLUMNS, {"partitionBy": "word"}).run(0, [rows(0, 10)])
        export(out)
        manifests = iceberg_manifests(open_filesystem(out), newest(out))
        assert [each["added_files_count"] for each in manifests] == [4, 4, 2]
        check_newest(out, "iceberg")

    @pytest.mark.slow
    @pytest.mark.packages
    @pytest.mark.usefixtures("few_kept")
    def test_old_snapshots_and_metadata_go(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        for batch in range(8):
            query.run(batch, [rows(2 * batch)])
            export(out)
        check_bounds(open_filesystem(out))
        for version in (5, 6, 7):
            assert [row["id"] for row in table_rows(out, version)] == ids_of(out, version)
        for batch in range(8, 11):
            query.run(batch, [rows(2 * batch)])
            export(out)
            assert [row["id"] for row in table_rows(out)] == ids_of(out)
        assert len(iceberg_metadata(open_filesystem(out))) == 5

    @pytest.mark.slow
    @pytest.mark.packages
    @pytest.mark.usefixtures("few_kept")
    @pytest.mark.parametrize("operation", ["put", "delete"])
    def test_what_killed_exports_leave_goes(self, operation: str) -> None:
        """An export is killed after a commit or while it deletes. Files that it never named are deleted, too."""

        class Killed(BaseException):
            pass

        class Dying(WrapperFileSystem):
            def put(self, path: str, content: bytes) -> None:
                self._die("put", f"{path} {content!r}")
                super().put(path, content)

            def delete(self, path: str) -> None:
                self._die("delete", path)
                super().delete(path)

            def _die(self, name: str, call: str) -> None:
                if name == operation and METADATA in call and version < 12 and call not in dead:
                    dead.add(call)
                    raise Killed

        version, dead = 0, set[str]()
        fs = CrashingFileSystem()
        with mounted(Dying(fs)) as url:
            query = MicroBatch(url, COLUMNS, overwrite=True)
            for version in range(16):
                query.run_batch_write(f"job {version}", [rows(version)])
                with contextlib.suppress(Killed):
                    export(url)
                if version == 5:
                    for name in ("5-m-", "snap-5-"):
                        fs.put(
                            f"{METADATA}/{name}{0:032x}.avro", b"of a commit that another export was first to create"
                        )
            check_newest(url, "iceberg")
        assert len(dead) >= (12 if operation == "put" else 3)
        check_bounds(fs)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_versions_that_are_no_longer_kept_are_one_snapshot(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        for batch in range(3):
            query.run(batch, [rows(2 * batch)])
            export(out)
        ftfile.compact(out, context=current())
        for batch in range(3, 6):
            query.run(batch, [rows(2 * batch)])
        keep_only(out, 6)
        assert export(out) == ExportReport(version=7, versions=1)
        check_newest(out, "iceberg")
        assert table_rows(out) == rows(0, 12)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_a_repeated_export_writes_no_second_manifests(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS)
        query.run(0, [rows(0)])
        export(out)
        query.run(1, [rows(2)])
        export(out)
        before = {path.name for path in (Path(out) / METADATA).iterdir()}
        (Path(out) / METADATA / "v2.metadata.json").unlink()  # as if the process had crashed just before
        export(out)
        assert {path.name for path in (Path(out) / METADATA).iterdir()} == before
        assert table_rows(out) == rows(0, 4)

    def test_plain_readers_overlook_it(self, out: str) -> None:
        import pyarrow.dataset

        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        assert pyarrow.dataset.dataset(out).to_table().num_rows == 2


@pytest.mark.slow
def test_ids_of_many_columns_are_found_at_once() -> None:
    """Each commit assigns the ids, so the time must not grow with the square of the number of columns."""
    fields = [{"name": f"c{number}", "type": "long", "nullable": True, "metadata": {}} for number in range(20_000)]
    schema = json.dumps({"type": "struct", "fields": fields})
    began_s = time.process_time()
    ids = FieldIds("[]")
    ids.schema(schema)
    again = FieldIds(ids.name_mapping())
    assert again.schema(schema)[-1] == {"id": 20_000, "name": "c19999", "required": False, "type": "long"}
    assert again.name_mapping() == ids.name_mapping()
    assert time.process_time() - began_s < 5


class TestOthers:
    def test_another_history_is_refused(self, out: str) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        metadata = Path(out) / "_iceberg"
        metadata.rename(Path(out).parent / "kept")
        (Path(out).parent / "gone").mkdir()
        Path(out).rename(Path(out).parent / "gone" / "out")
        MicroBatch(out, COLUMNS).run(0, [rows(5)])
        (Path(out).parent / "kept").rename(metadata)
        with pytest.raises(ConfigError, match="an export of another history"):
            export(out)

    def test_a_moved_directory_is_told(self, out: str) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        moved = f"{out}-moved"
        Path(out).rename(moved)
        with pytest.raises(ConfigError, match="Iceberg names files by absolute paths"):
            export(moved)

    def test_pyiceberg_refuses_to_write(self, out: str) -> None:
        table = pytest.importorskip("pyiceberg.table")
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        with pytest.raises(ValueError, match="read_only_export_of_ftfile"):
            table.StaticTable.from_metadata(f"{out}/{METADATA}/v1.metadata.json").location_provider()

    def test_a_write_of_another_program_is_noticed(self, out: str) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        fs = open_filesystem(out)
        content = fs.read(f"{METADATA}/v1.metadata.json")
        fs.create_exclusive(f"{METADATA}/v2.metadata.json", content)
        with pytest.raises(ConfigError, match="another program wrote to this table"):
            export(out)
        fs.delete(f"{METADATA}/v2.metadata.json")
        changed = json.loads(content)
        del changed["properties"]["ftfile.export"]
        fs.create_exclusive(f"{METADATA}/v2.metadata.json", json.dumps(changed).encode())
        with pytest.raises(ConfigError, match="another program wrote to this table"):
            export(out)
        fs.delete(f"{METADATA}/v2.metadata.json")
        fs.create_exclusive(f"{METADATA}/00002-abc.metadata.json", content)
        with pytest.raises(ConfigError, match="another program wrote it"):
            export(out)

    @pytest.mark.parametrize("content", [b"{}", b"[]", b"{", b'{"properties":{}}'])
    def test_damaged_metadata_is_told(self, out: str, content: bytes) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        export(out)
        open_filesystem(out).put(f"{METADATA}/v1.metadata.json", content)
        with pytest.raises((CorruptData, ConfigError), match="_iceberg"):
            export(out)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_damaged_manifests_are_told(self, out: str) -> None:
        MicroBatch(out, COLUMNS, {"partitionBy": "word"}).run(0, [rows(0)])
        export(out)
        MicroBatch(out, COLUMNS, {"partitionBy": "word"}, overwrite=True).run_batch_write("job", [rows(2)])
        fs = open_filesystem(out)
        for kind in ("1-m-", "snap-1"):
            (path,) = (info.path for info in fs.list(METADATA) if info.path.startswith(f"{METADATA}/{kind}"))
            content = fs.read(path)
            for cut in (0, 3, 300, len(content) - 20):
                fs.put(path, content[:cut])
                with pytest.raises(CorruptData, match="manifest of Iceberg"):
                    export(out)
            fs.put(path, content)
        export(out)
        check_newest(out, "iceberg")


class TestRefusals:
    @pytest.mark.parametrize(
        ("columns", "options", "text"),
        [
            (COLUMNS, {"fileFormat": "orc"}, "files are orc"),
            (COLUMNS | {"name": "string"}, {"fileNameColumn": "name"}, "column 'name' is only in the names of files"),
        ],
    )
    def test_what_iceberg_cannot_say(
        self, out: str, columns: dict[str, Any], options: dict[str, str], text: str
    ) -> None:
        row = {"id": 1, "word": "w", "name": "n"}
        MicroBatch(out, columns, options).run(0, [[{name: row[name] for name in columns}]])
        with pytest.raises(ConfigError, match=text):
            export(out)
        assert not (Path(out) / "_iceberg").exists()

    def test_types_that_no_reader_promotes(self, out: str) -> None:
        MicroBatch(out, {"id": "integer"}).run(0, [[{"id": 1}]])
        export(out)
        MicroBatch(out, {"id": "double"}, {"onSchemaChange": "widen"}).run(1, [[{"id": 1.5}]])
        with pytest.raises(ConfigError, match="column 'id' is double, but older files contain int"):
            export(out)
        assert table_rows(out) == [{"id": 1}]

    def test_structs_without_a_field_in_common(self, out: str) -> None:
        """Some readers read a null struct as a struct of nulls."""
        for batch, name in enumerate("ab"):
            inner = {"type": "struct", "fields": [{"name": name, "type": "long", "nullable": True, "metadata": {}}]}
            query = MicroBatch(out, {"id": "long", "p": inner}, {"onSchemaChange": "any"})
            query.run(batch, [[{"id": batch, "p": None}]])
        with pytest.raises(ConfigError, match="struct<`b`:bigint>, but older files contain struct<`a`:bigint>"):
            export(out)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_partitions_of_another_type(self, out: str) -> None:
        """A change of type that Iceberg supports, an unsupported change, and no change in a re-created table."""
        for batch, kind in enumerate(("short", "integer", "long")):
            query = MicroBatch(out, {"id": "long", "k": kind}, {"partitionBy": "k", "onSchemaChange": "any"})
            query.run(batch, [[{"id": batch, "k": batch}]])
            export(out)
        ftfile.drop(out, {"k": 0}, context=current())  # its manifest has the old type
        export(out)
        assert table_rows(out) == own_rows(out)
        query = MicroBatch(out, {"id": "long", "k": "decimal(19,0)"}, {"partitionBy": "k", "onSchemaChange": "any"})
        query.run(3, [[{"id": 3, "k": Decimal(3)}]])
        for dry_run in (True, False):
            with pytest.raises(
                ConfigError, match=r"'k' has another type than in exported partitions.* Delete '_iceberg'"
            ):
                export(out, dry_run=dry_run)
        assert len(table_rows(out)) == 2
        shutil.rmtree(Path(out, "_iceberg"))
        export(out)
        assert table_rows(out) == own_rows(out)

    @pytest.mark.slow
    @pytest.mark.packages
    def test_partitions_by_a_float_that_becomes_a_double(self, out: str) -> None:
        """A reader parses the text 0.1 as a double that differs from the double of the float."""
        for batch, kind in enumerate(("float", "double")):
            query = MicroBatch(out, {"id": "long", "k": kind}, {"partitionBy": "k", "onSchemaChange": "widen"})
            query.run(batch, [[{"id": batch, "k": 0.1}]])
            if batch == 0:
                export(out)
        with pytest.raises(ConfigError, match=r"'k' has another type than in exported partitions.* Delete '_iceberg'"):
            export(out)
        shutil.rmtree(Path(out, "_iceberg"))
        export(out)
        entries = iceberg_entries(open_filesystem(out), newest(out))
        assert [entry["data_file"]["partition"] for entry in entries] == [{"k": 0.1}] * 2

    @pytest.mark.slow
    @pytest.mark.packages
    def test_partitions_of_a_type_that_had_come_back(self, out: str) -> None:
        """No entry with the old type remains, although the last added schema has the same type as the next schema."""
        kinds: tuple[tuple[str, Any, dict[str, str]], ...] = (
            ("string", "x", {}), ("integer", 1, {}), ("string", "y", {"partitionBy": "k"}),
            ("integer", 2, {"partitionBy": "k"}),
        )  # fmt: skip
        for version, (kind, value, options) in enumerate(kinds):
            written = MicroBatch(out, {"id": "long", "k": kind}, options, overwrite=True)
            written.run_batch_write(f"job {version}", [[{"id": version, "k": value}]])
            export(out)
            assert table_rows(out) == own_rows(out)
        assert [entry["status"] for entry in iceberg_entries(open_filesystem(out), newest(out))] == [1]

    @pytest.mark.slow
    @pytest.mark.packages
    def test_names_with_blanks_and_decimals_of_more_digits(self, out: str) -> None:
        MicroBatch(out, {"id": "long", "a b": "decimal(5,2)"}).run(0, [[{"id": 1, "a b": Decimal("1.25")}]])
        export(out)
        MicroBatch(out, {"id": "long", "a b": "decimal(9,2)"}, {"onSchemaChange": "widen"}).run(
            1, [[{"id": 2, "a b": Decimal("1234567.25")}]]
        )
        export(out)
        assert table_rows(out) == own_rows(out)

    def test_stores_and_formats_that_are_not_known(self, out: str) -> None:
        StoreBatch(out, COLUMNS, {"keyColumns": "id"}).run(0, [rows(0)])
        with pytest.raises(ConfigError, match=r"ftfile\.kv"):
            export(out)
        with pytest.raises(ConfigError, match="to='hive': exports are possible to 'delta', 'iceberg'"):
            export_to(out, "hive")

    def test_a_missing_package_is_told(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        MicroBatch(out, COLUMNS).run(0, [rows(0)])
        monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
        with pytest.raises(ConfigError, match=r"pip install 'ftfile\[avro\]'"):
            export(out)
