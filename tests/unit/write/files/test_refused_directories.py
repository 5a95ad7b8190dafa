"""Directories that other readers would not read as ftfile does: refused before a row is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.testing.micro_batch import BatchQuery, MicroBatch, StoreBatch
from tests.unit.write.files.encrypted import forget_all

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
            query.plan()
    assert sorted(path.name for path in out.iterdir()) == [name.partition("/")[0]]


@pytest.mark.parametrize("name", TABLES)
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


@pytest.mark.parametrize("to", ["delta", "iceberg"])
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
            query.plan()
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
            query.plan()
    assert not out.exists()


@pytest.mark.parametrize("name", ["_ftfile2", "a_ftfile"])
def test_a_path_that_only_looks_like_a_log(out: Path, name: str) -> None:
    MicroBatch(str(out / name), {"id": "long"}).run(0, ROWS)


def test_a_file(out: Path) -> None:
    MicroBatch(str(out), {"id": "long"}).run(0, ROWS)
    (part,) = out.glob("*.parquet")
    for query in queries(part):
        with pytest.raises(ConfigError, match="is a file; give the directory"):
            query.plan()


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        ("{part}", r"is a file, or lies below one\. It lies within '{out}': give that, and choose rows by a condition"),
        ("{part}/x", r"is a file, or lies below one\. It lies within '{out}': give that, and choose rows"),
        ("p=x", r"Nothing was ever committed there, .* It lies within '{out}': give that, and choose rows"),
        ("p=x/q=y", r"Nothing was ever committed there, .* It lies within '{out}': give that, and choose rows"),
        ("_ftfile/log", r"Nothing was ever committed there, .* It lies within '{out}': give that$"),
    ],
)
def test_a_path_within_a_directory_to_read(out: Path, inside: str, told: str) -> None:
    MicroBatch(str(out), {"id": "long", "p": "string"}, {"partitionBy": "p"}).run(0, [[{"id": 1, "p": "x"}]])
    (part,) = out.glob("*/*.parquet")
    with pytest.raises(ConfigError, match=told.format(out=f"file://{out}")):
        ftfile.open(out / inside.format(part=part.relative_to(out)))


def test_a_file_to_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ConfigError, match=r"is no directory: .*\. Give the directory that has _ftfile$"):
        ftfile.open(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"or the path is wrong$"):
        ftfile.open(tmp_path / "b=1")


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
