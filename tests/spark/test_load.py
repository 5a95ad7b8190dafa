"""`ftfile.spark.load` compared with `format("ftfile")`: the same rows and types, by Spark's sources where possible."""

from __future__ import annotations

import datetime as dt
import os
import pickle
import random
import re
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.errors import AnalysisException, QueryExecutionException

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.read.shares import pack
from ftfile.spark import load, load_plan
from ftfile.spark import native_load as native
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.writing.files.changing_columns import Changing, tables_of
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ("ring",)

UTC = dt.timezone.utc
DATES_AS_TEXTS = "spark.sql.legacy.typeCoercion.datetimeToString.enabled"
STRUCT = {
    "type": "struct",
    "fields": [
        {"name": "A.b", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "c", "type": "string", "nullable": True, "metadata": {}},
    ],
}
ARRAY = {"type": "array", "elementType": "decimal(5,1)", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
NUMBERS: dict[str, tuple[Any, list[Any]]] = {
    "Id": ("long", [1, -(2**63), None]),
    "yes": ("boolean", [True, False, None]),
    "tiny": ("byte", [-128, 127, None]),
    "small": ("short", [-5, 5, None]),
    "int": ("integer", [7, -7, None]),
    "float": ("float", [0.1, float("nan"), None]),
    "double": ("double", [-0.0, float("inf"), None]),
    "small decimal": ("decimal(5,2)", [Decimal("1.50"), Decimal("-999.99"), None]),
    "decimal": ("decimal(38,18)", [Decimal("1E-18"), Decimal(-5), None]),
    "day": ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "at": ("timestamp", [dt.datetime(2024, 11, 3, 5, 30, 0, 1, tzinfo=UTC), dt.datetime(1970, 1, 1, tzinfo=UTC), None]),
    "local.time": ("timestamp_ntz", [dt.datetime(2024, 3, 10, 2, 30), dt.datetime(1, 1, 1), None]),  # noqa: DTZ001
}
TEXTS: dict[str, tuple[Any, list[Any]]] = {
    "name": ("string", ["", "a\r\n\"ü\\", None]),
    "raw": ("binary", [b"\0\xff", b"", None]),
    "nested": (STRUCT, [{"A.b": 1, "c": "x"}, {"A.b": None, "c": None}, None]),
    "list": (ARRAY, [[Decimal("1.5"), None], [], None]),
    "map": (MAP, [[("k", 1), ("l", None)], [], None]),
}  # fmt: skip
ALL = NUMBERS | TEXTS
ORC = {name: each for name, each in ALL.items() if name != "day"} | {"day": ("date", [dt.date(1, 1, 1), None, None])}


def written(out: str, columns: Mapping[str, tuple[Any, Any]], **options: str) -> str:
    """Write a directory with one batch of two tasks and three rows in all; return its path."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*(v for _, v in columns.values()), strict=True)]
    MicroBatch(out, {name: kind for name, (kind, _) in columns.items()}, options).run(0, [rows[:2], rows[2:]])
    return out


def rows_of(frame: DataFrame) -> list[str]:
    return sorted(repr(row) for row in frame.toArrow().to_pylist())


def same(spark: SparkSession, out: str, **version: Any) -> None:
    """Check that `load` returns the same columns, types and rows as `format("ftfile")`."""
    options = {"versionAsOf": version["version"]} if version else {}
    usual = spark.read.format("ftfile").options(**options).load(out)
    loaded = load(spark, out, **version)
    assert loaded.schema == usual.schema
    assert rows_of(loaded) == rows_of(usual)
    assert loaded.count() == usual.count()


@pytest.mark.parametrize(
    ("columns", "options", "by_spark"),
    [
        (ALL, {"fileFormat": "parquet"}, {"parquet": 2}),
        (ALL, {"fileFormat": "parquet", "compression": "lz4"}, {"parquet": 2}),
        (ALL, {"fileFormat": "parquet", "compression": "brotli"}, {}),
        (ORC, {"fileFormat": "orc"}, {"orc": 2}),
        (ALL, {"fileFormat": "json"}, {"json": 2}),
        (ALL, {"fileFormat": "json", "compression": "gzip", "lineSep": "\r\n"}, {"json": 2}),
        (ALL, {"fileFormat": "json", "compression": "zstd"}, {}),
        (ALL, {"fileFormat": "json", "timeZone": "Europe/Paris"}, {}),
        (NUMBERS, {"fileFormat": "csv", "header": "true", "sep": ";", "nullValue": "\\N"}, {"csv": 2}),
        (NUMBERS, {"fileFormat": "csv", "quoteAll": "true"}, {"csv": 2}),
        ({"t": TEXTS["name"], "n": NUMBERS["int"]}, {"fileFormat": "csv"}, {}),
        ({"t": ("string", ["", "a\rb", None])}, {"fileFormat": "text"}, {"text": 2}),
        ({"p": NUMBERS["int"], "t": ("string", ["a", "b", "c"])}, {"fileFormat": "text", "partitionBy": "p"}, {}),
        ({"p": NUMBERS["int"], "n": NUMBERS["int"]}, {"fileFormat": "csv", "partitionBy": "p", "nullValue": "\\N"}, {}),
        ({"t": ("string", ["", "ü\nb", None])}, {"fileFormat": "text", "lineSep": "|-"}, {"text": 2}),
        ({"t": ("binary", [b"\xff", b"", None])}, {"fileFormat": "text"}, {}),
        (ALL, {"fileFormat": "arrow"}, {}),
    ],
)
def test_formats(
    spark: SparkSession,
    tmp_path: Path,
    columns: Mapping[str, tuple[Any, list[Any]]],
    options: dict[str, str],
    by_spark: Mapping[str, int],
) -> None:
    out = written(str(tmp_path / "out"), columns, **options)
    plan = load_plan(spark, out)
    assert plan.spark_files == by_spark, plan
    assert sum(plan.ftfile_files.values()) == (0 if by_spark else 3 if "partitionBy" in options else 2)
    same(spark, out)


PARTITIONS: dict[str, tuple[Any, list[Any]]] = {
    "yes": ("boolean", [True, False, None]),
    "tiny": ("byte", [-128, 127, None]),
    "Small": ("short", [-32768, 5, None]),
    "an int": ("integer", [7, -(2**31), None]),
    "long": ("long", [2**63 - 1, -1, None]),
    "float": ("float", [0.1, float("-inf"), None]),
    "double": ("double", [1e20, float("nan"), None]),
    "decimal": ("decimal(10,2)", [Decimal("1.50"), Decimal("-12.34"), None]),
    "wide": ("decimal(38,18)", [Decimal("1E-18"), Decimal("-5.5"), None]),
    "day": ("date", [dt.date(1, 1, 1), dt.date(2024, 2, 29), None]),
    "at": ("timestamp", [dt.datetime(2024, 10, 27, 1, 30, tzinfo=UTC), dt.datetime(2024, 7, 1, 1, tzinfo=UTC), None]),
    "local": ("timestamp_ntz", [dt.datetime(2024, 3, 10, 2, 30, 0, 5), dt.datetime(1, 1, 1), None]),  # noqa: DTZ001
    "_x.y=`": ("string", ["__HIVE_DEFAULT_PARTITION__", "a/b=c%2F ü[a]*{}?#", "007"]),
    "text": ("string", ["a._COPYING_", None, "\x01:\\'\"^"]),
}


@pytest.mark.parametrize("kind", ["parquet", "orc", "json"])
def test_partition_columns_are_read_from_paths(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """With every type, in a directory with a hostile name."""
    out = str(tmp_path / "a b%20[c]*{d}ü#?\\")
    columns = PARTITIONS | {"value": ("string", ["x", "y", "z"])}
    written(out, columns, fileFormat=kind, partitionBy=", ".join(PARTITIONS), timeZone="Europe/Paris")
    plan = load_plan(spark, out)
    assert plan.spark_files == {kind: 3}, plan
    same(spark, out)


def plan_of(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan


def test_spark_prunes_and_pushes_down(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"month": ("integer", [7, 8, 7]), "id": ("long", [1, 2, 3]), "name": ("string", ["a", "b", "c"])}
    out = written(str(tmp_path / "out"), columns, partitionBy="month")
    frame = load(spark, out, where={"month": [7, None]}).where("id >= 2").select("name")
    plan = plan_of(frame)
    assert re.search(r"PartitionFilters: \[[^]]*month#\d+ = 7", plan), plan
    assert "PushedFilters: [IsNotNull(id), GreaterThanOrEqual(id,2)]" in plan
    assert "ReadSchema: struct<id:bigint,name:string>" in plan
    assert [row.name for row in frame.collect()] == ["c"]
    assert [row.name for row in load(spark, out, where="month = 8").select("name").collect()] == ["b"]


def test_names_and_metadata_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """Also if columns are in another order than in the files."""
    columns = {"p": ("string", ["x y", "x y", "z"]), "id": ("long", [1, 2, 3])}
    out = written(str(tmp_path / "a b"), columns, partitionBy="p")
    frame = load(spark, out)
    assert frame.columns == ["p", "id"]
    files = {unquote(Path(file.path).name): file for file in ftfile.open(out).files()}
    found = frame.selectExpr("_metadata.*", "input_file_name() AS name").distinct().collect()
    assert {row.file_name for row in found} == files.keys()
    for row in found:
        file = files[row.file_name]
        assert {unquote(urlsplit(text).path) for text in (row.name, row.file_path)} == {f"{out}/{unquote(file.path)}"}
        assert row.file_size == file.size_bytes
        modified = Path(out, file.path).stat().st_mtime
        assert row.file_modification_time.timestamp() == pytest.approx(modified, abs=0.002)


def test_columns_that_change(spark: SparkSession, tmp_path: Path) -> None:
    """One read covers a new column, a second read a wider type. ftfile reads a type of another kind."""
    out = str(tmp_path / "out")
    options = {"onSchemaChange": "any"}
    MicroBatch(out, {"id": "integer", "x": "string"}, options).run(0, [[{"id": 1, "x": "a"}]])
    MicroBatch(out, {"id": "integer", "x": "string", "y": STRUCT}, options).run(1, [[{"id": 2, "x": "b", "y": None}]])
    same(spark, out)
    assert load_plan(spark, out).spark_files == {"parquet": 2}
    assert "Union" not in plan_of(load(spark, out))
    MicroBatch(out, {"y": STRUCT, "id": "long"}, options).run(2, [[{"id": 2**40, "y": {"A.b": 1, "c": "x"}}]])
    for version in range(3):
        same(spark, out, version=version)
    assert load_plan(spark, out).spark_files == {"parquet": 3}
    assert load(spark, out, where="id = 1").collect() == [(None, 1)]
    MicroBatch(out, {"y": STRUCT}, options).run(3, [[{"y": {"A.b": 2, "c": "y"}}]])
    MicroBatch(out, {"y": STRUCT, "id": "long"}, options | {"fileFormat": "orc", "onFormatChange": "accept"}).run(
        4, [[{"y": None, "id": 4}]]
    )
    same(spark, out)
    assert load_plan(spark, out).spark_files == {"parquet": 4, "orc": 1}


def test_timestamps_of_orc_that_change_places(spark: SparkSession, tmp_path: Path) -> None:
    out, options = str(tmp_path / "out"), {"fileFormat": "orc", "onSchemaChange": "any"}
    at, local = NUMBERS["at"][1][0], NUMBERS["local.time"][1][0]
    for batch, names in enumerate((["gone", "at", "local"], ["at", "local"], ["new", "local", "gone", "at"])):
        kinds = {"at": "timestamp", "local": "timestamp_ntz"}
        row = {"gone": "x", "new": "y", "at": at, "local": local}
        columns = {name: kinds.get(name, "string") for name in names}
        MicroBatch(out, columns, options).run(batch, [[{name: row[name] for name in names}]])
        assert sum(load_plan(spark, out).spark_files.values()) == batch + 1
        same(spark, out)


@pytest.mark.parametrize("case", ["parquet", "orc", "json", "csv", "paths"])
def test_no_change_of_columns_alters_a_value(spark: SparkSession, tmp_path: Path, case: str, seed: int) -> None:
    """All types at once, to drawn types; `tests/unit/writing/files/test_every_schema_change.py` has all changes."""
    changing = Changing(tmp_path / "out", case, tables_of(case)[0])
    changing.write(changing.random_change(random.Random(seed)))
    schema = ftfile.open(changing.path).to_arrow().schema
    for frame in (spark.read.format("ftfile").load(str(changing.path)), load(spark, changing.path)):
        changing.check(frame.toArrow().cast(schema))


def test_rows_of_open_files_and_old_versions(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": 1}]])
    MicroBatch(out, {"id": "long"}, {"rolling": "policy", "onNewQuery": "continue"}, query_id="other").run(
        0, [[{"id": 2}]]
    )
    same(spark, out)
    assert str(load_plan(spark, out)).endswith(
        "version 1 is read: 1 parquet files by Spark, 1 by ftfile (files are still open)"
    )
    named = load(spark, out).selectExpr("id", "input_file_name() AS name").collect()
    assert {row.id: Path(row.name).name for row in named} == {1: ftfile.open(out).files()[0].path, 2: ""}
    with pytest.raises(AnalysisException, match="_metadata"):
        load(spark, out).select("_metadata.file_path")
    before = load(spark, out)
    ftfile.flush(out)
    ftfile.compact(out)
    same(spark, out)
    same(spark, out, version=1)
    assert load_plan(spark, out, version=1).spark_files == {}
    with pytest.raises(QueryExecutionException, match="is gone: a compaction"):
        before.collect()


def test_files_that_are_gone_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    out = written(str(tmp_path / "out"), {"id": ("long", [1, 2, 3])})
    frame = load(spark, out, check_files=False)
    assert frame.count() == 3
    Path(out, ftfile.open(out).files()[0].path).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=r"FAILED_READ_FILE\.FILE_NOT_EXIST"):
            frame.collect()
        with pytest.raises(Exception, match=r"is gone: a compaction|neither staged nor published nor retired"):
            load(spark, out).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


REPLACED: dict[str, dict[str, tuple[Any, list[Any]]]] = {
    "parquet": {"p": ("integer", [1, 1, 2]), "id": ("long", [1, 2, 3])},
    "orc": {"p": ("integer", [1, 1, 2]), "id": ("long", [1, 2, 3])},
    "json": {"p": ("integer", [1, 1, 2]), "id": ("long", [1, 2, 3])},
    "csv": {"id": ("long", [1, 2, 3]), "value": ("double", [0.5, 1.5, 2.5])},
    "text": {"id": ("string", ["1", "2", "3"])},
}


@pytest.mark.parametrize("kind", REPLACED)
def test_a_file_that_another_program_replaces_is_an_error(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """With another length or time, or deleted: an error of each new query that reads it, and of no other query."""
    columns = REPLACED[kind]
    out = written(str(tmp_path / "out"), columns, fileFormat=kind, **({"partitionBy": "p"} if "p" in columns else {}))
    frame = load(spark, out)
    frame.createOrReplaceTempView("replaced")
    unchecked = load(spark, out, check_files=False)
    file = next(Path(out, each.path) for each in ftfile.open(out).files() if "p=1" not in each.path)
    before, content = file.stat(), file.read_bytes()
    assert (frame.count(), unchecked.count()) == (3, 3)
    queries = (frame, frame.select("_metadata.file_path"), frame.groupBy().count(), spark.table("replaced"))
    for replaced, earlier_ms, fault in (
        (content * 2, 0, f"had {len(content)} bytes, and has {len(content) * 2}: another program has replaced it"),
        (content, 5, "has the length that it had, and another time: another program has replaced it since an earlier"),
        (None, 0, "is gone: a compaction, an overwrite, a drop or a vacuum has removed it"),
    ):
        file.unlink()
        if replaced is not None:
            file.write_bytes(replaced)
            os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns - earlier_ms * 1_000_000))
        message = rf"{file.name} {fault}.* ftfile\.spark\.load again"
        for query in queries:
            with pytest.raises(QueryExecutionException, match=message):
                query.select("*").collect()
        if "p" in columns:
            assert frame.where("p = 1").count() == 2
        if replaced is not None:
            unchecked.count()
    file.write_bytes(content)
    os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert frame.count() == 3


def test_ftfile_reads_files_that_spark_cannot_list(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = written(str(tmp_path / "out"), {"id": ("long", [1, 2, 3])})
    monkeypatch.setattr(
        "ftfile.spark.native.listed_files._constructor", mock.Mock(side_effect=RuntimeError("no compiler\nat x"))
    )
    assert load_plan(spark, out).ftfile_files == {"Spark cannot list them: no compiler": 2}
    assert sorted(load(spark, out).collect()) == [(1,), (2,), (3,)]
    monkeypatch.setattr(native, "hadoop_url", lambda *_: "nowhere://host/file")
    (reason,) = load_plan(spark, out).ftfile_files
    assert "file systems do not find them" in reason
    assert 'No FileSystem for scheme "nowhere"' in reason


def test_files_that_where_excludes_are_not_part_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    days = [dt.date(2024, 7, day) for day in (1, 2, 3)]
    columns = {"day": ("date", days), "id": ("long", [1, 2, 3])}
    out = written(str(tmp_path / "out"), columns, partitionBy="day")
    for where, files, ids in (
        (None, 3, [1, 2, 3]),
        ("day >= DATE '2024-07-02' AND id < 3", 1, [2]),
        ("year(day) = 2024 AND day = DATE '2024-07-02'", 1, [2]),
        ("day < current_date() - interval 30 days", 3, [1, 2, 3]),
        ("day >= current_date() - interval 30 days", 1, []),
        ({"day": days[2]}, 1, [3]),
    ):
        frame = load(spark, out, where=where)
        assert len(frame.inputFiles()) == files
        assert sorted(row.id for row in frame.collect()) == ids


def test_files_that_statistics_exclude_are_not_part_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = MicroBatch(out, {"id": "long", "name": "string"}, {"fileFormat": "parquet"})
    for batch in range(6):
        query.run(batch, [[{"id": 10 * batch + n, "name": f"name {batch}"} for n in range(10)]])
    for where, files, rows in (
        (None, 6, 60),
        ("id = 25", 1, 1),
        ("id >= 35 AND name <> 'name 5'", 2, 15),
        ({"id": [5, 55]}, 2, 2),
        ("id > 1000", 1, 0),
        ("id IS NULL", 1, 0),
        ("length(name) = 6", 6, 60),
    ):
        frame = load(spark, out, where=where)
        assert (len(frame.inputFiles()), frame.count()) == (files, rows), where
        unaided = load(spark, out, where=where, statistics=False)
        assert (len(unaided.inputFiles()), unaided.count()) == (6, rows), where


def test_a_version_without_files_has_the_columns_of_files(spark: SparkSession, tmp_path: Path) -> None:
    options = {"fileFormat": "json", "partitionBy": "p"}
    MicroBatch(str(tmp_path / "out"), {"p": "date", "a b": STRUCT}, options).run(0, [[]])
    frame = load(spark, str(tmp_path / "out"))
    assert frame.columns == ["p", "a b"]
    assert frame.select("*", "_metadata.file_path").collect() == frame.where("p > '2024-07-01'").collect() == []


def test_a_condition_that_excludes_all_files_leaves_their_columns(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"month": ("integer", [7, 8, 9]), "id": ("long", [1, 2, 3])}
    out = written(str(tmp_path / "out"), columns, partitionBy="month")
    assert load(spark, out, where="month = 99").select("_metadata.file_path").collect() == []


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ({"spark.sql.ansi.enabled": "false"}, "month NOT IN ('02')"),
        ({"spark.sql.ansi.enabled": "false", DATES_AS_TEXTS: "true"}, "day < '2024-01-02 00:00:00'"),
        ({}, "city NOT IN ('${city}')"),
    ],
)
def test_rows_are_those_of_the_condition_by_spark_itself(
    spark: SparkSession, tmp_path: Path, setting: dict[str, str], where: str
) -> None:
    days = [dt.date(2024, 1, 2), dt.date(2024, 1, 10), None]
    cities = ("string", ["a", "b", "${city}"])
    columns = {"month": ("integer", [2, 3, None]), "day": ("date", days), "city": cities, "id": ("long", [1, 2, 3])}
    out = written(str(tmp_path / "out"), columns, partitionBy="month,day,city")
    for name, value in setting.items():
        spark.conf.set(name, value)
    try:
        found = sorted(row.id for row in load(spark, out, where=where).collect())
        assert found == sorted(row.id for row in load(spark, out).where(where).collect())
        assert found
    finally:
        for name in setting:
            spark.conf.unset(name)


def test_each_task_of_the_rest_has_its_own_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "out")
    MicroBatch(out, {"id": "long"}).run(0, [[{"id": 1}]])
    rolling = {"rolling": "policy", "onNewQuery": "continue"}
    MicroBatch(out, {"id": "long"}, rolling, query_id="other").run(0, [[{"id": number}] for number in (2, 3, 4)])
    monkeypatch.setattr(native, "pack", lambda adds, definitions: pack(adds, definitions, task_bytes=1))
    made = mock.Mock()
    init = native._Task.__init__
    monkeypatch.setattr(native._Task, "__init__", lambda task, *given: made(*given) and init(task, *given))
    frame = load(spark, out)
    assert sorted(row.id for row in frame.collect()) == [1, 2, 3, 4]
    assert frame.rdd.getNumPartitions() == 4
    adds = ftfile.open(out).snapshot().adds
    (given,) = made.call_args_list
    assert sum(add.encode() in pickle.dumps(given.args) for add in adds) == 1  # one add, as an example, for all tasks


@pytest.mark.parametrize("kind", ["json", "orc"])
def test_what_the_session_may_set(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Settings with which Spark would not read the list of files, or would read it differently."""
    columns = {"id": ("long", [1, 2, 3]), "at": NUMBERS["at"]}
    out = written(str(tmp_path / "x=1" / "out"), columns, fileFormat=kind)
    for name, value in {
        "spark.sql.streaming.fileStreamSink.ignoreMetadata": "true",
        "spark.sql.sources.useV1SourceList": "",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.caseSensitive": "true",
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }.items():
        spark.conf.set(name, value)
        try:
            same(spark, out)
        finally:
            spark.conf.unset(name)


def test_a_directory_below_one_that_looks_like_a_partition(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"id": ("long", [1, 2, 3]), "x": ("string", ["a", "b", "c"])}
    for options in ({}, {"partitionBy": "x"}):
        same(spark, written(str(tmp_path / f"{len(options)}" / "x=1"), columns, **options))


def test_other_directories(spark: SparkSession, tmp_path: Path) -> None:
    """Directories by time below and next to partition columns, files named by records, and directories without rows."""
    columns = {
        "id": ("long", [1, 2, 3]),
        "day": ("date", [dt.date(2024, 7, 1), dt.date(2024, 7, 2), dt.date(2024, 7, 3)]),
    }
    by_day = {"directoryPattern": "day:'day='yyyy-MM-dd"}
    same(spark, written(str(tmp_path / "1"), columns, **by_day))
    same(spark, written(str(tmp_path / "2"), columns, partitionBy="id", **by_day))
    named = columns | {"target": ("string", ["a/b", "c", "d"])}
    same(spark, written(str(tmp_path / "3"), named, fileNameColumn="target"))
    same(spark, written(str(tmp_path / "4"), columns, partFileName="{name}-{index}{ext}", ifExists="fail"))
    same(spark, written(str(tmp_path / "5"), {"id": ("long", [])}))


def test_where_is_checked(spark: SparkSession, tmp_path: Path) -> None:
    out = written(str(tmp_path / "out"), {"a.`b": ("long", [1, None, 3])})
    assert sorted(load(spark, out, where={"a.`b": {1, 3}}).collect()) == [(1,), (3,)]
    assert load(spark, out, where={"a.`b": None}).collect() == [(None,)]
    ranges: tuple[tuple[range, list[int]], ...] = (
        (range(1, 3), [1]),
        (range(3, 0, -2), [1, 3]),
        (range(0), []),
        (range(-(10**9), 10**9), [1, 3]),
    )
    for values, found in ranges:
        frame = load(spark, out, where={"a.`b": values})
        assert sorted(row[0] for row in frame.collect()) == found
    assert "GreaterThanOrEqual(" in plan_of(frame)
    with pytest.raises(ConfigError, match="a condition as text"):
        load(spark, out, where=["id"])  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give only one of them"):
        load(spark, out, version=0, timestamp="2024-07-01")
    with pytest.raises(ConfigError, match="there is no version 7: the newest is 0"):
        load(spark, out, version=7)


def test_ftfile_reads_an_encrypted_directory(spark: SparkSession, tmp_path: Path, ring: Path) -> None:
    provider = f"file:{ring}"
    out = written(str(tmp_path / "out"), {"id": ("long", [1, 2, 3])}, encryption="parquet", keyProvider=provider)
    plan = load_plan(spark, out, key_provider=provider)
    assert (plan.spark_files, plan.ftfile_files) == ({}, {"the directory is encrypted": 2})
    assert sorted(load(spark, out, where="id > 1", key_provider=provider).collect()) == [(2,), (3,)]


def test_spark_connect_has_no_jvm_at_hand(spark: SparkSession, tmp_path: Path) -> None:
    out = written(str(tmp_path / "out"), {"id": ("long", [1, 2, 3])})
    remote: Any = SimpleNamespace(read=spark.read, range=spark.range)
    assert load_plan(remote, out).ftfile_files == {"Spark Connect": 2}
    assert sorted(load(remote, out, where={"id": [1, 3]}).collect()) == [(1,), (3,)]


def test_the_format_prunes_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """With `filterPushdown` and Spark's setting. A loaded frame keeps its first filters, so each is loaded again."""
    columns = {"month": ("integer", [7, 8, None]), "id": ("long", [1, 2, 3])}
    out = written(str(tmp_path / "out"), columns, partitionBy="month")
    reader = spark.read.format("ftfile").option("filterPushdown", "true")
    with pytest.raises(Exception, match=r"filterPushdown\.enabled"):
        reader.load(out).collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        for condition, expected in (
            ("month = 7", [1]),
            ("month IS NULL", [3]),
            ("id > 1", [2, 3]),
            ("true", [1, 2, 3]),
        ):
            frame = reader.load(out).where(condition)
            assert sorted(row.id for row in frame.collect()) == expected
        for file in ftfile.open(out).files():  # the skipped files may be deleted
            if "=7/" not in file.path:
                Path(out, file.path).unlink()
        assert reader.load(out).where("month in (7, 9) and id = 1").collect() == [(7, 1)]
        assert spark.read.format("ftfile").schema("month int").load(out).count() == 3
        with pytest.raises(Exception, match="neither staged nor published"):
            reader.load(out).where("id > 0").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_tasks_of_the_format_share_large_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ftfile.formats.columnar.CollectingEncoder.group_rows_max", 10)
    for kind in ("parquet", "orc"):
        out = str(tmp_path / kind)
        MicroBatch(out, {"id": "long", "text": "string"}, {"fileFormat": kind}).run(
            0, [[{"id": number, "text": f"{number}" * 20_000} for number in range(35)]]
        )
        (file,) = ftfile.open(out).files()
        frame = spark.read.format("ftfile").option("maxPartitionBytes", file.size_bytes // 2 + 1).load(out)
        counts = [len(rows) for rows in frame.select("id").rdd.glom().collect()]
        assert len(counts) == 2
        assert sum(counts) == 35
        assert max(counts) < 35
        assert sorted(row.id for row in frame.collect()) == [*range(35)]
