"""Readers while batches are written, jobs merge and vacuum deletes: every version that is kept equals its dict."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile import kv
from ftfile.core.errors import ConfigError, StaleFiles
from ftfile.testing.micro_batch import StoreBatch
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from pathlib import Path

WORDS = [f"word {number}" for number in range(60)]
COLUMNS = {"word": "string", "n": "long", "gone": "boolean"}
OPTIONS = {"keyColumns": "word", "merge": "n:sum", "deleteColumn": "gone", "buckets": "4", "flushIntervalCount": "3"}


def check(reader: kv.Reader, expected: dict[str, int], way: int) -> None:
    """Read all words in one of four ways."""
    rows = [expected.get(word) for word in WORDS]
    if way == 0:
        assert reader.multi_get(WORDS) == rows
    elif way == 1:
        assert [reader.get(word) for word in WORDS] == rows
    elif way == 2:
        assert reader.lookup(pa.array(WORDS), ["n"])["n"].to_pylist() == rows
    else:
        found = {row["word"]: row["n"] for batch in reader.scan() for row in batch.to_pylist()}
        assert found == expected
        assert [*found] == sorted(found)


def batch(rng: random.Random, expected: dict[str, int]) -> list[list[dict[str, Any]]]:
    """Return the rows of two tasks, and apply them to the dict."""
    tasks = []
    for words in (WORDS[:30], WORDS[30:]):
        rows: list[dict[str, Any]] = [
            {"word": word, "n": rng.randrange(9), "gone": rng.random() < 0.2} for word in rng.sample(words, 12)
        ]
        for row in rows:
            if row["gone"]:
                expected.pop(row["word"], None)
            else:
                expected[row["word"]] = expected.get(row["word"], 0) + row["n"]
        tasks.append(rows)
    return tasks


def read_older(reader: kv.Reader, versions: dict[int, dict[str, int]], asked: int, way: int) -> bool:
    """Read a version; return False if it is no longer kept."""
    try:
        check(reader.at(asked), versions[asked], way)
    except (ConfigError, StaleFiles):
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "encrypted"), [(0, False), (1, True), (2, False)])
def test_versions_equal_dicts(tmp_path: Path, seed: int, encrypted: bool) -> None:
    rng, path, options, provider = random.Random(seed), str(tmp_path / "store"), dict(OPTIONS), None
    if encrypted:
        write_ring(tmp_path / "ring", first=FIRST)
        provider = f"file:{tmp_path / 'ring'}"
        options |= {"encryption": "aes-gcm", "keyProvider": provider}
    query = StoreBatch(path, COLUMNS, options)
    expected: dict[str, int] = {}
    versions: dict[int, dict[str, int]] = {}
    version = query.run(0, batch(rng, expected)).version
    reader = kv.open(path, key_provider=provider)
    for number in range(1, 14):
        versions[version] = dict(expected)
        check(reader, versions[reader.version], rng.randrange(4))
        if rng.random() < 0.7:
            assert reader.refresh() == version
            check(reader, expected, rng.randrange(4))
        assert read_older(reader, versions, rng.choice([*versions]), rng.randrange(4)) or number > 9
        if number == 9:
            report = ftfile.vacuum(path, dry_run=False, retention="0s", force=True, key_provider=provider)
            assert report.files
            versions[version if report.version is None else report.version] = dict(expected)
            reader.refresh()
        version = query.run(number, batch(rng, expected)).version
    reader.refresh()
    for way in range(4):
        check(reader, expected, way)
    assert not read_older(reader, versions, 0, 0)
    assert kv.verify(path, key_provider=provider).damaged == ()
