"""Compressed files and Spark: its reads of our files, our reads of its files, and streams that write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
import pytest

import ftfile
from ftfile.core.codecs import CODECS
from ftfile.filters.chain import Chain
from ftfile.testing.micro_batch import MicroBatch
from tests.spark.scripted_source import Script, run
from tests.unit.writing.files.test_compressed_readers import CLAIMS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

WORDS = [f"word {n}, and {n * n} more" for n in range(30_000)]
SPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))


@pytest.mark.parametrize("codec", CODECS)
def test_spark_reads_what_the_docs_say(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    query = MicroBatch(
        str(tmp_path), {"word": "string"}, {"fileFormat": "text", "compression": codec, "rolling": "policy"}
    )
    for batch in range(3):
        query.run(batch, [[{"word": word} for word in WORDS[batch * 10_000 :][:10_000]]])
    ftfile.flush(str(tmp_path))
    claim = CLAIMS[codec]["Spark"]
    if claim == "no":
        # Spark reads it as plain text: no error, and other rows.
        assert spark.read.text(str(tmp_path)).count() != len(WORDS)
    elif claim == "yes" or tuple(map(int, claim.removeprefix("from ").split("."))) <= SPARK:
        assert sorted(row.value for row in spark.read.text(str(tmp_path)).collect()) == sorted(WORDS)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "bzip2"])
def test_what_spark_writes_is_what_the_codec_reads(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    rows = spark.createDataFrame([(word,) for word in WORDS], "value string").coalesce(1)
    rows.write.option("compression", codec).text(str(tmp_path / "spark"))
    (file,) = (tmp_path / "spark").glob("part-*")
    assert file.name.endswith(CLAIMS[codec]["files end in"].strip("`"))
    assert Chain.for_reading([codec]).open_frames(file.read_bytes()).decode().split("\n")[:-1] == WORDS


@pytest.mark.parametrize(
    ("file_format", "codec", "rolling"),
    [
        ("json", "gzip", {"maxBatchesPerFile": "2"}),
        ("csv", "bzip2", {}),
        ("csv", "snappy", {"maxRecordsPerFile": "3", "rolling": "policy", "header": "true"}),
        ("json", "lz4", {}),
        ("parquet", "lz4", {"maxBatchesPerFile": "2"}),
    ],
)
def test_streams(
    spark: SparkSession, paths: dict[str, Any], file_format: str, codec: str, rolling: dict[str, str]
) -> None:
    script = Script(paths["script"]).write([[[(2 * n, "even")], [(2 * n + 1, "odd")]] for n in range(5)], available=0)
    options = {"fileFormat": file_format, "compression": codec, **rolling}
    run(spark, paths, script, 3, **options)
    run(spark, paths, script, 5, **options)
    assert sorted(row.id for row in spark.read.format("ftfile").load(paths["out"]).collect()) == list(range(10))
    ftfile.flush(paths["out"])
    assert sorted(row.id for row in spark.read.format("ftfile").load(paths["out"]).collect()) == list(range(10))
    reader = spark.read.schema("id long, word string").option("header", rolling.get("header", "false"))
    assert sorted(row.id for row in getattr(reader, file_format)(paths["out"]).collect()) == list(range(10))
