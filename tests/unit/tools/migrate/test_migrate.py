"""Directories of other programs are migrated to ftfile, and the migration is undone."""

from __future__ import annotations

import datetime
import gzip
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import ftfile
from ftfile.core.errors import BatchGap, CommitError, ConfigError, CorruptData, SchemaError
from ftfile.log.protocol import commit
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.tools.cli.running import run
from tests.unit.tools.migrate.foreign import UUID, parquet, spark_checkpoint, spark_log, tree
from tests.unit.writing.files.encrypted import forget_all

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.log.protocol import Committed
    from ftfile.tools.migrate.migrate import MigrateReport

DAYS = {"day": "date"}
COLUMNS = {"id": "long", "day": "date"}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    path = tmp_path / "out"
    path.mkdir()
    return path


def days(out: Path) -> None:
    parquet(out / f"day=2024-07-01/part-0-{UUID}.parquet", [1, 2])
    parquet(out / f"day=2024-07-01/part-1-{UUID}.parquet", [3])
    parquet(out / "day=__HIVE_DEFAULT_PARTITION__/b.parquet", [4])
    (out / "_SUCCESS").touch()


def migrated(out: Path, **more: Any) -> MigrateReport:
    before = tree(out)
    dry = ftfile.migrate(str(out), **more)
    assert dry.dry_run
    assert tree(out) == before, "a dry run changes nothing"
    report = ftfile.migrate(str(out), dry_run=False, **more)
    assert (report.version, report.files, report.rows) == (0, dry.files, dry.rows)
    verified = ftfile.open(str(out)).verify(full=True)
    assert verified.ok, verified.findings
    return report


def ids(out: Path) -> list[int]:
    return sorted(ftfile.open(str(out)).to_arrow()["id"].to_pylist())


def followed(out: Path) -> list[int]:
    """Return the rows that a follower reads if it starts at the migration."""
    batches = ftfile.open(str(out)).follow(startingVersion="0")
    return sorted(each for _, some in batches for batch in some for each in batch.column("id").to_pylist())


def rows_of(content: bytes) -> list[Any]:
    return [tuple(row.items()) for row in pq.read_table(pa.BufferReader(content)).to_pylist()]


def test_a_column_with_a_comma_in_the_paths(out: Path) -> None:
    folder = out / "a,b=x"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "part.parquet")
    assert migrated(out, partition_by={"a,b": "string"}).partition_by == ("a,b",)
    assert ftfile.open(str(out)).to_arrow().to_pylist() == [{"id": 1, "a,b": "x"}]


@pytest.mark.slow
def test_a_plain_directory_is_read_written_and_merged(out: Path) -> None:
    days(out)
    before = tree(out)
    report = migrated(out, partition_by=DAYS)
    assert (report.source, report.file_format, report.partition_by) == ("files", "parquet", ("day",))
    assert {path: content for path, content in tree(out).items() if not path.startswith("_ftfile")} == before
    check_directory(open_filesystem(str(out)), rows_of=rows_of)
    query = MicroBatch(str(out), COLUMNS, {"partitionBy": "day"})
    query.run(0, [[{"id": 5, "day": datetime.date(2024, 7, 1)}]])
    assert ids(out) == followed(out) == [1, 2, 3, 4, 5]
    assert ftfile.open(str(out)).to_arrow(where="day IS NULL")["id"].to_pylist() == [4]
    check_directory(open_filesystem(str(out)), rows_of=rows_of)
    merged = ftfile.compact(str(out))
    assert (merged.files_removed, merged.files_written) == (3, 1)
    assert ids(out) == [1, 2, 3, 4, 5]
    check_directory(open_filesystem(str(out)), rows_of=rows_of)
    assert sorted(ftfile.open(str(out)).to_arrow(version=0)["id"].to_pylist()) == [1, 2, 3, 4]
    with pytest.raises(ConfigError, match="version 2 was committed after it"):
        ftfile.undo_migration(str(out))
    with pytest.raises(ConfigError, match="was already migrated, as version 0, and the newest version is 2"):
        ftfile.migrate(str(out), dry_run=False)


@pytest.mark.slow
def test_a_vacuum_keeps_what_counts(out: Path) -> None:
    days(out)
    before = tree(out)
    migrated(out, partition_by=DAYS)
    report = ftfile.vacuum(str(out), dry_run=False, retention=datetime.timedelta(0), force=True)
    assert not any(file.kind in {"staged", "retired", "direct"} for file in report.files)
    assert before.items() <= tree(out).items()
    assert ids(out) == [1, 2, 3, 4]


@pytest.mark.slow
def test_undoing_leaves_nothing(out: Path) -> None:
    days(out)
    before = tree(out)
    migrated(out, partition_by=DAYS)
    assert ftfile.undo_migration(str(out), dry_run=True).dry_run
    assert ftfile.undo_migration(str(out)).put_back == ()
    assert tree(out) == before
    with pytest.raises(ConfigError, match="was not migrated"):
        ftfile.undo_migration(str(out))
    assert migrated(out, partition_by=DAYS).rows == 4


def test_a_migration_is_finished_by_calling_it_again(out: Path) -> None:
    days(out)
    first = migrated(out, partition_by=DAYS)

    def decline(_: MigrateReport) -> bool:
        raise AssertionError("nothing is left to do")

    again = ftfile.migrate(str(out), dry_run=False, confirm=decline)
    assert again.already_migrated
    assert not first.already_migrated
    assert (again.version, again.rows, again.files, again.schema) == (0, first.rows, first.files, first.schema)


@pytest.mark.slow
def test_of_two_migrations_one_wins(out: Path) -> None:
    days(out)
    won: list[MigrateReport] = []

    def other_first(_: MigrateReport) -> bool:
        won.append(ftfile.migrate(str(out), partition_by=DAYS, dry_run=False))
        return True

    with pytest.raises(ConfigError, match="another process created an ftfile log"):
        ftfile.migrate(str(out), partition_by=DAYS, dry_run=False, confirm=other_first)
    assert won[0].version == ftfile.open(str(out)).version() == 0
    assert ids(out) == [1, 2, 3, 4]


@pytest.mark.slow
def test_nobody_commits_while_it_is_undone(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days(out)
    before = tree(out)
    migrated(out, partition_by=DAYS)
    query = MicroBatch(str(out), COLUMNS, {"partitionBy": "day"})
    messages = query.run_tasks(0, [[{"id": 5, "day": None}]])

    def die(_: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr("ftfile.tools.migrate.undo.put_back", die)
        with pytest.raises(ConnectionError):
            ftfile.undo_migration(str(out))
    for call in (lambda: query.commit(0, messages), lambda: ftfile.open(str(out)), query.pickled_plan):
        with pytest.raises(ConfigError, match=r"undo_migration\(path\) finishes it"):
            call()
    half = tree(out)
    assert ftfile.undo_migration(str(out), dry_run=True).dry_run
    assert tree(out) == half, "a dry run changes nothing"
    ftfile.undo_migration(str(out))
    assert tree(out) == before


# Spark's file sink


def spark(out: Path) -> None:
    """Write three batches and a compact entry for two of them. A file has expired, and the last attempt failed."""
    for batch, some in enumerate(([1], [2, 3], [4])):
        parquet(out / f"part-{batch}-{UUID}-c000.snappy.parquet", some)
    parquet(out / f"part-9-{UUID}-c000.snappy.parquet", [99])
    parquet(out / "expired.parquet", [98])
    name = f"part-{{}}-{UUID}-c000.snappy.parquet"
    spark_log(out, "0", [("add", name.format(0))])
    spark_log(out, "1.compact", [("add", "expired.parquet"), ("add", name.format(0)), ("add", name.format(1))])
    spark_log(out, "2", [("add", name.format(2)), ("delete", "expired.parquet")])


@pytest.mark.slow
def test_spark_the_log_decides_and_the_query_goes_on(out: Path, tmp_path: Path) -> None:
    spark(out)
    checkpoint = spark_checkpoint(tmp_path / "checkpoint", batches=4)
    report = migrated(out, checkpoint=checkpoint)
    assert (report.source, report.files, report.rows, report.last_batch) == ("spark", 3, 4, 2)
    assert sorted(each.path for each in report.left_out if each.moved) == [
        "expired.parquet",
        f"part-9-{UUID}-c000.snappy.parquet",
    ]
    assert not (out / "_spark_metadata").exists()
    assert sorted(pq.read_table(file)["id"].to_pylist() for file in out.glob("*.parquet")) == [[1], [2, 3], [4]]
    query = MicroBatch(str(out), {"id": "long"}, checkpoint=checkpoint, query_id="spark-query")
    assert query.run(2, [[{"id": 4}]]).replayed, "Spark had not noted that the batch was done"
    query.run(3, [[{"id": 5}]])
    assert ids(out) == followed(out) == [1, 2, 3, 4, 5]
    with pytest.raises(BatchGap):
        query.run(5, [[{"id": 7}]])
    assert ftfile.open(str(out)).verify(full=True).ok
    (out / "_spark_metadata").mkdir()
    query.pickled_plan()  # a process checks the directory only once
    forget_all()
    with pytest.raises(ConfigError, match=r"'_spark_metadata' exists \(again\) and hides"):
        query.pickled_plan()


@pytest.mark.slow
def test_spark_without_its_checkpoint(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    spark(out)
    ftfile.migrate(str(out))
    assert (
        "no checkpoint is given: the query that wrote _spark_metadata, up to batch 2, cannot write here again"
        in caplog.text
    )
    assert "no checkpoint is given" in run("migrate", out, "--dry-run").stderr
    migrated(out)
    query = MicroBatch(str(out), {"id": "long"}, query_id="spark-query")
    with pytest.raises(BatchGap):
        query.run(4, [[{"id": 7}]])


def test_spark_with_its_checkpoint_says_nothing(out: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spark(out)
    ftfile.migrate(str(out), checkpoint=spark_checkpoint(tmp_path / "checkpoint", batches=4))
    assert "no checkpoint" not in caplog.text


def test_spark_undone(out: Path) -> None:
    spark(out)
    before = tree(out)
    report = migrated(out)
    assert report.query_id is None
    back = ftfile.undo_migration(str(out)).put_back
    assert {*back} == {
        *(path for path in before if path.startswith("_spark_metadata/") and path[-1] != "/"),
        *(e.path for e in report.left_out),
    }
    assert tree(out) == before


def test_spark_moved_and_escaped(out: Path) -> None:
    parquet(out / "at=2024-07-01 10%3A00%3A00" / "a b.parquet", [1])
    entry = {"path": "s3a://bucket/old%20place/at=2024-07-01%2010%253A00%253A00/a%20b.parquet"}
    size = (out / "at=2024-07-01 10%3A00%3A00" / "a b.parquet").stat().st_size
    (out / "_spark_metadata").mkdir()
    (out / "_spark_metadata/0").write_text(f"v1\n{json.dumps(entry | {'size': size, 'action': 'add'})}")
    with pytest.raises(
        ConfigError, match="times of the column `at` in the time zone of their writer: give this time zone"
    ):
        ftfile.migrate(str(out), partition_by={"at": "timestamp"})
    migrated(out, partition_by={"at": "timestamp"}, options={"timeZone": "Europe/Zurich"})
    (row,) = ftfile.open(str(out)).to_arrow().to_pylist()
    assert row["at"] == datetime.datetime(2024, 7, 1, 8, tzinfo=datetime.timezone.utc)


def lose(out: Path, name: str) -> None:
    (out / name).unlink()


@pytest.mark.parametrize(
    ("harm", "more", "match"),
    [
        (lambda out: lose(out, "_spark_metadata/1.compact"), {}, "lacks batch 1"),
        (lambda out: lose(out, f"part-2-{UUID}-c000.snappy.parquet"), {}, "do not exist: .file:.*part-2-"),
        (
            lambda out: parquet(out / f"part-2-{UUID}-c000.snappy.parquet", range(9)),
            {},
            "in '_spark_metadata': another",
        ),
        (lambda out: (out / "_spark_metadata/2").write_text("v2\n"), {}, "an unsupported version of Spark"),
        (lambda out: (out / "_spark_metadata/2").write_text("v1\n{"), {}, "is damaged"),
        (lambda out: (out / "_delta_log").mkdir(), {}, "_spark_metadata and _delta_log"),
        (None, {"from_": "files"}, "give from_='spark'"),
        (None, {"from_": "mine"}, "takes auto, spark, delta"),
        (None, {"checkpoint": "/nowhere"}, "no file `metadata`"),
        (None, {"partition_by": DAYS}, "no path contains partition columns, for example 'part-0.*omit"),
        (None, {"schema": "id string"}, "column `id` is bigint in 'part-0.*', and string in the schema"),
        (None, {"schema": "no long"}, "a column `id` that the schema lacks"),
        (None, {"schema": "id what"}, "type what cannot be stored"),
        (None, {"schema": "id struct<a: long>"}, "For nested types, give a StructType"),
    ],
)
def test_spark_refused(out: Path, harm: Any, more: dict[str, Any], match: str) -> None:
    spark(out)
    if harm is not None:
        harm(out)
    before = tree(out)
    with pytest.raises((ConfigError, SchemaError), match=match):
        ftfile.migrate(str(out), dry_run=False, **more)
    assert tree(out) == before


def test_spark_another_checkpoint(out: Path, tmp_path: Path) -> None:
    spark(out)
    checkpoint = spark_checkpoint(tmp_path / "checkpoint", batches=2)
    with pytest.raises(ConfigError, match="no offsets of batch 2"):
        ftfile.migrate(str(out), checkpoint=checkpoint)


def go_on(out: Path) -> None:
    """Write another batch, as Spark does."""
    parquet(out / "late.parquet", [5])
    spark_log(out, "3", [("add", "late.parquet")])


@pytest.mark.parametrize("late", ["late.parquet", ".late", "_spark_metadata/3", ""])
def test_a_writer_goes_on_while_the_files_are_read(out: Path, late: str) -> None:
    (days if late[:1] != "_" else spark)(out)
    more: dict[str, Any] = {"partition_by": DAYS} if late[:1] != "_" else {}
    changed: list[dict[str, bytes]] = []

    def write(_: MigrateReport) -> bool:
        if late[:1] == "_":
            go_on(out)
        elif late:
            parquet(out / late, [5])
        else:
            parquet(out / f"day=2024-07-01/part-1-{UUID}.parquet", [3, 4])
        changed.append(tree(out))
        return True

    call = partial(ftfile.migrate, str(out), dry_run=False, confirm=write, **more)
    if late == ".late":
        assert call().rows == 4, "no reader sees the new file"
        return
    with pytest.raises(CommitError, match=r"was changed while .* its writer is still running.* Nothing was changed"):
        call()
    assert tree(out) == changed[0]


def test_spark_goes_on_behind_the_record(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark(out)

    def commit_late(*arguments: Any) -> Committed:
        done = commit(*arguments)
        go_on(out)
        return done

    with monkeypatch.context() as patch:
        patch.setattr("ftfile.tools.migrate.migrate.commit", commit_late)
        with pytest.raises(CommitError, match="its writer is still running"):
            ftfile.migrate(str(out), dry_run=False)
    assert (out / "_spark_metadata/3").exists()
    assert (out / "expired.parquet").exists(), "no file is moved before Spark is known to be stopped"
    with pytest.raises(CommitError, match="undo the migration"):
        ftfile.migrate(str(out), dry_run=False)
    ftfile.undo_migration(str(out))
    assert ftfile.migrate(str(out)).files == 4


def test_spark_an_interrupted_migration_asks_again(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark(out)

    def die(*_: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr("ftfile.tools.migrate.migrate.set_aside", die)
        with pytest.raises(ConnectionError):
            ftfile.migrate(str(out), dry_run=False)
    before = tree(out)
    asked: list[MigrateReport] = []

    def decline(report: MigrateReport) -> bool:
        asked.append(report)
        return False

    report = ftfile.migrate(str(out), dry_run=False, confirm=decline)
    assert tree(out) == before, "the migration was not confirmed"
    assert asked == [report] == [ftfile.migrate(str(out))]
    assert len(report.left_out) == 2
    report = ftfile.migrate(str(out), dry_run=False, confirm=lambda _: True)
    assert (report.version, report.dry_run, sorted(path.name for path in out.glob("expired*"))) == (0, False, [])


# Formats


@pytest.mark.slow
def test_formats(out: Path) -> None:
    at = datetime.datetime(2024, 7, 1, 10, tzinfo=datetime.timezone.utc)
    table = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", None]})
    avro = {
        "type": "record",
        "name": "row",
        "fields": [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}],
    }
    lines = '{"id": 1, "name": "a"}\n{"id": 2}\n'
    for name in ("json", "csv", "text", "avro", "orc", "parquet"):
        (out / name).mkdir()
    (out / "json/a.json").write_text(lines)
    (out / "json/b.json.gz").write_bytes(gzip.compress(lines.encode()))
    (out / "csv/a.csv").write_text("id,name\n1,a\n2,\n")
    (out / "text/a.txt").write_text("1\n2\n")
    with (out / "avro/a.avro").open("wb") as file:
        fastavro.writer(file, avro, table.to_pylist())
    orc.write_table(table, out / "orc/a.orc")
    # The type with which Spark writes timestamps by default.
    times = pa.table({"id": pa.array([1, 2], pa.int32()), "at": pa.array([at, None], pa.timestamp("us", tz="UTC"))})
    pq.write_table(times, out / "parquet/a.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    pq.write_table(
        times.cast(pa.schema([("id", pa.int64()), ("at", pa.timestamp("ms", "UTC"))])), out / "parquet/b.parquet"
    )
    schema = {"schema": "id bigint, name string"}
    want = table.to_pylist()
    assert migrated(out / "json", **schema).rows == 4
    assert migrated(out / "csv", **schema, options={"header": "true"}).rows == 2
    for name, rows in {"json": want * 2, "csv": want}.items():
        assert ftfile.open(str(out / name)).to_arrow().to_pylist() == rows
    assert migrated(out / "text").rows == 2
    for name in ("avro", "orc"):
        migrated(out / name)
        assert ftfile.open(str(out / name)).to_arrow().to_pylist() == want
    migrated(out / "parquet")
    assert ftfile.open(str(out / "parquet")).to_arrow().to_pylist() == [{"id": 1, "at": at}, {"id": 2, "at": None}] * 2
    MicroBatch(str(out / "json"), {"id": "long", "name": "string"}, {"fileFormat": "json"}).run(0, [[{"id": 3}]])
    assert ftfile.compact(str(out / "json")).files_removed == 2
    assert ids(out / "json") == [1, 1, 2, 2, 3]


def put(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@parametrize(
    ("files", "more", "match"),
    [
        ({}, {}, "no files of rows"),
        ({"_hidden.json": "{}"}, {}, "no files of rows"),
        ({"a.json": "{}\n"}, {}, "do not contain their schema: give it, such as schema="),
        ({"a.json": "{}\n", "b.csv": "1\n"}, {}, r"different formats: csv \('b.csv'\), json \('a.json'\)"),
        ({"a.json": "{}\n", "readme": ""}, {}, "cannot be derived from these names: 'readme'. .* file_format='json'"),
        ({"a.json": "{}"}, {"schema": "id long"}, r"'a.json' cannot be migrated: .* a line separator at the end"),
        ({"a.json": '{"id": "x"}\n'}, {"schema": "id long"}, r"'a.json' cannot be migrated"),
        ({"a.parquet": "no"}, {}, r"'a.parquet' cannot be migrated"),
        ({"a.json.gz": "no"}, {"schema": "id long"}, r"'a.json.gz' cannot be migrated"),
        ({"a.json.enc": ""}, {"schema": "id long"}, r"it is encrypted"),
        ({"k=1/a.json": "{}\n", "b.json": "{}\n"}, {"schema": "id long"}, "'b.json' has none, 'k=1/a.json' has k"),
        ({"k=1/a.json": "{}\n"}, {"schema": "id long"}, r"partition_by=\{'k': 'string'\}"),
        ({"k=x/a.json": "{}\n"}, {"schema": "id long", "partition_by": {"k": "int"}}, "give another type"),
        (
            {"k=1/a.json": "{}\n"},
            {"schema": "id long", "partition_by": {"l": "int"}},
            "such as 'k=1/a.json' have columns; l is not among",
        ),
        (dict.fromkeys("abcde", ""), {}, "cannot be derived from these names: 'a', 'b', 'c' and 2 more. "),
        ({"metadata/v1.metadata.json": "{}"}, {}, "an Iceberg table"),
        ({"t/metadata/v1.metadata.json": "{}"}, {}, "'t' is an Iceberg table"),
        ({"a/b/_ftfile/log/0": ""}, {}, "'a/b/_ftfile'. Migrate each of these directories separately"),
        ({"a/b/_spark_metadata/0": ""}, {}, "separate logs, .*'a/b/_spark_metadata'"),
        ({"a/_delta_log/0": ""}, {}, "separate logs, .*'a/_delta_log'"),
        ({"a/.hoodie/0": ""}, {}, "separate logs, .*'a/.hoodie'"),
        (
            {"c/metadata": "{}", "c/offsets/0": "v1\n"},
            {"file_format": "text"},
            "'c' is the checkpoint of a Spark query",
        ),
        ({"a.json": "{}\n"}, {"schema": "id long", "options": {"what": "1"}}, "what"),
        ({"a.json": "{}\n"}, {"from_": "delta"}, "has no _delta_log, the log of delta"),
        (
            {"a.json": "{}\n"},
            {"schema": "id long", "checkpoint": "/x"},
            "only a directory of Spark's own sink has a checkpoint",
        ),
    ],
    quick=8,
)
def test_refused(out: Path, files: dict[str, str], more: dict[str, Any], match: str) -> None:
    for name, text in files.items():
        put(out / name, text)
    before = tree(out)
    with pytest.raises((ConfigError, SchemaError, CorruptData), match=match):
        ftfile.migrate(str(out), dry_run=False, **more)
    assert tree(out) == before


@parametrize(
    ("name", "text", "schema"),
    [
        ("a.json", '{"a":"12"}', "a int"),
        ("a.json", '{"a":1.5}', "a int"),
        ("a.json", '{"a":1,}', "a int"),
        ("a.json", '{"a":-0}', "a double"),
        ("a.json", '{"a":1.005}', "a decimal(5,2)"),
        ("a.json", '{"a":1704103200}', "a timestamp"),
        ("a.csv", "0x1,z", "a int, b string"),
        ("a.csv", "inf,z", "a double, b string"),
        ("a.csv", '"",z', "a string, b string"),
        ("a.csv", '"a"b,z', "a string, b string"),
        ("a.csv", "1,2\n\n3,4", "a string, b string"),
        ("a.csv", '"1\n2",3', "a string, b string"),
        ("a.txt", "a\r", None),
    ],
    quick=4,
)
def test_lines_that_spark_reads_as_other_values_are_refused(out: Path, name: str, text: str, schema: str) -> None:
    put(out / name, f"{text}\n")
    with pytest.raises(ConfigError, match=r"(?s)cannot be migrated: .*(rows that Spark reads|cannot be read)"):
        ftfile.migrate(str(out), schema=schema)


@pytest.mark.parametrize(("text", "kind"), [("1_0", "double"), ("inf", "float"), (" 1", "int"), ("%41", "binary")])
def test_directories_that_spark_reads_as_other_values_are_refused(out: Path, text: str, kind: str) -> None:
    parquet(out / f"p={text}/a.parquet", [1])
    with pytest.raises(ConfigError, match="give another type with partition_by"):
        ftfile.migrate(str(out), partition_by={"p": kind})


@pytest.mark.slow
def test_spark_a_checkpoint_in_the_directory(out: Path) -> None:
    spark(out)
    checkpoint = spark_checkpoint(out / "checkpoint", batches=3)
    before = tree(out)
    with pytest.raises(ConfigError, match=r"'checkpoint' is the checkpoint of a Spark query, .* move it out"):
        ftfile.migrate(str(out), checkpoint=checkpoint, dry_run=False)
    assert tree(out) == before
    (out / "checkpoint").rename(out / "_checkpoint")
    migrated(out, checkpoint=str(out / "_checkpoint"))
    assert (out / "_checkpoint/metadata").exists(), "readers ignore the file, so it stays"


def test_hidden_tables_do_not_count(out: Path) -> None:
    parquet(out / "a.parquet", [1])
    put(out / "_old/table/_delta_log/0")
    put(out / "_old/checkpoint/offsets/0")
    put(out / "_old/checkpoint/metadata")
    assert migrated(out).files == 1


@pytest.mark.slow
def test_columns_that_differ(out: Path) -> None:
    parquet(out / "a.parquet", [1])
    pq.write_table(pa.table({"ID": [2]}), out / "b.parquet")
    with pytest.raises(SchemaError, match=r"column `ID` of 'b.parquet' is `id` in 'a.parquet'"):
        ftfile.migrate(str(out))
    pq.write_table(pa.table({"id": ["2"]}), out / "b.parquet")
    with pytest.raises(SchemaError, match=r"column `id` is string in 'b.parquet', and bigint in 'a.parquet'"):
        ftfile.migrate(str(out))
    pq.write_table(pa.table({"id": pa.array([2], pa.int32()), "more": [1.5]}), out / "b.parquet")
    migrated(out)
    rows = [{"id": 1, "more": None}, {"id": 2, "more": 1.5}]
    assert ftfile.open(str(out)).to_arrow().to_pylist() == rows


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no files of rows"):
        ftfile.migrate(str(tmp_path / "nowhere"), dry_run=False)
    assert not (tmp_path / "nowhere").exists()
