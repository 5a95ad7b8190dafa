"""Encrypted directories in Spark: streams that write them, sessions that read them, and Parquet's own encryption."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.filters.keys import forget_keys
from tests.spark.conftest import PARQUET_JAR
from tests.spark.scripted_source import Script, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(32)).decode()
SECRET = "a secret that nobody may read"


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "keys"
    path.write_text(f"first {KEY}\n")
    path.chmod(0o600)
    yield path
    forget_keys()


def batches(paths: dict[str, Any], count: int = 5) -> Script:
    return Script(paths["script"]).write(
        [[[(2 * n, SECRET)], [(2 * n + 1, SECRET)]] for n in range(count)], available=0
    )


def ids(rows: Any) -> list[int]:
    return sorted(row.id for row in rows.collect())


@pytest.mark.parametrize(
    ("file_format", "codec", "rolling"),
    [
        ("json", "gzip", {"maxBatchesPerFile": "2"}),
        ("parquet", "none", {}),
    ],
)
def test_streams(
    spark: SparkSession, paths: dict[str, Any], ring: Path, file_format: str, codec: str, rolling: dict[str, str]
) -> None:
    script = batches(paths)
    options = {"fileFormat": file_format, "compression": codec, **rolling}
    options |= {"encryption": "aes-gcm", "keyProvider": f"file:{ring}"}
    run(spark, paths, script, 3, **options)
    run(spark, paths, script, 5, **options)
    read = spark.read.format("ftfile")
    assert ids(read.load(paths["out"])) == list(range(10))
    ftfile.flush(paths["out"])
    assert ids(read.load(paths["out"])) == list(range(10))
    assert ids(read.option("versionAsOf", 2).load(paths["out"])) == list(range(6))
    files = [path for path in Path(paths["out"]).rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_keys_that_the_reader_names(spark: SparkSession, paths: dict[str, Any], ring: Path, tmp_path: Path) -> None:
    run(spark, paths, batches(paths, 1), 1, fileFormat="json", encryption="aes-gcm", keyProvider=f"file:{ring}")
    elsewhere = ring.rename(tmp_path / "elsewhere")
    read = spark.read.format("ftfile")
    assert ids(read.option("keyProvider", f"file:{elsewhere}").load(paths["out"])) == [0, 1]
    assert ids(read.option("keyProvider", f"command:cat {elsewhere}").load(paths["out"])) == [0, 1]
    with pytest.raises(Exception, match="cannot be read on the host"):
        spark.read.format("ftfile").load(paths["out"]).collect()
    elsewhere.write_text(f"first {OTHER_KEY}\n")
    forget_keys()
    with pytest.raises(Exception, match="another key has this name") as caught:
        read.option("keyProvider", f"command:cat  {elsewhere}").load(paths["out"])
    assert OTHER_KEY not in str(caught.value)


def test_a_missing_key_stops_a_stream_before_its_first_task(
    spark: SparkSession, paths: dict[str, Any], ring: Path
) -> None:
    options = {"fileFormat": "json", "encryption": "aes-gcm", "encryptionKeyId": "no-such"}
    with pytest.raises(Exception, match="there is no key 'no-such' in the key file") as caught:
        run(spark, paths, batches(paths, 1), 1, keyProvider=f"file:{ring}", **options)
    assert KEY not in str(caught.value)
    assert not Path(paths["out"]).exists()


def test_keys_are_in_no_plan(spark: SparkSession, paths: dict[str, Any], ring: Path, capsys: Any) -> None:
    run(spark, paths, batches(paths, 1), 1, fileFormat="json", encryption="aes-gcm", keyProvider=f"file:{ring}")
    spark.read.format("ftfile").option("keyProvider", f"file:{ring}").load(paths["out"]).explain(extended=True)
    shown = capsys.readouterr().out
    assert "ftfile" in shown.lower()
    assert KEY not in shown


class TestParquet:
    @pytest.fixture
    def kms(self, spark: SparkSession) -> Iterator[Any]:
        """The test KMS of parquet-hadoop, with our key."""
        if not PARQUET_JAR.exists():
            pytest.skip("needs .ci/parquet-jar")
        java: Any = spark.sparkContext
        settings = {
            "parquet.crypto.factory.class": "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
            "parquet.encryption.kms.client.class": "org.apache.parquet.crypto.keytools.mocks.InMemoryKMS",
            "parquet.encryption.key.list": f"first:{KEY}",
        }
        configuration = java._jsc.hadoopConfiguration()
        for name, value in settings.items():
            configuration.set(name, value)
        yield configuration
        for name in settings:
            configuration.unset(name)

    @pytest.mark.parametrize("rolling", [{}, {"maxBatchesPerFile": "2"}])
    def test_spark_reads_what_we_encrypt(
        self, spark: SparkSession, paths: dict[str, Any], ring: Path, kms: Any, rolling: dict[str, str]
    ) -> None:
        assert kms is not None
        options = {"encryption": "parquet", "keyProvider": f"file:{ring}", **rolling}
        run(spark, paths, batches(paths, 4), 4, fileFormat="parquet", **options)
        ftfile.flush(paths["out"])
        schema = "id long, word string"
        assert ids(spark.read.schema(schema).parquet(paths["out"])) == list(range(8))
        assert ids(spark.read.format("ftfile").load(paths["out"])) == list(range(8))

    def test_without_its_keys_spark_reads_nothing(self, spark: SparkSession, paths: dict[str, Any], ring: Path) -> None:
        options = {"encryption": "parquet", "keyProvider": f"file:{ring}"}
        run(spark, paths, batches(paths, 1), 1, fileFormat="parquet", **options)
        with pytest.raises(Exception, match=r"(?i)encrypt|crypto|no keys"):
            spark.read.schema("id long").parquet(paths["out"]).collect()


def test_a_key_in_the_options_is_refused(spark: SparkSession, paths: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="this value is not one of aws-kms:") as caught:
        run(spark, paths, batches(paths, 1), 1, fileFormat="json", encryption="aes-gcm", keyProvider=KEY)
    message = str(caught.value)
    assert ConfigError.__name__ in message
    assert KEY not in message
