"""Directories that other readers would not read as ftfile does: refused before a row is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import register, unregister
from ftfile.testing.micro_batch import BatchQuery, MicroBatch, StoreBatch
from ftfile.testing.source_run import SourceRun
from tests.kit.files_run import FilesRun
from tests.kit.parameters import parametrize
from tests.unit.writing.files.encrypted import forget_all

if TYPE_CHECKING:
    from ftfile.storage.api import FileSystem
    from ftfile.storage.paths import Location

ROWS = [[{"id": 1}]]

TABLES = {
    "_spark_metadata/0": "Spark's own file sink wrote here",
    "_delta_log/00000000000000000000.json": "it is a Delta table",
    ".hoodie/hoodie.properties": "it is a Hudi table",
    "metadata/v1.metadata.json": "it is an Iceberg table",
    "metadata/00000-abc.gz.metadata.json": "it is an Iceberg table",
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def queries(out: Path) -> list[BatchQuery]:
    store = StoreBatch(str(out), {"id": "long", "n": "long"}, {"keyColumns": "id"})
    return [MicroBatch(str(out), {"id": "long"}), MicroBatch(str(out), {"id": "long"}, overwrite=True), store]


def put(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("{}")


@pytest.mark.parametrize("name", TABLES)
def test_tables_of_other_programs(out: Path, name: str) -> None:
    put(out / name)
    for query in queries(out):
        with pytest.raises(ConfigError, match=rf"out' has '{name.partition('/')[0]}': {TABLES[name]}.* new directory"):
            query.pickled_plan()
    assert sorted(path.name for path in out.iterdir()) == [name.partition("/")[0]]


@parametrize("name", TABLES, quick=2)
def test_tables_that_other_programs_begin_later(out: Path, name: str) -> None:
    for query in queries(out)[::2]:
        own = out if query.path == str(out) else Path(query.path)
        query.path = str(own / type(query).__name__)
        query.run(0, [[{"id": 1, "n": 1}]] if isinstance(query, StoreBatch) else ROWS)
        put(Path(query.path) / name)
        forget_all()
        with pytest.raises(ConfigError, match=rf"has '{name.partition('/')[0]}': {TABLES[name]}.* new directory"):
            query.run(1, ROWS)


@pytest.mark.parametrize("name", TABLES)
def test_operators_refuse_tables_of_other_programs(out: Path, name: str) -> None:
    new, begun = out / "new", out / "begun"
    put(new / name)
    ftfile.kv.KeyValueStore(begun, writer="w").close()
    put(begun / name)
    forget_all()
    for path in (new, begun):
        with pytest.raises(ConfigError, match=rf"has '{name.partition('/')[0]}': {TABLES[name]}.* new directory"):
            ftfile.kv.KeyValueStore(path, writer="w")
    assert [path.name for path in new.iterdir()] == [name.partition("/")[0]]


@parametrize("to", ["delta", "iceberg"], quick=1)
def test_own_exports_are_no_tables_of_other_programs(out: Path, to: str) -> None:
    query = MicroBatch(str(out), {"id": "long"}, {"fileFormat": "parquet"})
    for number in range(3):
        query.run(number, ROWS)
        ftfile.export(str(out), to=to)
        forget_all()
    query.run(3, ROWS)


def test_a_table_is_looked_for_once_in_a_process(out: Path) -> None:
    query = MicroBatch(str(out), {"id": "long"})
    query.run(0, ROWS)
    query.run(1, ROWS)
    put(out / "_spark_metadata/0")
    query.run(2, ROWS)


@pytest.mark.parametrize("below", ["_ftfile", "_ftfile/checkpoint"])
def test_a_checkpoint_within_the_log(out: Path, below: str) -> None:
    for query in queries(out):
        query.checkpoint = str(out / below)
        with pytest.raises(ConfigError, match=r"checkpointLocation=.* lies within _ftfile of the directory"):
            query.pickled_plan()
    assert not out.exists()


@pytest.mark.parametrize("name", ["metadata/readme.txt", "data/_delta_log/0.json", "metadata"])
def test_what_only_looks_like_a_table(out: Path, name: str) -> None:
    put(out / name)
    MicroBatch(str(out), {"id": "long"}).run(0, ROWS)
    assert ftfile.open(str(out)).to_arrow().num_rows == 1


@pytest.mark.parametrize("below", ["_ftfile", "_ftfile/staged/mine", "k=1/_ftfile/x"])
def test_a_path_within_the_log_of_another_directory(out: Path, below: str) -> None:
    for query in queries(out / below):
        with pytest.raises(ConfigError, match=r"lies within _ftfile of the directory 'file://.*whose vacuum deletes"):
            query.pickled_plan()
    assert not out.exists()


@pytest.mark.parametrize("name", ["_ftfile2", "a_ftfile"])
def test_a_path_that_only_looks_like_a_log(out: Path, name: str) -> None:
    MicroBatch(str(out / name), {"id": "long"}).run(0, ROWS)


def test_a_file(out: Path) -> None:
    MicroBatch(str(out), {"id": "long"}).run(0, ROWS)
    (part,) = out.glob("*.parquet")
    for query in queries(part):
        with pytest.raises(ConfigError, match="is a file, not a directory: give the directory"):
            query.pickled_plan()


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        (
            "{part}",
            r"is a file, or lies below one\. It lies within '{out}': give that directory, and choose rows by a",
        ),
        ("{part}/x", r"is a file, or lies below one\. It lies within '{out}': give that directory, and choose rows"),
        ("p=x", r"Nothing was ever committed there, .* It lies within '{out}': give that directory, and choose rows"),
        (
            "p=x/q=y",
            r"Nothing was ever committed there, .* It lies within '{out}': give that directory, and choose rows",
        ),
        ("_ftfile/log", r"Nothing was ever committed there, .* It lies within '{out}': give that directory$"),
    ],
)
def test_a_path_within_a_directory_to_read(out: Path, inside: str, told: str) -> None:
    MicroBatch(str(out), {"id": "long", "p": "string"}, {"partitionBy": "p"}).run(0, [[{"id": 1, "p": "x"}]])
    (part,) = out.glob("*/*.parquet")
    with pytest.raises(ConfigError, match=told.format(out=f"file://{out}")):
        ftfile.open(out / inside.format(part=part.relative_to(out)))


def test_a_file_to_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ConfigError, match=r"is no directory: .*\. Give the directory that contains _ftfile$"):
        ftfile.open(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"or the path is wrong$"):
        ftfile.open(tmp_path / "b=1")


@pytest.mark.slow
def test_a_directory_in_which_nothing_can_be_made() -> None:
    if not Path("/proc/self").exists():
        pytest.skip("there is no /proc here")
    with pytest.raises(FtfileError, match="choose another path"):
        MicroBatch("/proc/x", {"id": "long"}).run(0, ROWS)


@pytest.mark.parametrize("more", [{}, {"maxBatchesPerFile": "2"}])
def test_another_format(out: Path, more: dict[str, str]) -> None:
    query = MicroBatch(str(out), {"id": "long"}, {"fileFormat": "json", **more})
    query.run(0, ROWS)
    query.options = more  # which is parquet
    with pytest.raises(ConfigError, match="fileFormat=parquet, but the directory was written as json"):
        query.run(1, ROWS)
    query.options = {**more, "onFormatChange": "accept"}
    query.run(1, ROWS)
    query.options = more
    query.run(2, ROWS)
    assert ftfile.open(str(out)).to_arrow().num_rows == 3


def test_an_overwrite_may_change_the_format(out: Path) -> None:
    query: Any = MicroBatch(str(out), {"id": "long"}, {"fileFormat": "json"})
    query.run(0, ROWS)
    query.overwrite, query.options = True, {}
    query.run(1, ROWS)
    assert ftfile.open(str(out)).to_arrow().num_rows == 1


KEYED = [[{"id": 1, "n": 1}]]


def one_of(kind: str, path: Path) -> tuple[BatchQuery, list[list[dict[str, int]]]]:
    if kind == "store":
        return StoreBatch(str(path), {"id": "long", "n": "long"}, {"keyColumns": "id"}), KEYED
    return MicroBatch(str(path), {"id": "long"}), ROWS


class TestNested:
    """A directory or a store in another one: plain readers would read the rows of both."""

    @parametrize("inner", ["files", "store"], quick=1)
    @pytest.mark.parametrize("outer", ["files", "store"])
    def test_nothing_is_written_inside(self, out: Path, outer: str, inner: str) -> None:
        query, rows = one_of(outer, out)
        query.run(0, rows)
        before = sorted(out.rglob("*"))
        within, _ = one_of(inner, out / "year=2024/month=1")
        advice = r"lies within '.*/out', a directory or a store .*Write to '.*/out' with .*partitionBy=year,month"
        with pytest.raises(ConfigError, match=advice):
            within.pickled_plan()
        assert sorted(out.rglob("*")) == before

    @pytest.mark.parametrize("outer", ["files", "store"])
    def test_no_operator_opens_a_store_inside(self, out: Path, outer: str) -> None:
        query, rows = one_of(outer, out)
        query.run(0, rows)
        with pytest.raises(ConfigError, match=r"lies within .*/out', a directory or a store"):
            ftfile.kv.KeyValueStore(out / "state", writer="w")
        assert not (out / "state").exists()

    @pytest.mark.parametrize("inner", ["files", "store"])
    @pytest.mark.parametrize("outer", ["files", "store"])
    def test_nothing_is_begun_around(self, out: Path, outer: str, inner: str) -> None:
        query, rows = one_of(inner, out / "month=1")
        query.run(0, rows)
        around, _ = one_of(outer, out)
        with pytest.raises(ConfigError, match="contains the ftfile directory 'month=1'"):
            around.pickled_plan()
        assert [path.name for path in out.iterdir()] == ["month=1"]

    def test_nothing_is_migrated_inside(self, out: Path) -> None:
        MicroBatch(str(out), {"id": "long"}).run(0, ROWS)
        put(out / "old/a.json")
        with pytest.raises(ConfigError, match=r"lies within .*/out', a directory or a store"):
            ftfile.migrate(out / "old", from_="files", file_format="json", schema="id long", dry_run=False)

    @pytest.mark.slow
    def test_one_that_was_moved_in_is_found_and_goes_on(self, out: Path) -> None:
        elsewhere, inner = out.parent / "elsewhere", out / "deep/inner"
        for path in (elsewhere, out):
            MicroBatch(str(path), {"id": "long"}).run(0, ROWS)
        inner.parent.mkdir()
        elsewhere.rename(inner)
        forget_all()
        (finding,) = ftfile.open(str(out)).verify().findings
        facts = (finding.code, finding.severity, finding.repair, finding.path)
        assert facts == ("nested-directory", "error", "no", "deep/inner")
        assert ftfile.open(str(inner)).verify().findings == ()
        MicroBatch(str(inner), {"id": "long"}).run(1, ROWS)

    def test_the_state_of_a_stream_is_no_directory_of_rows(self, out: Path) -> None:
        log_file(out / "logs/a.txt")
        file_source(out / "logs")
        assert list(out.rglob("_format"))
        MicroBatch(str(out), {"id": "long"}).run(0, ROWS)
        assert [finding.code for finding in ftfile.open(str(out)).verify().findings] == ["unknown-files"]


class TestOwnSource:
    """A query that writes to its input would never end; its checkpoint names the input."""

    @pytest.mark.parametrize("options", [{}, {"maxFilesPerTrigger": "1"}, {"startingVersion": "0"}])
    def test_a_directory_that_is_followed(self, out: Path, options: dict[str, str]) -> None:
        MicroBatch(str(out), {"id": "long"}).run(0, [*ROWS, *ROWS])
        source = SourceRun(str(out), {"id": "long"}, options)
        source.run()
        with pytest.raises(ConfigError, match="is the directory that the query reads"):
            sink_of(source, out).run(0, ROWS)
        sink_of(source, out.parent / "other").run(0, ROWS)
        assert ftfile.open(str(out)).count() == 2

    def test_a_copy_with_versions_of_its_own(self, out: Path) -> None:
        copy = out.parent / "copy"
        MicroBatch(str(out), {"id": "long"}).run(0, ROWS)
        shutil.copytree(out, copy)
        for path in (out, copy):
            MicroBatch(str(path), {"id": "long"}).run(1, ROWS)
        source = SourceRun(str(out), {"id": "long"})
        source.run()
        sink_of(source, copy).run(0, ROWS)

    @pytest.mark.parametrize("below", ["", "sink", "deep/sink"])
    def test_a_directory_of_files(self, out: Path, below: str) -> None:
        log_file(out / "a.txt")
        source = file_source(out)
        with pytest.raises(ConfigError, match=r"lies within .*/out', whose files the query reads"):
            sink_of(source, out / below).run(0, ROWS)
        assert [path.name for path in out.iterdir()] == ["a.txt"]
        sink_of(source, out.parent / "out-2").run(0, ROWS)

    @pytest.mark.parametrize("name", ["a.json", "day=1/hour=2/a.json", "at=1%3A2/a.json"])
    @pytest.mark.parametrize("log", ["7", "7.compact"])
    def test_files_that_spark_reads(self, out: Path, name: str, log: str) -> None:
        with pytest.raises(ConfigError, match=r"contains files that the query reads, such as 'file:///.*/a\.json'"):
            sink_beside_spark(out, name, log).run(0, ROWS)
        assert not out.exists()

    @pytest.mark.parametrize("name", ["deep/a.json", "day=1/deep/a.json", "../out-2/a.json"])
    def test_other_files_that_spark_reads(self, out: Path, name: str) -> None:
        sink_beside_spark(out, name).run(0, ROWS)

    def test_a_pattern_may_leave_the_sink_out(self, out: Path) -> None:
        log_file(out / "logs-1/a.txt")
        sink_of(file_source(out / "logs-*", out), out / "sink").run(0, ROWS)


def log_file(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"{'x' * 300}\n")


def file_source(path: Path, beside: Path | None = None) -> SourceRun:
    options = {"fileFormat": "text", "checkpointLocation": str((beside or path).parent / "checkpoint")}
    source = FilesRun(str(path), {"value": "string"}, options)
    source.run()
    return source


def sink_beside_spark(path: Path, file: str, log: str = "7") -> MicroBatch:
    """Return a query whose second source is Spark's own, which reads the file below the sink's path."""
    checkpoint = path.parent / "checkpoint"
    (checkpoint / "sources/1").mkdir(parents=True)
    (checkpoint / "offsets").mkdir()
    (checkpoint / "metadata").write_text('{"id":"q"}')
    (checkpoint / "offsets/7").write_text('v1\n{"batchWatermarkMs":0}\n3\n{"logOffset":7}')
    files = [f"file://{path.parent}/elsewhere/b.json", f"file://{path}/{file}"]
    lines = [json.dumps({"path": url, "timestamp": 0, "batchId": 7}) for url in files]
    (checkpoint / "sources/1" / log).write_text("\n".join(["v1", *lines]))
    return MicroBatch(str(path), {"id": "long"}, {}, "q", str(checkpoint))


def sink_of(source: SourceRun, path: Path) -> MicroBatch:
    """Return a query as Spark starts it: the offsets of its first batch are in the checkpoint."""
    checkpoint = Path(source.options.get("checkpointLocation", f"{source.path}-checkpoint"))
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets/0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{source.offsets[0]}')
    (checkpoint / "metadata").write_text('{"id":"q"}')
    forget_all()
    return MicroBatch(str(path), {"id": "long"}, {"onNewQuery": "continue"}, "q", str(checkpoint))


def test_a_driver_from_outside_may_fail_above_a_new_directory(tmp_path: Path) -> None:
    def open_location(location: Location) -> FileSystem:
        if location.path != str(tmp_path / "out"):
            raise ValueError(f"{location.path} is not mine")
        return LocalFileSystem(location.path, location.context)

    register("narrow", open_location)
    try:
        MicroBatch(f"narrow:{tmp_path / 'out'}", {"id": "long"}).run(0, ROWS)
    finally:
        unregister("narrow")
    assert ftfile.open(str(tmp_path / "out")).count() == 1
