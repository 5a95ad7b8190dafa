"""File sinks whose file names or table logs show the committed files: Flink, Kafka Connect, Apex, Delta."""

from __future__ import annotations

import contextlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.migrate.sources import detect
from tests.kit.parameters import parametrize
from tests.unit.tools.migrate.foreign import UUID, parquet, tree
from tests.unit.writing.files.encrypted import forget_all

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileSystem

deltalake: Any = pytest.importorskip("deltalake")
LINES = "1\n2\n"


def put(out: Path, *names: str, text: str = LINES) -> None:
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(text)


def length_file(out: Path, name: str, length: int) -> None:
    """Write the length of a file as Java's `writeUTF` does."""
    digits = str(length).encode()
    (out / name).write_bytes(len(digits).to_bytes(2, "big") + digits)


def migrated(out: Path, rows: int, **more: Any) -> Any:
    report = ftfile.migrate(str(out), dry_run=False, **more)
    assert report.rows == ftfile.open(str(out)).to_arrow().num_rows == rows
    assert ftfile.open(str(out)).verify(full=True).ok
    return report


@pytest.mark.slow
def test_bucketing_sink(tmp_path: Path) -> None:
    put(tmp_path, "2024-07-01--10/part-0-0", "2024-07-01--10/part-0-1", "2024-07-01--11/part-1-0")
    length_file(tmp_path, "2024-07-01--10/_part-0-1.valid-length", len(LINES))
    put(tmp_path, "2024-07-01--11/_part-1-1.in-progress", "2024-07-01--11/_part-1-2.pending", "part-2-0.pending")
    before = tree(tmp_path)
    with pytest.raises(ConfigError, match=r"3 files are not finished: .* job's last checkpoint .*leave_unfinished="):
        ftfile.migrate(str(tmp_path), file_format="text")
    report = migrated(tmp_path, 6, file_format="text", leave_unfinished=True)
    assert report.source == "flink"
    assert [each.path for each in report.left_out if each.moved] == ["part-2-0.pending"]
    assert len(report.left_out) == 4
    assert not (tmp_path / "part-2-0.pending").exists()
    put(tmp_path, "part-3-0.pending")
    with pytest.raises(ConfigError, match=r"1 file is not finished: 'part-3-0.pending'. Flink has"):
        ftfile.migrate(str(tmp_path), dry_run=False)
    again = ftfile.migrate(str(tmp_path), dry_run=False, leave_unfinished=True)
    assert [each.path for each in again.left_out] == ["part-3-0.pending"]
    assert not (tmp_path / "part-3-0.pending").exists()
    ftfile.undo_migration(str(tmp_path))
    (tmp_path / "part-3-0.pending").unlink()
    migrated(tmp_path, 6, file_format="text", leave_unfinished=True)
    MicroBatch(str(tmp_path), {"value": "string"}, {"fileFormat": "text"}).run(0, [[{"value": "3"}]])
    with pytest.raises(ConfigError, match="version 1 was committed after it"):
        ftfile.undo_migration(str(tmp_path))
    assert ftfile.open(str(tmp_path)).to_arrow().num_rows == 7
    assert before.keys() - tree(tmp_path).keys() == {"part-2-0.pending"}


@pytest.mark.parametrize(
    ("length", "match"),
    [
        (2, "valid-length: 2 of the 4 bytes of 'part-0-0'. .*`truncate -s 2 part-0-0`.*dfs -truncate -w 2 …/part-0-0`"),
        (5, r"'part-0-0' has 4 bytes, and '_part-0-0.valid-length' records 5: rows are missing"),
    ],
)
def test_a_file_of_which_not_all_counts(tmp_path: Path, length: int, match: str) -> None:
    put(tmp_path, "part-0-0")
    length_file(tmp_path, "_part-0-0.valid-length", length)
    with pytest.raises(ConfigError, match=match):
        ftfile.migrate(str(tmp_path), file_format="text", dry_run=False)
    (tmp_path / "part-0-0").write_text(LINES[:length])
    if length < len(LINES):
        migrated(tmp_path, 1, file_format="text")


def test_a_length_without_its_file(tmp_path: Path) -> None:
    put(tmp_path, "part-0-1")
    length_file(tmp_path, "_part-0-0.valid-length", 4)
    with pytest.raises(ConfigError, match="records a file of 4 bytes, and that file is missing"):
        ftfile.migrate(str(tmp_path), file_format="text")
    put(tmp_path, "_part-0-0.valid-length", text="what")
    with pytest.raises(ConfigError, match="must contain a number"):
        ftfile.migrate(str(tmp_path), file_format="text")


def test_file_sink(tmp_path: Path) -> None:
    put(tmp_path, f"2024-07-01--10/part-{UUID}-0.json", text='{"id": 1}\n')
    put(tmp_path, f"2024-07-01--10/.part-{UUID}-1.json.inprogress.{UUID}")
    with pytest.raises(ConfigError, match="not finished"):
        ftfile.migrate(str(tmp_path), schema="id long")
    report = migrated(tmp_path, 1, schema="id long", leave_unfinished=True)
    assert (report.source, report.left_out[0].moved) == ("flink", False)


@pytest.mark.parametrize("hidden", [f".part-{UUID}-7.json", f".uncompacted-part-{UUID}-0-1.json"])
def test_file_sink_with_compaction(tmp_path: Path, hidden: str) -> None:
    put(tmp_path, f"hour=1/compacted-part-{UUID}-1.json", f"hour=1/{hidden}", text='{"id": 1}\n')
    put(tmp_path, f"hour=1/.compacted-part-{UUID}-1.json.crc")
    put(tmp_path, f"hour=1/.old/{hidden}")
    more: dict[str, Any] = {"schema": "id long", "partition_by": {"hour": "int"}}
    with pytest.raises(ConfigError, match=r"1 file is not finished: .*\. Flink has not compacted it"):
        ftfile.migrate(str(tmp_path), **more)
    report = migrated(tmp_path, 1, leave_unfinished=True, **more)
    assert (report.source, [each.path for each in report.left_out]) == ("flink", [f"hour=1/{hidden}"])


@pytest.mark.parametrize(
    ("name", "source"),
    [
        (f"a/.part-{UUID}-7", "flink"),
        (f".uncompacted-part-{UUID}-0-1.orc", "flink"),
        (f"compacted-part-{UUID}-7.parquet", "flink"),
        ("compacted-by-hand.parquet", "files"),
        (f".part-{UUID}-7.crc", "files"),
        (f".part-00000-{UUID}-c000.snappy.parquet.crc", "files"),
    ],
)
def test_detected_by_compaction(name: str, source: str) -> None:
    assert detect([name]).name == source


def test_kafka_connect(tmp_path: Path) -> None:
    row = '{"id": 1}\n'
    put(tmp_path, "partition=0/logs+0+0000000000+0000000009.json", text=row)
    put(tmp_path, "partition=0/logs+0+0000000010+0000000019.json", text=row)
    put(tmp_path, "partition=1/logs+1+0000000000+0000000009.json", text=row)
    report = migrated(tmp_path, 3, schema="id long")
    assert (report.source, report.partition_by) == ("kafka-connect", ("partition",))
    assert sorted(ftfile.open(str(tmp_path)).to_arrow()["partition"].to_pylist()) == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("partition=0/logs+0+0000000005+0000000011.json", "both contain offset 5"),
        ("partition=0/clicks+0+0000000010+0000000011.json", r"topics: clicks \('partition=0/clicks.*'\), logs"),
        ("partition=0/other.json", "do not have names of Kafka Connect, .*: 'partition=0/other.json'. Move"),
        ("+tmp/logs/partition=0/x_tmp.json", "not finished"),
    ],
)
def test_kafka_connect_refused(tmp_path: Path, name: str, match: str) -> None:
    put(tmp_path, "partition=0/logs+0+0000000000+0000000009.json", name, text="{}\n")
    with pytest.raises(ConfigError, match=match):
        ftfile.migrate(str(tmp_path), from_="kafka-connect", schema="id long")


def test_kafka_connect_on_s3(tmp_path: Path) -> None:
    put(tmp_path, "year=2024/logs+0+0000000000.json", "year=2024/logs+0+0000000010.json", text='{"id": 1}\n')
    assert migrated(tmp_path, 2, schema="id long", partition_by={"year": "int"}).source == "kafka-connect"


def test_apex(tmp_path: Path) -> None:
    put(tmp_path, "words.0", "words.1", "words.1.1700000000000.tmp", "words.2.1700000000001.tmp")
    with pytest.raises(ConfigError, match=r"1 file is not finished: 'words.2.1.*window state"):
        ftfile.migrate(str(tmp_path), file_format="text")
    before = tree(tmp_path)
    report = migrated(tmp_path, 4, file_format="text", leave_unfinished=True)
    assert (report.source, len(report.left_out)) == ("apex", 2)
    assert sorted(path.name for path in tmp_path.glob("words*")) == ["words.0", "words.1"]
    ftfile.undo_migration(str(tmp_path))
    assert tree(tmp_path) == before


# Delta


def table(ids: list[int], day: str | None = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.string())})


def delta(out: Path) -> None:
    deltalake.write_deltalake(str(out), table([9]), partition_by=["day"])
    deltalake.write_deltalake(str(out), table([1, 2], "x y"), mode="overwrite")
    deltalake.write_deltalake(str(out), table([3], None), mode="append")


@pytest.mark.slow
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_delta(tmp_path: Path, has_checkpoint: bool) -> None:
    delta(tmp_path)
    if has_checkpoint:
        deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
        (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
        deltalake.write_deltalake(str(tmp_path), table([4]), mode="append")
    before = tree(tmp_path)
    report = migrated(tmp_path, 3 + has_checkpoint)
    assert (report.source, report.partition_by, len(report.left_out)) == ("delta", ("day",), 1)
    rows = sorted(ftfile.open(str(tmp_path)).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert rows[:3] == [{"id": 1, "day": "x y"}, {"id": 2, "day": "x y"}, {"id": 3, "day": None}]
    assert len(list(tmp_path.rglob("part-*.parquet"))) == 2 + has_checkpoint, "overwritten files are hidden"
    ftfile.undo_migration(str(tmp_path))
    assert tree(tmp_path) == before
    migrated(tmp_path, 3 + has_checkpoint)
    MicroBatch(str(tmp_path), {"id": "long", "day": "string"}, {"partitionBy": "day"}).run(0, [[{"id": 5, "day": "b"}]])
    ftfile.export(str(tmp_path), to="delta")
    assert sorted(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()["id"].to_pylist())[-1] == 5


@pytest.mark.parametrize("to", ["delta", "iceberg"])
def test_an_export_does_not_outlive_the_log(tmp_path: Path, to: str) -> None:
    """The next migration would treat the export as a table of another program."""
    parquet(tmp_path / "a.parquet", [1])
    migrated(tmp_path, 1)
    ftfile.export(str(tmp_path), to=to)
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match="is an export of ftfile"):
            ftfile.undo_migration(str(tmp_path), dry_run=dry_run)
    shutil.rmtree(tmp_path / ("_delta_log" if to == "delta" else "_iceberg"))
    ftfile.undo_migration(str(tmp_path), dry_run=False)
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.slow
def test_delta_is_written_after_an_export(tmp_path: Path) -> None:
    delta(tmp_path)
    before = tree(tmp_path)
    migrated(tmp_path, 3)
    ftfile.export(str(tmp_path), to="delta")
    exported = tree(tmp_path / "_delta_log")
    ftfile.migrate(str(tmp_path), dry_run=False)
    assert tree(tmp_path / "_delta_log") == exported, "the export is not a log to move"
    with pytest.raises(ConfigError, match="'_delta_log' is an export of ftfile"):
        ftfile.undo_migration(str(tmp_path))
    query = MicroBatch(str(tmp_path), {"id": "long", "day": "string"}, {"partitionBy": "day"})
    query.run(0, [[{"id": 5, "day": "b"}]])
    with pytest.raises(ConfigError, match="was already migrated, as version 0, and the newest version is 1"):
        ftfile.migrate(str(tmp_path), dry_run=False)
    ftfile.export(str(tmp_path), to="delta")
    assert sorted(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 5]
    shutil.rmtree(tmp_path / "_delta_log")
    (tmp_path / "_delta_log").mkdir()
    for name in (name for name in before if name.startswith("_delta_log/") and name[-1] != "/"):
        (tmp_path / name).write_bytes(before[name])
    forget_all()
    with pytest.raises(ConfigError, match=r"was migrated, but '_delta_log' exists \(again\)"):
        query.pickled_plan()


@parametrize("moves", [0, 1, 4, 5], quick=1)
def test_delta_whose_log_is_moved_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int) -> None:
    delta(tmp_path)
    log = sorted(path.name for path in (tmp_path / "_delta_log").iterdir())
    (tmp_path / "_delta_log" / f"{0:020}.crc").touch()
    (tmp_path / "_delta_log" / f".{0:020}.json.crc").touch()
    assert log == [f"{number:020}.json" for number in range(3)]
    moved: list[str] = []

    def die(fs: FileSystem, path: str, target: str) -> None:
        if len(moved) == moves:
            raise ConnectionError
        moved.append(path)
        fs.rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr("ftfile.tools.migrate.undo._move", die)
        with contextlib.suppress(ConnectionError):
            ftfile.migrate(str(tmp_path), dry_run=False)
    query = MicroBatch(str(tmp_path), {"id": "long", "day": "string"}, {"partitionBy": "day"})
    if moves < 5:
        with pytest.raises(ConfigError, match="If the migration was interrupted"):
            query.pickled_plan()
    ftfile.migrate(str(tmp_path), dry_run=False)
    assert not (tmp_path / "_delta_log").exists()
    query.run(0, [[{"id": 5, "day": "b"}]])


def change(out: Path, **more: Any) -> None:
    """Append a commit with these actions."""
    number = len(list((out / "_delta_log").glob("*.json")))
    text = "\n".join(json.dumps({name: action}) for name, action in more.items())
    (out / "_delta_log" / f"{number:020}.json").write_text(text)


META = {"schemaString": "{}", "partitionColumns": ["day"]}


@parametrize(
    ("actions", "match"),
    [
        ({"add": {"path": "day=a/x.parquet", "size": 1, "partitionValues": {"day": "a"}}}, "is missing"),
        ({"add": {"path": "y.parquet", "partitionValues": {"day": "a"}}}, "y.parquet' in the partition day=a, and"),
        ({"add": {"path": "day=b/y.parquet", "partitionValues": {"day": "a"}}}, "in the partition day=a, and its"),
        ({"add": {"path": "y.parquet", "deletionVector": {"storageType": "u"}}}, "by a deletion vector"),
        ({"protocol": {"minReaderVersion": 3, "readerFeatures": ["typeWidening"]}}, "the reader features typeWidening"),
        ({"metaData": META | {"configuration": {"delta.columnMapping.mode": "name"}}}, "maps columns .*mode=name"),
        ({"add": 3}, "is damaged"),
    ],
    quick=3,
)
def test_delta_refused(tmp_path: Path, actions: dict[str, Any], match: str) -> None:
    delta(tmp_path)
    for name in ("y.parquet", "day=b/y.parquet"):
        parquet(tmp_path / name, [1])
    add = actions.get("add")
    if isinstance(add, dict):
        add.setdefault("size", (tmp_path / "y.parquet").stat().st_size)
    change(tmp_path, **actions)
    before = tree(tmp_path)
    with pytest.raises(ConfigError, match=match):
        ftfile.migrate(str(tmp_path), dry_run=False)
    assert tree(tmp_path) == before


def test_delta_with_a_hole(tmp_path: Path) -> None:
    delta(tmp_path)
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    with pytest.raises(ConfigError, match="no version 1, and no later checkpoint"):
        ftfile.migrate(str(tmp_path))


def test_delta_a_removed_file_with_a_deletion_vector_of_a_checkpoint(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", [1])
    parquet(tmp_path / "b.parquet", [2])
    size = (tmp_path / "a.parquet").stat().st_size
    vector = {"storageType": "u", "pathOrInlineDv": "ab", "sizeInBytes": 1, "cardinality": 1}
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}},
        {"metaData": {"schemaString": schema}},
        {"add": {"path": "a.parquet", "size": size, "deletionVector": None}},
        # All fields are present, as in a checkpoint.
        {"add": {"path": "b.parquet", "size": size, "deletionVector": {**vector, "offset": None, "maxRowIndex": None}}},
    ]
    names = ("protocol", "metaData", "add")
    rows = pa.Table.from_pylist([{name: each.get(name) for name in names} for each in actions])
    (tmp_path / "_delta_log").mkdir()
    change(tmp_path, **actions[0], **actions[1])
    pq.write_table(rows, tmp_path / "_delta_log" / f"{0:020}.checkpoint.parquet")
    with pytest.raises(ConfigError, match=r"rows of 'b.parquet' are deleted by a deletion vector"):
        ftfile.migrate(str(tmp_path))
    change(tmp_path, remove={"path": "b.parquet", "deletionVector": vector})
    assert [each.path for each in migrated(tmp_path, 1).left_out] == ["b.parquet"]
