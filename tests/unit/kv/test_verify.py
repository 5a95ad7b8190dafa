"""`kv.verify` reports exactly the damaged items."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from msgspec import structs

from ftfile import kv
from ftfile.kv.hashing import bucket_name
from ftfile.kv.planning.runs import RunMetadata, run_of
from tests.unit.kv.building import COUNTS, WORDS, Builder

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.log.format.model import Add


@pytest.fixture
def store(tmp_path: Path) -> Builder:
    return Builder(str(tmp_path / "store"), COUNTS)


def errors(store: Builder) -> list[str]:
    return [each.error for each in kv.verify(store.path).damaged]


def replaced(store: Builder, made: Add) -> None:
    """Put an add in the place of a live one with the same file."""
    (old,) = [
        add for add in store.log.refresh().segments.values() if (add.path, add.offset) == (made.path, made.offset)
    ]
    store.record([], [old], [structs.replace(made, id=store.log.ids.unique())])


@pytest.mark.slow
def test_a_whole_store(store: Builder) -> None:
    for number in range(9):
        store.merge({str(key): number for key in range(30)})
        store.purge("1", "2")
    assert store.jobs() > 0
    report = kv.verify(store.path)
    assert report.damaged == ()
    assert report.runs == len(store.log.refresh().segments)
    assert report.rows == sum(add.rows for add in store.log.refresh().segments.values())
    assert kv.verify(store.path, version=0).runs == 4


def test_every_damaged_byte_is_named(store: Builder, tmp_path: Path) -> None:
    store.put({str(key): key for key in range(100)})
    (spool,) = (tmp_path / "store").rglob("*.spool")
    content = spool.read_bytes()
    adds = sorted(store.log.refresh().segments.values(), key=lambda add: add.offset)
    for place in range(0, len(content), 997):
        spool.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        (damaged,) = kv.verify(store.path).damaged
        (hit,) = [add for add in adds if add.offset <= place < add.offset + add.length]
        assert (damaged.path, damaged.offset, bucket_name(damaged.bucket)) == (hit.path, hit.offset, hit.directory_key)
    spool.unlink()
    assert len(errors(store)) == 4
    assert all("its file is missing" in error for error in errors(store))


@pytest.mark.slow
def test_runs_that_are_not_as_the_log_says(tmp_path: Path) -> None:
    store = Builder(str(tmp_path / "store"), WORDS)
    store.put({str(key): key for key in range(100)})
    add = min(store.log.refresh().segments.values(), key=lambda add: add.offset)
    metadata = run_of(add).metadata
    assert metadata.keys is not None
    low, high = metadata.keys
    for wrong, error in (
        (structs.replace(add, rows=add.rows + 1), f"expected {add.rows + 1} rows"),
        (structs.replace(add, rolling_stats=replace(metadata, keys=((), high)).to_json()), "as the first key"),
        (structs.replace(add, rolling_stats=replace(metadata, keys=(low, (b"zzz",))).to_json()), "as the last one"),
        (structs.replace(add, directory_key=bucket_name(3 - int(add.directory_key[2:]))), "expected keys of bucket"),
        (structs.replace(add, checksum="crc32:00000000"), "crc32:00000000"),
    ):
        replaced(store, wrong)
        assert any(error in each for each in errors(store)), error
        replaced(store, add)
        assert errors(store) == []


def test_runs_that_are_not_apart(store: Builder) -> None:
    store.put({"a": 1})
    table = pa.table({"word": ["a"], "n": [5]})
    (output,) = store.outputs([(bucket_name(store.bucket_of((b"a",))), table)])
    (live,) = [run_of(add) for add in store.log.refresh().segments.values()]
    store.record([], [], [output.with_metadata(RunMetadata(live.metadata.at, output.metadata.keys))])
    assert ["it shares keys" in error for error in errors(store)] == [True]
