"""An encrypted store: neither its runs nor its log reveal keys, and metadata belongs to its run."""

from __future__ import annotations

import base64
import contextlib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from msgspec import structs

from ftfile.core.errors import ConfigError, CorruptData
from ftfile.kv.planning.runs import RunMetadata, open_metadata, run_of, seal_metadata
from ftfile.log.commit_log import CommitLog
from ftfile.log.sealed import keys_of
from tests.unit.kv.stores import counting, file_system, head_of, rows, rows_of
from tests.unit.writing.files.encrypted import SECOND, forget_all, ring, write_ring

if TYPE_CHECKING:
    from ftfile.testing.micro_batch import StoreBatch

__all__ = ("ring",)

STRINGS = [pa.string()]
WORDS = [f"word-{number}-confidential" for number in range(6)]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def query_of(out: str, ring: Path, **options: str) -> StoreBatch:
    return counting(out, encryption="aes-gcm", keyProvider=f"file:{ring}", flushIntervalCount="2", **options)


def all_bytes(out: str) -> bytes:
    """The content of all files, also as it is in base64 and when decompressed where it is."""
    found = b""
    for path in sorted(path for path in Path(out).rglob("*") if path.is_file()):
        content = path.read_bytes()
        found += content
        start = content.find(b"\x78\x01")
        while start >= 0:
            with contextlib.suppress(zlib.error):
                found += zlib.decompressobj().decompress(content[start:])
            start = content.find(b"\x78\x01", start + 1)
    return found


@pytest.mark.slow
def test_rows_are_read_back_and_jobs_are_done(out: str, ring: Path) -> None:
    for batch in range(8):
        query = query_of(out, ring)
        query.restart()
        query.run(batch, [rows(*WORDS), rows(*WORDS[: batch % 6])])
    provider = f"file:{ring}"
    more = [sum(batch % 6 > place for batch in range(8)) for place in range(6)]
    assert rows_of(out, provider) == {word: 8 + count for word, count in zip(WORDS, more, strict=True)}
    assert any(
        run_of(add).metadata.at[0] < run_of(add).metadata.at[1] for add in head_of(out, provider).segments.values()
    )
    content = all_bytes(out)
    assert b"committedMs" in content, "records are looked at"
    for word in WORDS:
        assert word.encode() not in content
        assert base64.b64encode(word.encode()) not in content


def test_metadata_in_records_is_sealed(out: str, ring: Path) -> None:
    query = query_of(out, ring, buckets="1")
    query.run(0, [rows("a")])
    record = CommitLog(file_system(out)).read_record(0)
    assert record is not None
    (add,) = record.adds
    assert "keys" not in add.rolling_stats
    assert "sealed" in add.rolling_stats
    (opened,) = head_of(out).segments.values()
    assert run_of(opened).metadata.keys == ((b"a",), (b"a",))


@pytest.mark.slow
def test_what_is_due_tells_no_key(out: str, ring: Path) -> None:
    query = query_of(out, ring, buckets="1", maxFileSize="2048", flushBytes="2048")
    words = [f"confidential{number}" for number in range(90)]
    for batch in range(9):
        query.run(batch, [rows(*words)])
    records = [CommitLog(file_system(out)).read_record(version) for version in range(9)]
    jobs = [job for record in records if record is not None for job in record.jobs]
    assert "descend" in {job.reason for job in jobs}
    assert b"confidential" not in all_bytes(out)
    assert rows_of(out, f"file:{ring}") == dict.fromkeys(words, 9)


def test_metadata_is_sealed_once(out: str, ring: Path) -> None:
    query = query_of(out, ring)
    query.run(0, [rows("a")])
    fs = file_system(out)
    (add,) = CommitLog(fs).refresh().segments.values()
    (opened,) = open_metadata(fs, [add], STRINGS)
    assert seal_metadata(fs, [opened]) == (add,)
    changed = run_of(opened).with_metadata(RunMetadata((5, 5), None, (((), None),)))
    (sealed,) = seal_metadata(fs, [changed])
    assert sealed.rolling_stats["sealed"] != add.rolling_stats["sealed"]
    assert run_of(*open_metadata(fs, [sealed], STRINGS)).metadata == run_of(changed).metadata


def test_those_of_another_run_are_refused(out: str, ring: Path) -> None:
    query = query_of(out, ring)
    query.run(0, [rows("a", "b", "c", "d")])
    fs = file_system(out)
    first, second, *_ = CommitLog(fs).refresh().segments.values()
    with pytest.raises(CorruptData):
        open_metadata(fs, [structs.replace(first, rolling_stats=second.rolling_stats)], STRINGS)


def test_without_the_key_no_run_is_known(out: str, ring: Path) -> None:
    query = query_of(out, ring, encryptionKeyId="first")
    query.run(0, [rows("a")])
    fs = file_system(out)
    adds = [*CommitLog(fs).refresh().segments.values()]
    assert keys_of(fs) is not None
    write_ring(ring, second=SECOND)
    with pytest.raises(ConfigError, match="'first'"):
        open_metadata(fs, adds, STRINGS)
    forget_all()


def test_dead_letters_are_encrypted(out: str, ring: Path) -> None:
    query = query_of(out, ring, badRecords="deadLetter", maxRecordBytes="100")
    query.run(0, [rows("a", "confidential" * 100)])
    assert rows_of(out, f"file:{ring}") == {"a": 1}
    assert b"confidential" not in all_bytes(out)


def test_files_without_permissions_are_written(ring: Path) -> None:
    url = "memory://encrypted-store/out"
    query_of(url, ring).run(0, [rows("a")])
    assert rows_of(url, f"file:{ring}") == {"a": 1}
