"""Tests of a stream to an object store in Spark, which every storage system must pass, and reads by Spark's readers."""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.crash.share import THOROUGH
from tests.spark import deadly_files
from tests.spark.deadly_files import Death
from tests.spark.killing import run_until_killed
from tests.spark.scripted_source import SCHEMA, Row, Script, run, start
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.object_stores.servers import Storage

__all__ = ("BATCHES", "Paths", "StorageScenarios", "assert_nothing_told", "check", "options")

OBJECT_STORE_JARS = Path(__file__).parents[2] / ".jars/object-stores"

Paths = dict[str, Any]
BATCHES: list[list[list[Row]]] = [
    [[(1, "a"), (2, "b")], [(3, None)]],
    [[], []],
    [[(4, "10:30 #50% d")], [(5, "é€")]],
]
ROWS = sorted((row for batch in BATCHES for partition in batch for row in partition), key=lambda row: row[0])
# Directory names of the words by `partitionBy`.
WORDS = ("a", "b", "__HIVE_DEFAULT_PARTITION__", "10%3A30 %2350%25 d", "é€")
SHAPES = {
    "json by copies": {"publish": "copy"},
    "partitioned parquet at once": {"publish": "direct", "fileFormat": "parquet", "partitionBy": "word"},
}

_directories = (f"spark-{number}" for number in itertools.count())


def options(paths: Paths, **more: str) -> dict[str, str]:
    return {f"storage.{name}": text for name, text in paths["storage"].items()} | more


def assert_nothing_told(secrets: tuple[str, ...], *told: str) -> None:
    found = [text for text in told if any(secret in text for secret in secrets)]
    assert not found, f"of {len(told)} texts {len(found)} hold credentials, the first is {found[0][:2000]}"


def rows_of_plain_readers(spark: SparkSession, paths: Paths, file_format: str) -> list[Any]:
    """Return the rows that Spark reads with Hadoop's client of the storage, without ftfile."""
    if not (OBJECT_STORE_JARS / "stamp").exists():
        pytest.fail("Hadoop's clients of S3 and Azure are missing: run .ci/jars object-stores, as `make spark` does")
    url, settings = paths["hadoop"]
    frame = spark.read.schema(SCHEMA).format(file_format).options(**settings).load(url)
    return sorted(map(tuple, frame.select("id", "word").collect()))


def check(spark: SparkSession, paths: Paths, plain: str | None = "json") -> None:
    """Check that ftfile, with and without Spark, finds all rows once, in files that plain listers see, too.

    Args:
        spark: the session.
        paths: of the test.
        plain: format of the files for Spark's readers; None if they cannot read it.
    """
    if plain is not None:
        assert rows_of_plain_readers(spark, paths, plain) == ROWS
    table = ftfile.open(paths["out"], storage=paths["storage"]).to_arrow()
    assert sorted(zip(*(table.column(name).to_pylist() for name in ("id", "word")), strict=True)) == ROWS
    frame = spark.read.format("ftfile").options(**options(paths)).load(paths["out"])
    assert sorted(map(tuple, frame.select("id", "word").collect())) == ROWS
    query_id = json.loads(open_filesystem(paths["checkpoint"]).read("metadata"))["id"]
    fs = open_filesystem(paths["out"], settings=paths["storage"])
    report = check_directory(fs, recorded_by_spark={query_id: range(3)}, rows_of=lambda content: content.splitlines())
    assert report.live_rows == report.visible_rows


class StorageScenarios:
    """Base class; a subclass adds a fixture `storage`.

    Attributes:
        variables: for the credentials of the storage, one each; no library reads them by default.
        by_variable: the settings that name them.
        kills_applications: applications are killed in every run, not only in `make long`.
    """

    variables: tuple[str, ...]
    by_variable: tuple[tuple[str, str], ...]
    kills_applications = True

    @pytest.fixture
    def paths(self, storage: Storage, tmp_path: Path) -> Paths:
        """Output of one test on the storage. Its checkpoint is on the disk, because it needs Spark's client."""
        directory = next(_directories)
        return {
            "out": f"{storage.url}/{directory}",
            "checkpoint": str(tmp_path / "checkpoint"),
            "script": tmp_path / "script",
            "storage": storage.settings,
            "hadoop": (storage.hadoop_url(f"{storage.url}/{directory}"), storage.hadoop_settings),
        }

    @pytest.fixture(params=SHAPES if THOROUGH else ["drawn"])
    def shape(self, request: pytest.FixtureRequest, seed: int) -> dict[str, str]:
        """All in `make long`, otherwise one drawn for each storage system. Tests without Spark always try both."""
        drawn = random.Random(f"{seed} {type(self).__name__}").choice([*SHAPES])
        return SHAPES[drawn if request.param == "drawn" else request.param]

    def test_a_task_fails_and_spark_forgets_a_batch(
        self, spark: SparkSession, paths: Paths, shape: dict[str, str]
    ) -> None:
        script = Script(paths["script"]).write(BATCHES, available=0)
        script.fail(batch=0, partition=1, times=1)
        run(spark, paths, script, 3, **options(paths, **shape))
        plain = "json" if shape["publish"] == "copy" else None
        check(spark, paths, plain)
        files = ftfile.open(paths["out"], storage=paths["storage"]).files()
        directories = {file.path.rpartition("/")[0] for file in files}
        assert directories == ({f"word={name}" for name in WORDS} if "partitionBy" in shape else {""})
        for name in ("2", ".2.crc"):
            (Path(paths["checkpoint"]) / "commits" / name).unlink()
        script.write([*BATCHES[:2], [[row] for partition in reversed(BATCHES[2]) for row in partition] + [[]]])
        query = start(spark, paths, **options(paths, **shape))
        query.processAllAvailable()
        query.stop()
        check(spark, paths, plain)

    def test_files_that_stay_open_are_finished_when_the_stream_ends(self, attached: SparkSession, paths: Paths) -> None:
        script = Script(paths["script"]).write(BATCHES, available=0)
        run(attached, paths, script, 3, **options(paths, rolling="policy", maxRecordsPerFile="100"))
        wait_until(
            lambda: len(ftfile.open(paths["out"], storage=paths["storage"]).files()) == 1, "what the listener finishes"
        )
        check(attached, paths)

    def test_the_process_that_commits_is_killed_in_the_middle(
        self, spark: SparkSession, paths: Paths, seed: int
    ) -> None:
        script = Script(paths["script"]).write([BATCHES[1], BATCHES[0], BATCHES[2]], available=0)
        when = random.Random(seed).choice(["before", "after"])
        order = Path(os.environ[deadly_files.ORDER])
        Death(when, whole=False).order(order)
        partitioned = options(paths, fileFormat="parquet", partitionBy="word")
        with pytest.raises(StreamingQueryException):
            run(spark, paths | {"out": f"deadly+{paths['out']}"}, script, 3, **partitioned)
        assert not order.exists()
        fs = open_filesystem(paths["out"], settings=paths["storage"])
        assert len(fs.list("_ftfile/log")) == {"before": 1, "after": 2}[when]
        assert fs.list("_ftfile/staged")
        assert not rows_of_plain_readers(spark, paths, "parquet"), "plain readers see unpublished files"
        run(spark, paths, script, 3, **partitioned)
        check(spark, paths, "parquet")

    def test_an_application_is_killed_in_the_middle_of_a_commit(
        self, spark: SparkSession, paths: Paths, storage: Storage, tmp_path: Path, seed: int
    ) -> None:
        """Its credentials are in variables that options name, and not in its output before it was killed."""
        if not self.kills_applications and not THOROUGH:
            pytest.skip("takes as long as all others: in `make long`")
        script = Script(paths["script"]).write([BATCHES[1], BATCHES[0], BATCHES[2]], available=0)
        when = random.Random(seed).choice(["before", "after"])
        environment = dict(zip(self.variables, storage.credentials, strict=True))
        named = options(paths) | {f"storage.{name}": text for name, text in self.by_variable}
        told = run_until_killed(tmp_path / "killed", paths, when, named, environment)
        assert "INFO:ftfile" in told
        assert "SparkListenerSQLExecutionStart" in told
        fs = open_filesystem(paths["out"], settings=paths["storage"])
        assert len(fs.list("_ftfile/log")) == {"before": 1, "after": 2}[when]
        assert_nothing_told(storage.secrets, told, *storage.kept(paths["out"]))
        run(spark, paths, script, 3, **options(paths))
        check(spark, paths)
