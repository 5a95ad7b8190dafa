"""The stream sink in Spark on an S3 server: ftfile, with and without Spark, reads the files."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import QueryExecutionException, StreamingQueryException

import ftfile
from tests.object_stores import servers
from tests.spark.scripted_source import SCHEMA, Script, start
from tests.spark.storage_scenarios import BATCHES, StorageScenarios, assert_nothing_told, check, options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.object_stores.servers import Storage
    from tests.spark.storage_scenarios import Paths


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with servers.versity() if servers.VERSITY.exists() else servers.moto() as storage:
        yield storage


class TestS3(StorageScenarios):
    variables = ("STORAGE_ACCESS", "STORAGE_SECRET")
    by_variable = (("accessKeyVariable", "STORAGE_ACCESS"), ("secretKeyVariable", "STORAGE_SECRET"))

    def test_storage_killed_under_a_stream_is_survived(
        self, spark: SparkSession, paths: Paths, storage: Storage
    ) -> None:
        if not servers.VERSITY.exists():
            pytest.skip("moto loses its data when it is killed")
        script = Script(paths["script"]).write(BATCHES, available=0)
        # however long the server takes to start
        query = start(spark, paths, **options(paths, **{"storage.patience": "600"}))
        try:
            script.release(1)
            query.processAllAvailable()
            storage.kill()
            script.release(2)
            time.sleep(1)
            storage.start()
            query.processAllAvailable()
            script.release(3)
            query.processAllAvailable()
        finally:
            query.stop()
        check(spark, paths)

    def test_an_object_that_another_program_replaces_is_an_error(
        self, spark: SparkSession, paths: Paths, storage: Storage
    ) -> None:
        """Spark's S3 client reads the objects and lists the directories that a query reads."""
        rows = spark.createDataFrame([(1, "a"), (2, "b")], SCHEMA).coalesce(1)
        named = options(paths, fileFormat="parquet", partitionBy="word")
        for _ in range(2):
            rows.write.format("ftfile").options(**named).mode("append").save(paths["out"])
        for name, value in storage.hadoop_settings.items():
            spark.conf.set(name, value)
        try:
            frame = ftfile.spark.load(spark, paths["out"], storage=paths["storage"])
            files = ftfile.open(paths["out"], storage=paths["storage"]).files()
            assert len(frame.inputFiles()) == len(files) == 4
            assert frame.count() == 4
            path = next(file.path for file in files if "word=a" in file.path)
            key = f"{paths['out'].removeprefix(storage.url).strip('/')}/{path}"
            client = servers.client(storage.endpoint)
            content = client.get_object(Bucket=servers.BUCKET, Key=key)["Body"].read()
            time.sleep(1)  # times are compared in whole seconds
            for other, fault in ((content, "another time"), (content * 2, f"has {len(content) * 2}")):
                client.put_object(Bucket=servers.BUCKET, Key=key, Body=other)
                with pytest.raises(QueryExecutionException, match=rf"{fault}: another program has replaced it"):
                    frame.count()
            client.delete_object(Bucket=servers.BUCKET, Key=key)
            with pytest.raises(QueryExecutionException, match="is gone: a compaction"):
                frame.count()
            assert frame.where("word = 'b'").count() == 2
        finally:
            for name in storage.hadoop_settings:
                spark.conf.unset(name)

    def test_credentials_of_a_profile_are_told_nowhere(
        self, spark: SparkSession, paths: Paths, storage: Storage, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Script(paths["script"]).write(BATCHES)
        right = options(paths, **{"storage.profile": "right"})
        query = start(spark, paths, **right)
        try:
            query.processAllAvailable()
            query.explain(extended=True)
        finally:
            query.stop()
        spark.read.format("ftfile").options(**right).load(paths["out"]).explain(extended=True)
        explained = capsys.readouterr().out
        assert "WriteToMicroBatchDataSource ftfile" in explained
        assert "BatchScan ftfile" in explained
        assert_nothing_told(storage.secrets, explained, str(query.recentProgress), *storage.kept(paths["out"]))

    def test_a_refusal_repeats_no_credentials(self, spark: SparkSession, paths: Paths, storage: Storage) -> None:
        if not servers.VERSITY.exists():
            pytest.skip("moto accepts all credentials")
        Script(paths["script"]).write(BATCHES)
        query = start(spark, paths, **options(paths, **{"storage.profile": "wrong"}))
        with pytest.raises(StreamingQueryException, match="does not accept these credentials") as caught:
            query.awaitTermination()
        secrets = (*storage.secrets, servers.WRONG)
        assert_nothing_told(secrets, str(caught.value), repr(query.exception()), str(query.status))
