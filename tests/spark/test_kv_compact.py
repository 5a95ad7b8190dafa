"""`ftfile.spark.compact`: merges in Spark tasks, with killed processes, a concurrent stream, and encryption."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
import ftfile.kv
from ftfile.kv.upkeep import compact as compaction
from ftfile.kv.upkeep.compact import CompactReport
from ftfile.log.protocol import commit
from ftfile.spark import compact
from ftfile.storage.registry import register, unregister
from tests.kit.store_check import check_store
from tests.spark import dying_files
from tests.spark.dying_files import Deaths
from tests.spark.scripted_source import Script
from tests.spark.test_kv_stores import BATCHES, TEXTS, contents, start, words
from tests.unit.kv.stores import counting, file_system
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

Paths = dict[str, Any]
KEYS = [f"confidential-{number}" for number in range(50)]


@pytest.fixture
def dying() -> Iterator[None]:
    """Register the driver of `dying:` in this process; workers have it installed."""
    register("dying", dying_files.open_location)
    yield
    unregister("dying")


def write(out: str, batches: int = 4, **options: str) -> dict[tuple[str], tuple[int]]:
    query = counting(out, **{"buckets": "4", "flushIntervalCount": "4"} | options)
    for batch in range(batches):
        rows = [{"k": key, "n": 1} for key in KEYS]
        query.run(batch, [rows[::2], rows[1::2]])
    return {(key,): (batches,) for key in KEYS}


def runs(out: str, key_provider: str | None = None) -> int:
    with ftfile.kv.open(out, key_provider=key_provider) as reader:
        return len(reader.runs())


def staged(out: str) -> set[Path]:
    return {path for path in Path(out).rglob("*.spool") if path.is_file()}


@pytest.mark.usefixtures("dying")
def test_a_worker_that_dies_is_followed_by_another(spark: SparkSession, tmp_path: Path) -> None:
    out, ring = str(tmp_path / "store"), tmp_path / "keys"
    write_ring(ring, first=FIRST)
    provider = f"file:{ring}"
    expected = write(out, encryption="aes-gcm", keyProvider=provider)
    deaths = Deaths(Path(out))
    deaths.order(0, 0)
    report = compact(spark, f"dying:{out}", key_provider=provider)
    assert isinstance(report, CompactReport)
    assert deaths.file_of_the_dead() is not None
    assert (report.records, report.version) == (1, 4)
    assert runs(out, provider) == report.runs_written == 4
    assert check_store(file_system(out, provider)).rows == expected
    assert compact(spark, f"dying:{out}", key_provider=provider).records == 0
    assert not any(b"confidential" in path.read_bytes() for path in Path(out).rglob("*") if path.is_file())


@pytest.mark.usefixtures("dying")
def test_when_spark_gives_up_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    out = str(tmp_path / "store")
    expected = write(out, buckets="1")
    before = staged(out)
    Deaths(Path(out)).order(0, 0, times=3)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        compact(spark, f"dying:{out}", full=True)
    assert not Path(out).with_suffix(".dies").exists()
    assert check_store(file_system(out)).rows == expected
    assert len(staged(out) - before) == 3
    report = compact(spark, f"dying:{out}", full=True)
    assert isinstance(report, CompactReport)
    assert report.runs_written == runs(out) == 1
    ftfile.vacuum(out, dry_run=False, retention="0s", force=True)
    assert len(staged(out)) == 1
    assert check_store(file_system(out)).rows == expected


def test_a_stream_goes_on_meanwhile(spark: SparkSession, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record of the compaction follows a batch that was committed after its tasks had started."""
    script = Script(paths["script"]).write(BATCHES, available=2)
    ones = words(spark, paths).selectExpr("word", "1 as n")
    query = start(ones, paths, merge="n:sum", flushIntervalCount=1000, maxFileSize="8k")
    available = 2

    def commit_late(*arguments: Any) -> Any:
        nonlocal available
        available = min(available + 1, len(BATCHES))
        script.release(available)
        query.processAllAvailable()
        return commit(*arguments)

    monkeypatch.setattr(compaction, "commit", commit_late)
    try:
        query.processAllAvailable()
        report = compact(spark, Path(paths["out"]), full=True)
        script.release(len(BATCHES))
        query.processAllAvailable()
    finally:
        query.stop()
    assert (report.records, report.version) == (1, 2)
    counts = Counter(word for text in TEXTS for word in text.split() * 2)
    assert contents(paths["out"]) == {word: [n] for word, n in counts.items()}
    assert check_store(file_system(paths["out"])).rows == {(word,): (n,) for word, n in counts.items()}
