"""Streams of every format with every encryption and way of ending files, and of every codec.

`tests/unit/sink/test_matrix.py` has all that there is, without a JVM.
"""

from __future__ import annotations

import base64
import functools
import itertools
from typing import TYPE_CHECKING

from pyspark.sql import functions

import ftfile
from ftfile.keys.keys import forget_keys
from tests.spark.scripted_source import Script
from tests.unit.sink.test_matrix import COMPRESSION, ENCRYPTION, ROLLING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Case = tuple[str, str, str, str]
AT_A_TIME = 8
BATCHES = 2
WAYS = ("batch", "two batches")


def cases() -> list[Case]:
    """Return cases of format, codec, encryption and rolling such that the pairs of `pairs_of` all occur."""
    possible = [
        (file_format, codec, encryption, rolling)
        for file_format, codecs in COMPRESSION.items()
        for codec, encryption, rolling in itertools.product(codecs, sorted(ENCRYPTION), WAYS)
        if encryption != "parquet" or file_format == "parquet"
    ]
    missing = {pair for case in possible for pair in pairs_of(case)}
    chosen: list[Case] = []
    while missing:
        best = max(possible, key=lambda case: len(missing.intersection(pairs_of(case))))
        chosen.append(best)
        missing.difference_update(pairs_of(best))
    return chosen


def pairs_of(case: Case) -> list[tuple[str, ...]]:
    file_format, codec, encryption, rolling = case
    return [(codec,), (file_format, encryption), (file_format, rolling), (encryption, rolling)]


def in_turns(found: list[Case]) -> Iterator[list[tuple[int, Case]]]:
    numbered = list(enumerate(found))
    yield from (numbered[start : start + AT_A_TIME] for start in range(0, len(numbered), AT_A_TIME))


def rows_of(spark: SparkSession, number: int, path: str) -> DataFrame:
    return spark.read.format("ftfile").load(path).select(functions.lit(number).alias("number"), "word")


def test_every_pair(spark: SparkSession, tmp_path: Path) -> None:
    ring = tmp_path / "keys"
    ring.write_text(f"first {base64.b64encode(bytes(range(32))).decode()}\n")
    ring.chmod(0o600)
    found = cases()
    for turn in in_turns(found):
        script = Script(tmp_path / f"script-{turn[0][0]}")
        script.write([[[(n, f"{n} even")], [(n, f"{n} odd")]] for n in range(BATCHES)], available=1)
        source = spark.readStream.format("scripted").option("script", str(script.directory)).load().select("word")
        queries = []
        for number, (file_format, codec, encryption, rolling) in turn:
            options = {"fileFormat": file_format, "compression": codec, **ROLLING[rolling]}
            options |= {"encryption": encryption, "keyProvider": f"file:{ring}"} if encryption != "none" else {}
            options |= {"nullValue": "-"} if file_format == "csv" else {}
            options |= {"checkpointLocation": str(tmp_path / f"checkpoint-{number}")}
            queries.append(source.writeStream.format("ftfile").options(**options).start(str(tmp_path / f"{number}")))
        try:
            for available in range(1, BATCHES + 1):
                script.release(available)
                for query in queries:
                    query.processAllAvailable()
        finally:
            for query in queries:
                query.stop()
    paths = {number: str(tmp_path / f"{number}") for number in range(len(found))}
    written = functools.reduce(
        lambda some, more: some.union(more), [rows_of(spark, number, path) for number, path in paths.items()]
    )
    by_case: dict[int, list[str]] = {}
    for row in written.collect():
        by_case.setdefault(row.number, []).append(row.word)
    words = sorted(f"{n} {kind}" for n in range(BATCHES) for kind in ("even", "odd"))
    wrong = [found[number] for number in paths if sorted(by_case.get(number, [])) != words]
    assert not wrong
    for path in paths.values():
        ftfile.flush(path)
        assert sorted(ftfile.open(path).to_arrow()["word"].to_pylist()) == words
    forget_keys()
