"""Reads of a forged directory or a forged input by Spark's processes have no effects but rows or a clear error."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile.spark
from ftfile.errors import ConfigError, CorruptData
from ftfile.operate.verify.verify_directory import VerifyReport
from ftfile.testing.micro_batch import MicroBatch
from tests.hostile.forging import ANY, forge
from tests.hostile.inputs import INPUTS, avro_file, record
from tests.spark.file_queries import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

MODULE = "planted_for_spark"
HIT = f"{MODULE}:Hit"
COLUMNS = {"id": "long"}


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """Yield a file that the planted module creates in any process of Spark that imports it."""
    folder = Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])  # on the path of driver and workers
    assert folder.is_dir()
    file = tmp_path / "mark"
    (folder / f"{MODULE}.py").write_text(f"open({str(file)!r}, 'w').close()\n\nclass Hit: ...\n")
    yield file
    assert not file.exists()


def write(path: Path, **options: str) -> None:
    for batch in range(2):
        query = MicroBatch(str(path), COLUMNS, options, checkpoint=str(path.parent / "checkpoint"))
        query.run(batch, [[{"id": batch}]])


def ids_by_load(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.id for row in spark.read.format("ftfile").load(str(path)).collect())


def ids_by_stream(reader: DataStreamReader, source: Path, tmp_path: Path, column: str = "id") -> list[object]:
    """Return the rows that a stream reads now."""
    sink, checkpoint = str(tmp_path / "streamed"), str(tmp_path / "streamed.checkpoint")
    stream = reader.load(str(source)).writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = stream.trigger(availableNow=True).start(sink)
    query.awaitTermination()
    return sorted(row[column] for row in reader._spark.read.parquet(sink).collect())


def errors_in(spark: SparkSession, path: Path) -> list[str]:
    """Return the errors of verify. Files derived from a forged log are missing, which is not an error."""
    report = ftfile.spark.verify(spark, str(path), tasks=2)
    assert isinstance(report, VerifyReport)
    return [finding.code for finding in report.findings if finding.severity == "error"]


def following(spark: SparkSession) -> DataStreamReader:
    return spark.readStream.format("ftfile").option("startingVersion", "0")


@pytest.mark.usefixtures("mark")
class TestDirectories:
    def test_a_type_that_names_a_module_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "out"
        MicroBatch(str(path), COLUMNS).run(0, [[{"id": 1}]])
        udt = {
            "type": "udt",
            "class": "x",
            "pyClass": f"{MODULE}.Hit",
            "serializedClass": "Y29zCg==",
            "sqlType": "long",
        }
        assert forge(path, ("definitions", ANY, "fields", 0, "type"), udt) == 1
        refusal = rf"user-defined type {MODULE}\.Hit cannot be stored"
        with pytest.raises(Exception, match=refusal):
            spark.read.format("ftfile").load(str(path))
        with pytest.raises(Exception, match=refusal):
            spark.readStream.format("ftfile").load(str(path))
        with pytest.raises(CorruptData, match=refusal):
            ftfile.spark.load(spark, str(path))

    def test_code_that_queries_name_is_not_imported(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "out"
        write(path)
        write(open_files := tmp_path / "open", rolling="policy")
        for directory in (path, open_files):
            assert forge(directory, ("definitions", ANY, "rolling", "rollingPolicy"), HIT)
            assert forge(directory, ("definitions", ANY, "onPublish"), HIT)
            assert forge(directory, ("definitions", ANY, "naming", "partFileName"), HIT)
        assert ids_by_load(spark, path) == ids_by_load(spark, open_files) == [0, 1]
        assert ids_by_stream(following(spark), path, tmp_path) == [0, 1]
        assert errors_in(spark, path) == []
        assert getattr(ftfile.spark.compact(spark, str(path), tasks=2), "files_removed", None) == 2
        assert ids_by_load(spark, path) == [0, 1]
        with pytest.raises(ConfigError, match="code is not imported because a directory names it"):
            ftfile.spark.flush(spark, str(open_files), tasks=2)

    def test_a_checkpoint_elsewhere_is_left_alone(self, spark: SparkSession, tmp_path: Path) -> None:
        path = tmp_path / "out"
        write(path)
        assert forge(path, ("tables", "checkpoints", "set", ANY), "webhdfs://127.0.0.1:9/checkpoint")
        assert ids_by_load(spark, path) == [0, 1]
        assert ids_by_stream(following(spark), path, tmp_path) == [0, 1]
        (query,) = ftfile.open(str(path)).status().queries
        assert query.checkpoint is None or query.checkpoint.problem
        assert errors_in(spark, path) == []

    def test_a_link_out_of_the_log_is_not_followed(self, spark: SparkSession, tmp_path: Path) -> None:
        path, secret = tmp_path / "out", tmp_path / "secret"
        write(path)
        (path / "_ftfile/log").rename(secret)
        (path / "_ftfile/log").symlink_to(secret)
        before = {file: file.read_bytes() for file in secret.iterdir()}
        refusal = "link"
        with pytest.raises(Exception, match=refusal):
            ids_by_load(spark, path)
        with pytest.raises(Exception, match=refusal):
            ids_by_stream(following(spark), path, tmp_path)
        with pytest.raises(Exception, match=refusal):
            ftfile.spark.compact(spark, str(path), tasks=2)
        assert {file: file.read_bytes() for file in secret.iterdir()} == before


def test_a_stream_goes_on_beside_a_bomb(spark: SparkSession, tmp_path: Path) -> None:
    place, bomb = tmp_path / "in", INPUTS["Avro: 300 MB of zeros by zstd"]
    place.mkdir()
    (place / bomb.name).write_bytes(bomb.content())
    (place / "b.avro").write_bytes(avro_file(record("string"), 1, b"\2x"))
    state = str(tmp_path / "state")
    options = {"fileFormat": "avro", "ignoreCorruptFiles": "true", "stateLocation": state, **AT_ONCE}
    reader = spark.readStream.format("ftfile").schema("a string").options(**options)
    assert ids_by_stream(reader, place, tmp_path, "a") == ["x"]
