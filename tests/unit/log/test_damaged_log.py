"""Damaged files of the log: corrupted by storage, or rewritten by another program."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftfile.core.errors import ConfigError, CorruptData
from ftfile.filters.keys import Keys, forget_keys
from ftfile.log.apply import state_after
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint
from ftfile.log.commit_log import LAYOUT_VERSION
from ftfile.log.format import layout
from ftfile.log.format.compacted import decode_compacted, encode_compacted
from ftfile.log.format.layout import CHECKPOINTS, FORMAT_FILE, PUBLISHED_HINT, record_path
from ftfile.log.format.model import Fingerprint, Job, Record, StreamAuthor
from ftfile.log.format.record import decode_record, encode_record, to_checked_text
from ftfile.log.read.add_table import compact_records
from ftfile.log.records import PublishedHint, read_published, write_published
from ftfile.log.sealed import SealedFileSystem
from ftfile.log.state import LogState
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.damage import damaged, forged
from tests.unit.log.plans import FILES_PLAN
from tests.unit.log.random_log import RandomLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import InputFile

LOG = RandomLog(seed=7, versions=6)
# With a value of every kind in it.
RECORD = Record(
    3,
    "nonce",
    StreamAuthor("q", "r", 3, "hash", ["offsets"]),
    1,
    adds=next(record.adds for record in LOG.records if record.adds),
    removes=next(record.removes for record in LOG.records if record.removes),
    lineage_start=0,
    horizon_ms=5,
    jobs=(Job("j", "records", LOG.records[-1].adds, 1, FILES_PLAN),),
    tasks=2,
    schema="s",
    definitions={"s": "{}"},
    fingerprint=Fingerprint("kind", "digest", covers_content=True),
    metrics={"rows": 1},
)
ENCODED = encode_record(RECORD).content
with mock.patch("ftfile.log.format.record.COMPANION_FROM_BYTES", 1):
    COMPANION = encode_record(RECORD)


def state() -> LogState:
    found = LogState()
    for record in LOG.records:
        found = state_after(found, record)
    return found


CHECKPOINT = encode_checkpoint(state())
RANGE = encode_compacted(compact_records(LOG.records, 0))


def directory(name: str) -> MemoryFileSystem:
    MemoryFileSystem.drop(name)
    fs = MemoryFileSystem(name)
    for each in layout.DIRECTORIES:
        fs.make_directories(each)
    return fs


def no_companion(path: str) -> bytes:
    raise AssertionError(path)


def in_memory(content: bytes) -> InputFile:
    fs = MemoryFileSystem("damaged")
    fs.put("file", content)
    return fs.open("file")


DECODERS: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "record": (ENCODED, lambda content: decode_record(content, "file", no_companion)),
    "checkpoint": (CHECKPOINT, lambda content: decode_checkpoint(content, "file")),
    "range": (RANGE, lambda content: decode_compacted(in_memory(content), "file", ended=True)),
}
kinds = pytest.mark.parametrize("kind", DECODERS)


@kinds
def test_as_it_was_written(kind: str) -> None:
    content, decode = DECODERS[kind]
    assert decode(content)


@pytest.mark.slow
@kinds
@given(data=st.data())
def test_damage_is_detected(kind: str, data: st.DataObject) -> None:
    content, decode = DECODERS[kind]
    with pytest.raises((CorruptData, ConfigError)):
        decode(data.draw(damaged(content)))


@given(damaged(COMPANION.companion or b""))
def test_damage_to_a_companion_is_detected(content: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_record(COMPANION.content, "file", lambda _: content)


@pytest.mark.slow
@kinds
@given(data=st.data())
def test_other_values_under_a_right_checksum_are_refused_or_read(kind: str, data: st.DataObject) -> None:
    content, decode = DECODERS[kind]
    count = 2 if kind == "record" else 1
    *lines, rest = content.split(b"\n", count)
    place = data.draw(st.integers(0, count - 1))
    lines[place] = json.dumps(data.draw(forged(json.loads(lines[place])))).encode()
    with contextlib.suppress(CorruptData):
        decode(to_checked_text(lines) + rest.partition(b"\n")[2])


@kinds
def test_what_is_no_object_is_refused(kind: str) -> None:
    with pytest.raises(CorruptData):
        DECODERS[kind][1](to_checked_text([b"null"] * 2))


@pytest.mark.slow
@given(st.data())
def test_hints_are_right_or_none(data: st.DataObject) -> None:
    fs = directory("hints")
    write_published(fs, PublishedHint(3, "nonce"))
    content = fs.read(PUBLISHED_HINT)
    fs.put(PUBLISHED_HINT, data.draw(damaged(content)))
    assert read_published(fs) is None
    text = json.loads(content.splitlines()[0])
    fs.put(PUBLISHED_HINT, to_checked_text([json.dumps(data.draw(forged(text))).encode()]))
    read_published(fs)


def with_keys(fs: MemoryFileSystem, key_id: str | None = None) -> SealedFileSystem:
    return SealedFileSystem(fs, Keys("env:FTFILE_TEST_KEYS"), key_id)


@pytest.fixture(scope="module")
def sealed() -> Iterator[MemoryFileSystem]:
    """A directory with a record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTFILE_TEST_KEYS", f"one {base64.b64encode(bytes(range(32))).decode()}")
        forget_keys()
        fs = directory("sealed")
        with_keys(fs).create_exclusive(FORMAT_FILE, to_checked_text([LAYOUT_VERSION]))
        with_keys(fs, "one").create_exclusive(record_path(0), ENCODED)
        yield fs
    forget_keys()


@pytest.mark.slow
class TestSealed:
    @given(data=st.data())
    def test_damage_is_detected(self, sealed: MemoryFileSystem, data: st.DataObject) -> None:
        content = sealed.read(record_path(0))
        assert with_keys(sealed).read(record_path(0)) == ENCODED
        path = f"{CHECKPOINTS}/{'0' * 20}-0.checkpoint" if data.draw(st.booleans()) else record_path(1)
        sealed.put(path, data.draw(damaged(content) | st.just(content)))
        with pytest.raises((CorruptData, ConfigError)):
            with_keys(sealed).read(path)

    @given(data=st.data())
    def test_damage_to_what_says_so_is_detected(self, sealed: MemoryFileSystem, data: st.DataObject) -> None:
        fs = directory("sealed elsewhere")
        fs.put(record_path(0), sealed.read(record_path(0)))
        line = json.loads(sealed.read(FORMAT_FILE).splitlines()[1])
        other = to_checked_text([LAYOUT_VERSION, json.dumps(data.draw(forged(line))).encode()])
        fs.put(FORMAT_FILE, data.draw(damaged(sealed.read(FORMAT_FILE)) | st.just(other)))
        try:
            found = with_keys(fs).read(record_path(0))
        except (CorruptData, ConfigError):
            return
        assert found == ENCODED  # the changed bytes do not describe the directory
