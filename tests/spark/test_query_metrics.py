"""The metrics of real streams: by HTTP they equal the numbers of `history()` and of Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.spark import listen, query_metrics, unlisten
from ftfile.storage.registry import normalise
from tests.spark.scripted_source import Row, Script, run, start
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from ftfile.tools.monitor.monitor import Monitor

Paths = dict[str, Any]


@pytest.fixture
def monitor(spark: SparkSession) -> Iterator[Monitor]:
    yield listen(spark, prometheus_port=0, interval="100ms")
    unlisten(spark)
    unlisten(spark)  # a repeated call has no effect


def batches(count: int) -> list[list[list[Row]]]:
    return [[[(2 * n, "even")], [(2 * n + 1, "odd")]] for n in range(count)]


class Scrape:
    """The values that Prometheus reads."""

    def __init__(self, monitor: Monitor, directory: str) -> None:
        self.url, self.directory = str(monitor.url), normalise(directory)

    def __call__(self, name: str, **labels: str) -> float | None:
        wanted = {"directory": self.directory, **labels}
        with urlopen(self.url) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = (sample for family in families for sample in family.samples)
        return next((each.value for each in samples if (each.name, each.labels) == (name, wanted)), None)


def test_values_are_those_of_history_and_of_spark(
    spark: SparkSession, monitor: Monitor, paths: Paths, second: Paths
) -> None:
    assert listen(spark, prometheus_port=0, interval="100ms") is monitor
    with pytest.raises(ConfigError, match="call unlisten"):
        listen(spark, prometheus_port=0, interval="1s")
    script = Script(paths["script"]).write(batches(4), available=0)
    spark.conf.set("spark.ftfile.userMetadata", "nightly")
    try:
        other = start(spark, {**second, "script": paths["script"]}, queryName="other")
        run(spark, paths, script, 3, queryName="words", maxBatchesPerFile="2")
    finally:
        spark.conf.unset("spark.ftfile.userMetadata")
    scrape, of_query = Scrape(monitor, paths["out"]), {"query": "words"}
    wait_until(lambda: scrape("ftfile_query_running", **of_query) == 0, "the end of the query")
    history = ftfile.open(paths["out"]).history()
    assert [(version.user_metadata, version.rows) for version in history] == [("nightly", 2)] * 3
    operation = {"operation": "stream"}
    wait_until(lambda: scrape("ftfile_commits_total", **operation) == len(history), "the last commit")
    assert scrape("ftfile_rows_total", **operation) == 6
    assert scrape("ftfile_files_total", **operation) == sum(version.files for version in history) == 1
    assert scrape("ftfile_finished_files_total", reason="batches") == 1
    assert scrape("ftfile_written_bytes_total", **operation) == sum(version.size_bytes for version in history)
    assert scrape("ftfile_write_seconds_sum") == pytest.approx(sum(each.metrics.write_seconds for each in history))
    # Spark uses one or two Python processes for a query's commits. Each reports a commit at its next commit.
    published = [version.metrics.publish_seconds for version in history if version.metrics.publish_seconds is not None]
    assert scrape("ftfile_publish_seconds_count") == len(published) in {1, 2}
    assert scrape("ftfile_query_starts_total", **of_query) == 1
    assert scrape("ftfile_query_batch_seconds_count", **of_query) == 3
    assert scrape("ftfile_query_last_batch", **of_query) == 2
    of_other = Scrape(monitor, second["out"])
    assert of_other("ftfile_query_running", query="other") == 1
    other.stop()


def test_a_batch_that_comes_again_and_a_failure(spark: SparkSession, monitor: Monitor, paths: Paths) -> None:
    script = Script(paths["script"]).write(batches(3), available=0)
    run(spark, paths, script, 2, queryName="words")
    scrape, of_query = Scrape(monitor, paths["out"]), {"query": "words"}
    for name in ("1", ".1.crc"):
        Path(paths["checkpoint"], "commits", name).unlink()
    again = start(spark, paths, queryName="words")
    script.release(3)
    again.processAllAvailable()
    again.stop()
    wait_until(lambda: scrape("ftfile_query_replays_total", **of_query) == 1, "the batch that comes again")
    wait_until(lambda: scrape("ftfile_commits_total", operation="stream") == 3, "the commit after it")
    replays = sum(version.metrics.replays for version in ftfile.open(paths["out"]).history())
    assert scrape("ftfile_replays_total") == replays
    script.write(batches(4)).fail(3, 0, times=9)
    failing = start(spark, paths, queryName="words")
    with pytest.raises(Exception, match="the script says"):
        failing.awaitTermination()
    wait_until(lambda: scrape("ftfile_query_failures_total", **of_query) == 1, "the failure")
    assert scrape("ftfile_query_starts_total", **of_query) == 3
    assert scrape("ftfile_query_running", **of_query) == 0


def test_batch_writes_take_the_sessions_text_too(spark: SparkSession, paths: Paths) -> None:
    spark.conf.set("spark.ftfile.userMetadata", "nightly")
    try:
        for path, sink, options in (("out", "ftfile", {}), ("store", "ftkv", {"keyColumns": "id"})):
            rows = spark.range(1, numPartitions=1).write.format(sink).mode("append").options(**options)
            rows.save(f"{paths['out']}/{path}")
            spark.conf.set("spark.ftfile.userMetadata", "x" * (65 << 10))
            with pytest.raises(Exception, match=r"spark\.ftfile\.userMetadata has 66560 characters"):
                rows.save(f"{paths['out']}/{path}")
            spark.conf.set("spark.ftfile.userMetadata", "nightly")
    finally:
        spark.conf.unset("spark.ftfile.userMetadata")
    assert [each.user_metadata for each in ftfile.open(f"{paths['out']}/out").history()] == ["nightly"]
    assert [each.user_metadata for each in ftfile.kv.open(f"{paths['out']}/store").history()] == ["nightly"]


def test_refused_files_are_counted_over_all_sources_that_tell() -> None:
    def counted(*offsets: str | None) -> int | None:
        sources = [SimpleNamespace(latestOffset=offset) for offset in offsets]
        return query_metrics._refused_files(SimpleNamespace(sources=sources))

    assert counted('{"plan": 3, "refused": 2}', None, "17", "no JSON", '{"plan": 0, "refused": 1}') == 3
    assert counted('{"plan": 3, "refused": 0}') == 0
    assert counted(None, "17", '{"events":{"0":1350}}') is None


def test_a_session_of_spark_connect_is_refused() -> None:
    session: Any = SimpleNamespace(range=None)  # a session without a JVM
    with pytest.raises(ConfigError, match=r"ftfile\.monitor\(path\)"):
        query_metrics.listen(session)
