"""Files of released formats: the current code writes the same bytes, and reads old files with the same result."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

import ftfile
from ftfile import kv
from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData
from ftfile.filters.keys import Keys, forget_keys
from ftfile.kv.run.index import decode_index, index_bytes_of
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.compacted import decode_compacted
from ftfile.log.format.model import (
    Add,
    BatchWriteAuthor,
    Fingerprint,
    Job,
    MaintenanceAuthor,
    Origin,
    Remove,
    SourceRange,
    StreamAuthor,
    Transaction,
)
from ftfile.log.format.record import compact_json, decode_record, from_checked_text, to_checked_text
from ftfile.log.read.compacted_records import list_compacted, read_compacted
from ftfile.log.records import read_published
from ftfile.log.sealed import SealedFileSystem
from ftfile.source.known_files import KnownFiles
from ftfile.source.known_rows import key_of
from ftfile.source.plan import FileEntry, Late, PlanPosition
from ftfile.source.plan_log import PlanLog, columns_files, read_columns
from ftfile.storage.local import LocalFileSystem
from tests.unit.kv.runs import keys_of, numbered, open_run
from tests.unit.log.format.make_golden import GOLDEN, KEY, MAKERS, files_of, open_golden_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUERY = "00000000-0000-0000-0000-000000000001"
STATS = {"eventTimeUs": [1767225660000000, 1767225780000000], "windowUs": [1767225600000000, 1767229200000000]}
SPOOL = "9ebaaf2db47f50797c9c0e8499936ad5"
LEFT = Add(
    id=f"{SPOOL}-0.74.0",
    kind="segment",
    path=f"_ftfile/staged/{QUERY}/_0-00000-0-{SPOOL}.spool",
    final_path=None,
    length=37,
    logical_length=37,
    checksum="crc32:759da0e7",
    rows=1,
    directory_key="kind=a",
    encoding="00154e31c3542a7d",
    origin=Origin(QUERY, 0, 0),
    offset=74,
    rolling_stats=STATS | {"partition": 0, "index": 0, "committedMs": 1700000000000},
    statistics={"id": (1, 3, 0), "at": (1767225660000000, 1767225780000000, 0)},
)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A copy: readers of a directory may publish in it."""
    return shutil.copytree(GOLDEN / "plain", tmp_path / "plain")


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[SealedFileSystem]:
    shutil.copytree(GOLDEN / "sealed", tmp_path / "sealed")
    forget_keys()
    with mock.patch.dict("os.environ", {"FTFILE_GOLDEN_KEYS": KEY}):
        yield SealedFileSystem(LocalFileSystem(str(tmp_path / "sealed"), SYSTEM), Keys("env:FTFILE_GOLDEN_KEYS"))
    forget_keys()


def content_of(pattern: str) -> bytes:
    (path,) = (GOLDEN / "plain").glob(f"_ftfile/{pattern}")
    return path.read_bytes()


def unpacked(content: bytes) -> tuple[Any, list[bytes]]:
    """Return header and streams, but for what depends on the zlib of a machine."""
    head, _, behind = content.split(b"\n", 2)
    header = json.loads(head)
    places = [header.pop("removes")]
    for document in (*header["live"], *header["ended"]):
        for group in {"columns", "statistics"} & document.keys():
            places += document[group].values()
            document[group] = list(document[group])
    for length, streams_checksum in places:
        assert (type(length), type(streams_checksum)) == (int, str)
    streams = []
    for _ in places:
        stream = zlib.decompressobj()
        streams.append(stream.decompress(behind))
        behind = stream.unused_data
    return header, streams


def parts_of_run(content: bytes) -> tuple[object, ...]:
    """Return the facts and pages of a run, without the values that depend on how codecs compress."""
    end = memoryview(content)
    index = decode_index(end[-index_bytes_of(end, len(content), "golden") :], len(content), "golden")
    pages = content[index.pages_offset : index.page_range(len(index.page_crcs))[0]]
    facts = (index.rows, index.key_columns, index.row_bits, index.shape, index.block_rows.tolist())
    blocks = (index.plain_bytes.tolist(), index.block_crcs.tolist(), index.compression)
    return facts, blocks, index.first_keys.to_pylist(), index.schema, pages


def said_by_store(path: str, content: bytes) -> object:
    """Return the content of a store's file, without the values that depend on how Arrow writes messages."""
    if path.endswith(".spool"):
        return parts_of_run(content)
    if path.endswith(".wal"):
        header, _, rest = content.partition(b"\n")
        return header, pa.ipc.open_stream(rest).read_all().to_pylist()
    text = re.sub(rb'"(lengthBytes|logicalLengthBytes)":\d+', b"", content)
    return re.sub(rb'"?crc32:[0-9a-f]{8}', b"", text)


# Old files must stay readable: a new field has a default, and is omitted where it has it.
CHANGED = (
    "{}: its bytes differ. If a new field is the cause, give it a default in log/format/model.py, and what a process "
    "has of its machine a fixed value in InContext of tests/wrappers.py. If the format changes on purpose: "
    "python -m tests.unit.log.format.make_golden, and a new version in docs/internals/format.md"
)


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_written_has_the_golden_bytes(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path / name)
    written, golden = files_of(tmp_path / name), files_of(GOLDEN / name)
    assert list(written) == list(golden)
    for path, content in golden.items():
        if name == "store":
            assert said_by_store(path, written[path]) == said_by_store(path, content), CHANGED.format(path)
        elif path.endswith(".run"):
            assert parts_of_run(written[path]) == parts_of_run(content), CHANGED.format(path)
        elif path.endswith(".compacted"):
            assert unpacked(written[path]) == unpacked(content), CHANGED.format(path)
        else:
            assert written[path] == content, CHANGED.format(path)


class TestReading:
    def test_rows_dead_letters_and_versions(self, plain: Path) -> None:
        directory = ftfile.open(str(plain))
        assert sorted(row["id"] for row in directory.to_arrow().to_pylist()) == [1, 2, 3, 4, 6, 7, 8]
        (letter,) = directory.dead_letters()
        assert (letter.query_id, letter.batch_id, letter.partition, letter.row["id"]) == (QUERY, 0, 1, 5)
        assert [version.version for version in directory.history()] == [0, 1, 2, 3, 4]
        assert directory.verify().ok

    def test_without_a_checkpoint_and_a_range(self, plain: Path) -> None:
        for name in ("checkpoints", "compacted", "hints"):
            shutil.rmtree(plain / "_ftfile" / name)
        assert len(ftfile.open(str(plain)).to_arrow()) == 7

    def test_from_the_checkpoint_and_the_range_alone(self, plain: Path) -> None:
        for version in range(4):
            (plain / layout.record_path(version)).unlink()
        assert len(ftfile.open(str(plain)).to_arrow()) == 7

    def test_records(self, plain: Path) -> None:
        log = CommitLog(LocalFileSystem(str(plain), SYSTEM))
        first, second, third, fourth, fifth = (log.read_record(version) for version in range(5))
        assert first is not None
        assert second is not None
        assert third is not None
        assert fourth is not None
        assert fifth is not None
        assert first.author == StreamAuthor(QUERY, "run-1", 0)
        assert (first.time_ms, first.tasks, first.lineage_start, first.previous_nonce) == (1700000000000, 2, 0, "")
        assert first.fingerprint == Fingerprint(
            "strong", "strong/1:b91ed643323e46c9122d25c73d5c0e3a", covers_content=True
        )
        assert first.dead_letters[0].final_path == (
            f"_ftfile/deadLetters/{QUERY}/_0000000000-00001-580719247d4d.deadLetters"
        )
        assert first.tables == {"unmarkedDirectories": {"set": {"kind=a": None, "kind=b": None}, "drop": []}}
        assert second.adds[2] == LEFT
        assert second.jobs == (
            Job(
                "7d8a7f1677f57ba801fef521f4afcb72",
                "rows",
                (LEFT.without_statistics(), second.adds[0].without_statistics()),
                0,
                second_plan(),
            ),
        )
        assert second.metrics["partsByReason"] == {"rows": 1}
        assert second.removes == (Remove(f"{SPOOL}-0", "segment"),)
        assert third.adds[0].ranges[0] == SourceRange(LEFT.id, "bytes", 0, 37)
        assert third.adds[0].origin == Origin(QUERY, 0, 1)
        assert fourth.author == BatchWriteAuthor("2" * 32, Transaction("app", 7))
        assert fifth.author == MaintenanceAuthor("compact", "8d47d2acf1a54c799d9c59d3c6fe67ad")
        assert fifth.removes[0] == Remove(
            "0ef664b64a3b3fb82bb098f3fb8b6483",
            "part",
            "kind=a/0000000001-0-0ef664b64a3b.json",
            74,
            "crc32:05737a6a",
        )
        assert fifth.previous_nonce == fourth.nonce

    def test_the_checkpoint(self) -> None:
        state = decode_checkpoint(content_of("checkpoints/*.checkpoint"), "checkpoint")
        assert (state.version, state.nonce) == (4, "b48376be28a0ab3bcf62b3e04b664c6c")
        assert state.queries[QUERY].last_batch == 2
        assert (state.transactions["app"].last, state.transactions["app"].version) == (7, 3)
        assert [*state.segments] == ["6d4f92a7aa1cc5321d9a16143f9e0cee-0"]
        assert state.tables["partNumbers"]["kind=a"] == [1700000000000, 2]
        assert [version for version, _ in state.recent] == [0, 1, 2, 3, 4]
        assert [*state.unpublished] == [4]
        assert set(state.removed.values()) == {4}
        assert encode_checkpoint(state) == content_of("checkpoints/*.checkpoint")

    def test_the_hints(self, plain: Path) -> None:
        hint = read_published(LocalFileSystem(str(plain), SYSTEM))
        assert hint is not None
        assert (hint.version, hint.nonce) == (4, "b48376be28a0ab3bcf62b3e04b664c6c")

    def test_the_log_of_plans(self, tmp_path: Path) -> None:
        fs = LocalFileSystem(str(shutil.copytree(GOLDEN / "plans", tmp_path / "plans")), SYSTEM)
        log = PlanLog(fs, "0" * 32, "run")
        head = log.position_after(PlanPosition("0" * 32, 1, "e48c090e847fa70b9d8c9022dc86e29a"))
        assert head is not None
        plan = log.read(head, PlanPosition("0" * 32, 1, "e48c090e847fa70b9d8c9022dc86e29a"))
        assert plan.root == "file:///data/in"
        assert plan.files == (
            FileEntry("b.log", "replaced", 0, "", "", 9, 1_700_000_000_000, displaces=True),
            FileEntry("c.log", "copy", 9, "0" * 16, "1" * 16, 9, 1_700_000_000_000),
        )
        assert (plan.late, plan.low) == ((Late("d.log", 5),), 1_600_000_000_000)
        (columns,) = columns_files(CommitLog(fs).refresh())
        known = KnownFiles.from_bytes(read_columns(fs, columns))
        found = known.get(key_of("file:///data/in", "a.log.1"))
        assert found is not None
        assert (len(known), found.position, found.size_bytes) == (3, 40, 40)

    def test_the_sealed_log(self, sealed: SealedFileSystem) -> None:
        assert sealed.directory_id == "9ffd041d9eb6ca487c1c737f7ebde982"
        head = CommitLog(sealed).refresh()
        assert (head.version, head.horizon_ms) == (0, 5)
        (name,) = list_compacted(sealed)
        assert read_compacted(sealed, name, ended=True).nonce == head.nonce
        assert read_published(sealed) is not None


def second_plan() -> dict[str, Any]:
    """Return the settings that the jobs of the golden query set for their parts."""
    parts = {"maxBytesPerFile": 128 << 20, "maxRecordsPerFile": 2, "strictFileSize": False}
    statistics = {"id": [1, 6, 0], "at": [1767225660000000, 1767225960000000, 0]}
    return parts | {"keepTail": True, "taskCount": 2, "rows": 2, "statistics": statistics}


def _decode(name: str, content: bytes, tmp_path: Path) -> object:
    if name == "ftfileRecord":
        return decode_record(content, "file", lambda _: b"")
    if name == "ftfileCheckpoint":
        return decode_checkpoint(content, "file")
    (tmp_path / "file").write_bytes(content)
    with LocalFileSystem(str(tmp_path), SYSTEM).open("file") as file:
        return decode_compacted(file, "file", ended=True)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("ftfileRecord", "log/*3.record"),
        ("ftfileCheckpoint", "checkpoints/*.checkpoint"),
        ("ftfileCompacted", "compacted/*03-*.compacted"),
    ],
)
class TestVersions:
    def changed(self, pattern: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes:
        content = content_of(pattern)
        is_record = pattern.endswith(".record")
        *lines, _ = content.split(b"\n", 3 if is_record else 2)
        lines = from_checked_text(b"".join(line + b"\n" for line in lines), "golden")
        behind = content[sum(map(len, lines)) + len(lines) + len("crc32:01234567\n") :]
        return to_checked_text([compact_json(change(json.loads(lines[0]))), *lines[1:]]) + behind

    def test_a_field_of_a_later_version_is_passed_over(self, name: str, pattern: str, tmp_path: Path) -> None:
        later = self.changed(pattern, lambda header: header | {"later": {"any": [1]}})
        assert _decode(name, later, tmp_path) == _decode(name, content_of(pattern), tmp_path)

    def test_a_later_format_is_refused(self, name: str, pattern: str, tmp_path: Path) -> None:
        with pytest.raises(CorruptData, match=f"{name} 2.*newer version of ftfile"):
            _decode(name, self.changed(pattern, lambda header: header | {name: 2}), tmp_path)

    def test_a_field_of_another_type_is_refused(self, name: str, pattern: str, tmp_path: Path) -> None:
        number = "firstVersion" if name == "ftfileCompacted" else "version"
        with pytest.raises(CorruptData, match=rf"`int`, got `str` - at `\$\.{number}`"):
            _decode(name, self.changed(pattern, lambda header: header | {number: "3"}), tmp_path)

    def test_a_missing_field_is_refused(self, name: str, pattern: str, tmp_path: Path) -> None:
        nonce = "lastNonce" if name == "ftfileCompacted" else "nonce"
        with pytest.raises(CorruptData, match=nonce):
            _decode(
                name, self.changed(pattern, lambda header: {k: v for k, v in header.items() if k != nonce}), tmp_path
            )


@pytest.mark.parametrize("path", sorted((GOLDEN / "runs").glob("*.run")), ids=lambda path: path.name)
def test_runs(path: Path) -> None:
    rows = numbered(int(path.name.partition("-")[0]))
    run = open_run(path.read_bytes())
    run.verify()
    assert [row for batch in run.scan() for row in batch.to_pylist()] == rows.to_pylist()
    for (key, hashed), text in [*zip(keys_of(rows), rows.column("text").to_pylist(), strict=True)][::50]:
        assert run.get(key, hashed) == (text,)


@pytest.mark.slow
def test_a_store(tmp_path: Path) -> None:
    """Rows, a due merge, and a window that comes back."""
    path = str(shutil.copytree(GOLDEN / "store", tmp_path / "store"))
    with kv.open(path) as reader:
        assert [row for batch in reader.scan() for row in batch.to_pylist()] == [{"word": "a", "n": 7}]
        assert [reader.at(version).multi_get(["a", "b"]) for version in range(3)] == [[1, 2], [2, None], [2, None]]
        newest = max(reader.runs(), key=lambda run: run.metadata.at)
        assert newest.metadata.purges == (((b"x",), None),)
    with open_golden_store(path) as store:
        assert (store.recorded_window, store.last_window) == (5, 6)
        assert (store.get("a"), store.get_uncommitted("a"), store.read("a")) == (7, 6, 13)
    kv.compact(path, full=True)
    with kv.open(path) as reader:
        assert (reader.stats().runs, reader.get("a")) == (1, 7)
