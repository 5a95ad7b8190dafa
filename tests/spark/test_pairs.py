"""Streams that combine each pair of a format, a codec, an encryption and a rule that ends files.

In each stream, the Python of a task is killed once while it writes. `make long` runs the streams for all pairs.
Otherwise the seed draws some of these streams, which together contain each format, codec, encryption and rule.
`tests/unit/writing/files/test_matrix.py` has all combinations without a JVM.
"""

from __future__ import annotations

import base64
import functools
import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

import ftfile
from ftfile.filters.keys import forget_keys
from tests.crash.share import THOROUGH
from tests.spark.dying_files import Deaths
from tests.spark.scripted_source import Script
from tests.unit.writing.files.test_matrix import COMPRESSION, ENCRYPTION, ROLLING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

Case = tuple[str, str, str, str]
AT_A_TIME = 4
CASES = 16
BATCHES = 2
ROWS = 6
WRITES = 4


def possible() -> list[Case]:
    """Return all valid combinations of a format, a codec, an encryption and a rule that ends files."""
    return [
        (file_format, codec, encryption, rolling)
        for file_format, codecs in COMPRESSION.items()
        for codec, encryption, rolling in itertools.product(codecs, sorted(ENCRYPTION), ROLLING)
        if encryption != "parquet" or file_format == "parquet"
    ]


def cases(seed: int, *, thorough: bool) -> list[Case]:
    """Return cases with every possible pair of values, or some of them with every value."""
    pairwise = covering(possible(), 2)
    if thorough:
        return pairwise
    drawn = random.Random(seed).sample(pairwise, len(pairwise))
    needed = covering(drawn, 1)
    return [*needed, *(case for case in drawn if case not in needed)][:CASES]


def covering(some: list[Case], size: int) -> list[Case]:
    """Return a small subset of the cases with all their combinations of `size` values."""
    missing = {combination for case in some for combination in combinations_of(case, size)}
    chosen: list[Case] = []
    while missing:
        best = max(some, key=lambda case: len(missing.intersection(combinations_of(case, size))))
        chosen.append(best)
        missing.difference_update(combinations_of(best, size))
    return chosen


def combinations_of(case: Case, size: int) -> list[tuple[tuple[int, str], ...]]:
    """Return combinations of values, each with its position: `none` is both a codec and an encryption."""
    return list(itertools.combinations(enumerate(case), size))


def in_turns(found: list[Case]) -> Iterator[list[tuple[int, Case]]]:
    numbered = list(enumerate(found))
    yield from (numbered[start : start + AT_A_TIME] for start in range(0, len(numbered), AT_A_TIME))


def rows_of(spark: SparkSession, number: int, path: str) -> DataFrame:
    return spark.read.format("ftfile").load(path).select(functions.lit(number).alias("number"), "word")


def test_the_cases(seed: int) -> None:
    for size, thorough in ((1, False), (2, True)):
        found = cases(seed, thorough=thorough)
        combinations = [{each for case in some for each in combinations_of(case, size)} for some in (found, possible())]
        assert combinations[0] == combinations[1]
    assert {each for case in possible() for each in case} == {
        *itertools.chain(COMPRESSION, *COMPRESSION.values(), ENCRYPTION, ROLLING)
    }
    assert len(set(cases(seed, thorough=False))) == CASES


@pytest.fixture
def few_rows_at_a_time(spark: SparkSession) -> Iterator[None]:
    """Spark passes rows in several Arrow batches, so a process killed while writing has received only some rows."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.usefixtures("few_rows_at_a_time")
def test_streams(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    ring = tmp_path / "keys"
    ring.write_text(f"first {base64.b64encode(bytes(range(32))).decode()}\n")
    ring.chmod(0o600)
    found = cases(seed, thorough=THOROUGH)
    kinds = ("even", "odd")
    batches = [[[(n, f"{n} {kind} {row}") for row in range(ROWS)] for kind in kinds] for n in range(BATCHES)]
    paths = [tmp_path / str(number) for number in range(len(found))]
    kills = random.Random(seed)
    for turn in in_turns(found):
        script = Script(tmp_path / f"script-{turn[0][0]}")
        script.write(batches, available=1)
        source = spark.readStream.format("scripted").option("script", str(script.directory)).load().select("word")
        queries = []
        for number, (file_format, codec, encryption, rolling) in turn:
            options = {"fileFormat": file_format, "compression": codec, **ROLLING[rolling]}
            options |= {"encryption": encryption, "keyProvider": f"file:{ring}"} if encryption != "none" else {}
            options |= {"nullValue": "-"} if file_format == "csv" else {}
            options |= {"checkpointLocation": str(tmp_path / f"checkpoint-{number}"), "maxOpenBytes": "1"}
            Deaths(paths[number]).order(kills.randrange(BATCHES), kills.randrange(WRITES))
            queries.append(source.writeStream.format("ftfile").options(**options).start(f"dying:{paths[number]}"))
        try:
            for available in range(1, BATCHES + 1):
                script.release(available)
                for query in queries:
                    query.processAllAvailable()
        finally:
            for query in queries:
                query.stop()
    of_the_dead = [(path, Deaths(path).file_of_the_dead()) for path in paths]
    assert not [found[number] for number, (_, file) in enumerate(of_the_dead) if file is None], "no process was killed"
    written = functools.reduce(
        lambda some, more: some.union(more), [rows_of(spark, number, str(path)) for number, path in enumerate(paths)]
    )
    by_case: dict[int, list[str]] = {}
    for row in written.collect():
        by_case.setdefault(row.number, []).append(row.word)
    words = sorted(word for batch in batches for partition in batch for _, word in partition)
    wrong = [case for number, case in enumerate(found) if sorted(by_case.get(number, [])) != words]
    assert not wrong
    for path, file in of_the_dead:
        ftfile.flush(path)
        assert sorted(ftfile.open(path).to_arrow()["word"].to_pylist()) == words
        assert file is not None
        (left,) = path.rglob(f"*{Path(file).stem.rpartition('-')[2]}*")
        assert left == path / file, "only the files of the killed process are garbage"
    forget_keys()
