"""An executor that is killed during a merge of `ftfile.spark.compact`: Spark or a later call repeats the merge."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import ftfile
from ftfile.operate.rewriting import RewriteReport
from ftfile.spark import compact, verify
from ftfile.storage.registry import register, unregister
from ftfile.testing.checker import check_directory
from ftfile.testing.micro_batch import MicroBatch
from tests.cluster import held_files
from tests.cluster.cluster import end_session, executor_of, kill, wait_for
from tests.cluster.held_files import Order
from tests.crash.share import in_long

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.cluster.cluster import Cluster

ROOT = Path(__file__).parents[2]
BATCHES, BUCKETS = 3, "abcdef"


@contextmanager
def session(
    cluster: Cluster, home: Path, environment: dict[str, str], orders: Path, failures: int
) -> Iterator[SparkSession]:
    """Open a session whose executors have the driver of `held+file:` URLs, and install it in this process."""
    from pyspark.sql import SparkSession

    held_files.install(home / "packages")
    path = os.pathsep.join(map(str, (home / "packages", ROOT / "src", ROOT)))
    more = {"PYTHONPATH": path, held_files.ORDERS: str(orders)}
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": str(failures),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{f"spark.executorEnv.{name}": text for name, text in more.items()},
    }
    register("held+file", held_files.open_location)
    with mock.patch.dict(os.environ, environment | {held_files.ORDERS: str(orders)}, clear=True):
        builder = SparkSession.builder.master(cluster.url)
        for name, text in settings.items():
            builder = builder.config(name, text)
        spark = builder.getOrCreate()
        try:
            spark.sparkContext.setLogLevel("OFF")
            yield spark
        finally:
            end_session(spark)
            unregister("held+file")


@pytest.mark.parametrize("failures", [1, pytest.param(4, marks=in_long)])
def test_a_merge_whose_executor_is_killed(
    cluster: Cluster, tmp_path: Path, plain_environment: dict[str, str], failures: int
) -> None:
    out, orders = tmp_path / "out", tmp_path / "orders"
    orders.mkdir()
    query = MicroBatch(str(out), {"id": "long", "k": "string"}, {"fileFormat": "json", "partitionBy": "k"})
    for batch in range(BATCHES):
        query.run(batch, [[{"id": batch, "k": letter} for letter in BUCKETS]])
    order, url = Order(orders, "file"), f"held+file://{out}"

    def hold_next(now: Any) -> None:
        if now.done == BATCHES * 2:  # the files of the first record
            order.give(5)

    with (
        session(cluster, tmp_path, plain_environment, orders, failures) as spark,
        ThreadPoolExecutor(1) as other,
    ):
        running = other.submit(compact, spark, url, commit_every=2, progress=hold_next)
        held = wait_for(order.held, "a merge that is held")
        assert len(ftfile.open(out).history()) == BATCHES + 1
        kill(executor_of(held.process))
        if failures == 1:
            with pytest.raises(Exception, match=r"(?s)Job aborted due to stage failure.*ExecutorLostFailure"):
                running.result()
            assert len(ftfile.open(out).history()) == BATCHES + 1
            report = compact(spark, url, commit_every=2)
        else:
            report = running.result()
        assert isinstance(report, RewriteReport)
        assert verify(spark, url).ok
    written = len(BUCKETS) - (2 if failures == 1 else 0)
    assert (report.files_written, report.files_removed) == (written, written * BATCHES)
    assert len([path for path in out.rglob("part-*") if "_ftfile" not in path.parts]) == len(BUCKETS)
    rows = sorted((row["id"], row["k"]) for row in ftfile.open(out).to_arrow().to_pylist())
    assert rows == [(batch, letter) for batch in range(BATCHES) for letter in BUCKETS]
    check_directory(ftfile.open(out).file_system)
