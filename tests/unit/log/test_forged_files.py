"""Files of the log that somebody wrote under right checksums: within limits, or an error that names file and field."""

from __future__ import annotations

import base64
import json
import zlib
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from ftfile.core.checksum import checksum
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.filters.keys import forget_keys
from ftfile.log import sealed
from ftfile.log.checkpoints import decode_checkpoint, encode_checkpoint, list_checkpoints
from ftfile.log.commit_log import LAYOUT_VERSION, CommitLog
from ftfile.log.directory import read_marker
from ftfile.log.format import column_coding, compacted, layout
from ftfile.log.format import record as record_format
from ftfile.log.format.column_coding import unpack_json
from ftfile.log.format.compacted import FIELDS, CompactedLog, decode_compacted, encode_compacted
from ftfile.log.format.model import Add, BatchWriteAuthor, Origin, Record, Transaction
from ftfile.log.format.record import check_json, decode_record, encode_record, json_value, read_within, to_checked_text
from ftfile.log.places import read_note
from ftfile.log.publish import renew_checkpoint
from ftfile.log.read import compacted_writer
from ftfile.log.read.add_table import compact_records
from ftfile.log.read.compacted_records import cover, list_compacted
from ftfile.log.read.compacted_writer import write_fewest_compacted
from ftfile.storage.api import RangeFile
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import Driver
from tests.unit.log.test_damaged_log import CHECKPOINT, ENCODED, LOG, RECORD, directory, with_keys

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PATH = "the path"
RANGE = encode_compacted(compact_records(LOG.records, 0))
OTHER_TYPES: tuple[Any, ...] = (None, "x", 1.5, 1.0, True, [], {}, -1, 1 << 63, 10**30)


def read_range(content: bytes) -> CompactedLog:
    return decode_compacted(RangeFile.of_content(PATH, content), PATH, ended=True)


def with_value(content: bytes, line: int, steps: tuple[str | int, ...], value: object) -> bytes:
    """Return lines of a record or a checkpoint with another value at one place."""
    lines = content.split(b"\n")[:-2]
    text = json.loads(lines[line])
    holder = reduce(lambda inner, step: inner[step], steps[:-1], text)
    holder[steps[-1]] = value
    lines[line] = json.dumps(text).encode()
    return to_checked_text(lines)


def with_column(
    name: str, value: object, packed: Callable[[bytes], bytes] = zlib.compress, content: bytes = RANGE
) -> bytes:
    """Return a range, by default `RANGE`, with another value in a column of the first document."""
    line, _, rest = content.split(b"\n", 2)
    header = json.loads(line)
    streams: dict[str, list[Any]] = header["live"][0]["columns"]
    names = list(streams)
    start = sum(streams[before][0] for before in (names[: names.index(name)] if name in streams else names))
    end = start + streams.get(name, (0,))[0]
    stream = packed(json.dumps(value).encode())
    streams[name] = [len(stream), checksum(stream)]
    return to_checked_text([json.dumps(header).encode()]) + rest[:start] + stream + rest[end:]


def column(name: str) -> object:
    """Return a column of the first document of the range."""
    return unpack_json(read_range(RANGE).kept[0].columns[name], Any)


def without_column(name: str) -> bytes:
    """Return the range without a column of the first document."""
    line, _, rest = RANGE.split(b"\n", 2)
    header = json.loads(line)
    streams: dict[str, list[Any]] = header["live"][0]["columns"]
    names = list(streams)
    start = sum(streams[before][0] for before in names[: names.index(name)])
    length, _ = streams.pop(name)
    return to_checked_text([json.dumps(header).encode()]) + rest[:start] + rest[start + length :]


def all_adds(content: bytes) -> list[list[Add]]:
    decoded = read_range(content)
    return [list(document.adds(document.versions().ids)) for document in decoded.kept]


# Of these, by the column; of all other columns, the text.
SOUND: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("kind", "lengthBytes", "logicalLengthBytes", "rows", "origin", "offsetBytes"), ()),
    "finalPath": ("x", None),
    "filters": ([],),
}
NUMBERS_OF_RECORDS: tuple[tuple[int, tuple[str | int, ...]], ...] = (
    *((0, (name,)) for name in ("version", "timeMs", "taskCount", "lineageStartBatch", "vacuumHorizonMs")),
    (0, ("author", "batchId")),
    *((1, ("adds", 0, name)) for name in ("lengthBytes", "logicalLengthBytes", "rows")),
    *((1, ("adds", 0, "origin", name)) for name in ("firstBatch", "lastBatch")),
    (1, ("jobs", 0, "attempts")),
)


class TestFields:
    @pytest.mark.parametrize(("line", "steps"), NUMBERS_OF_RECORDS)
    def test_a_number_of_a_record_is_a_count(self, line: int, steps: tuple[str | int, ...]) -> None:
        for value in OTHER_TYPES:
            with pytest.raises(CorruptData, match=str(steps[-1])) as caught:
                decode_record(with_value(ENCODED, line, steps, value), PATH, lambda _: b"")
            assert caught.value.path == PATH

    @pytest.mark.parametrize("name", ["version", "vacuumHorizonMs", "logStartVersion", "removedPartsSinceVersion"])
    def test_a_number_of_a_checkpoint_is_a_count(self, name: str) -> None:
        for value in OTHER_TYPES:
            with pytest.raises(CorruptData, match=name):
                decode_checkpoint(with_value(CHECKPOINT, 0, (name,), value), PATH)

    def test_what_is_no_json_is_refused(self) -> None:
        for line, steps in NUMBERS_OF_RECORDS:
            with pytest.raises(CorruptData, match="malformed"):
                decode_record(with_value(ENCODED, line, steps, float("nan")), PATH, lambda _: b"")

    def test_the_kind_of_an_add_is_one_that_there_is(self) -> None:
        for value in (None, 1, "", "deadLetters", "Part"):
            with pytest.raises(CorruptData, match="kind"):
                decode_record(with_value(ENCODED, 1, ("adds", 0, "kind"), value), PATH, lambda _: b"")

    def test_filters_are_names(self) -> None:
        for value in ([1], [None], [["gzip"]], "gzip"):
            with pytest.raises(CorruptData):
                decode_record(with_value(ENCODED, 1, ("adds", 0, "filters"), value), PATH, lambda _: b"")

    def test_the_number_of_a_transaction_may_be_negative(self) -> None:
        author = BatchWriteAuthor("j", Transaction("app", -5))
        content = encode_record(structs.replace(RECORD, author=author)).content
        assert decode_record(content, PATH, lambda _: b"").author == author
        with pytest.raises(ConfigError, match="an int"):
            encode_record(structs.replace(RECORD, author=BatchWriteAuthor("j", Transaction("app", 1 << 63))))


class TestRanges:
    @parametrize("name", FIELDS, quick=2)
    def test_each_column_has_its_type(self, name: str) -> None:
        """Also where a value stands for all, and where a few stand for many."""
        for value in OTHER_TYPES:
            if value in SOUND.get(name, ("x",)):
                continue
            count = len(all_adds(RANGE)[0])
            lists = (["dictionary", [value], [0] * count], ["plain", [value] * count], ["plain", [value]])
            for coded in (["constant", value], *lists, value, [value], []):
                with pytest.raises(CorruptData) as caught:
                    all_adds(with_column(name, coded))
                assert caught.value.path == PATH

    @pytest.mark.parametrize("name", ["id", "added", "removed"])
    def test_ids_and_versions_have_theirs(self, name: str) -> None:
        values: tuple[Any, ...] = (None, 7, "x", [None], [[]], [1.5], {}, ["x"])
        for value in values:
            with pytest.raises(CorruptData, match=name) as caught:
                all_adds(with_column(name, value))
            assert caught.value.path == PATH

    def test_an_index_is_one_of_the_values(self) -> None:
        with pytest.raises(CorruptData, match="unreadable"):
            all_adds(with_column("rows", ["dictionary", [1], [1 << 40] * len(all_adds(RANGE)[0])]))

    def test_a_part_has_a_name(self) -> None:
        with pytest.raises(CorruptData, match="finalPath"):
            all_adds(with_column("finalPath", ["constant", None], content=with_column("kind", ["constant", "part"])))

    @parametrize("name", ["id", "added", *FIELDS], quick=3)
    def test_a_column_is_missing(self, name: str) -> None:
        with pytest.raises(CorruptData, match="unreadable"):
            all_adds(without_column(name))

    def test_a_document_is_not_unpacked_beyond_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Zeros take a thousandth of their length."""
        size_bytes = 100_000
        content = with_column("kind", column("kind"), lambda text: zlib.compress(text + b" " * size_bytes))
        assert all_adds(content) == all_adds(RANGE)
        monkeypatch.setattr(column_coding, "FILE_BYTES_MAX", size_bytes)
        with pytest.raises(CorruptData, match="more than 100000 bytes"):
            all_adds(content)

    def test_the_columns_of_a_document_share_the_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        texts = [zlib.decompress(stream) for each in read_range(RANGE).kept for stream in each.columns.values()]
        monkeypatch.setattr(column_coding, "FILE_BYTES_MAX", max(map(len, texts)))
        with pytest.raises(CorruptData, match="more than"):
            all_adds(RANGE)

    def test_a_stream_ends_where_it_ends(self) -> None:
        for packed in (lambda text: zlib.compress(text)[:-1], lambda text: zlib.compress(text) + b"x"):
            with pytest.raises(CorruptData, match="trailing bytes"):
                all_adds(with_column("kind", column("kind"), packed))

    def test_a_longer_one_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compacted, "FILE_BYTES_MAX", len(RANGE) - 1)

        def read(_: int, __: int) -> bytes:
            raise AssertionError("it was read")

        with pytest.raises(CorruptData, match=f"at most {len(RANGE) - 1} bytes"):
            decode_compacted(RangeFile(PATH, len(RANGE), read), PATH, ended=True)

    def test_one_that_would_be_longer_is_not_written(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then ranges stay apart, and readers read several."""
        driver = Driver(MemoryFileSystem("apart"))
        monkeypatch.setattr(compacted_writer, "CHUNK_RECORDS", 2)
        for batch in range(4):
            driver.commit(batch, *(driver.stage(batch) for _ in range(3)))
        records = [record for version in range(4) if (record := driver.log.read_record(version)) is not None]
        monkeypatch.setattr(compacted, "FILE_BYTES_MAX", len(encode_compacted(compact_records(records, 0))) - 1)
        write_fewest_compacted(driver.log, driver.log.refresh())
        assert [(name.first, name.last) for name in cover(list_compacted(driver.fs))] == [(0, 1), (2, 3)]
        monkeypatch.undo()
        write_fewest_compacted(driver.log, driver.log.refresh())
        assert [(name.first, name.last) for name in list_compacted(driver.fs)] == [(0, 3)]
        MemoryFileSystem.drop("apart")


class TestJson:
    @pytest.mark.parametrize(("opening", "end"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
    def test_values_are_not_nested_too_deeply(self, opening: str, end: str) -> None:
        per_turn = opening.count("[") + opening.count("{")
        turns = record_format.DEPTH_MAX // per_turn
        assert json_value((opening * turns + "1" + end * turns).encode())
        for more in (turns + 1, 100_000):
            with pytest.raises(ValueError, match="nested levels"):
                json_value((opening * more + "1" + end * more).encode())

    def test_brackets_within_texts_and_beside_each_other_are_not_nested(self) -> None:
        many = 2 * record_format.DEPTH_MAX
        values: tuple[Any, ...] = (
            "[" * many,
            '"[' * many,
            "\\" * 3 + "[" * many,
            {"[" * many: [[]] * many},
            [{"a": [{}]}] * many,
        )
        for value in values:
            assert json_value(json.dumps(value).encode()) == value

    def test_there_are_not_too_many_values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(record_format, "VALUES_MAX", 1000)
        check_json(json.dumps([1.25] * 999).encode())
        lists: tuple[list[Any], ...] = ([1.25] * 2000, [[]] * 2000, [{}] * 2000)
        for many in lists:
            with pytest.raises(ValueError, match="more than 1000 values"):
                check_json(json.dumps(many).encode())


class TestWriters:
    """What readers would refuse is not written."""

    def deep(self) -> list[Any]:
        nested: list[Any] = []
        for _ in range(record_format.DEPTH_MAX):
            nested = [nested]
        return nested

    def test_a_record_is_refused_that_nobody_could_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for record in (
            structs.replace(RECORD, payload=self.deep()),
            structs.replace(RECORD, definitions={"d": self.deep()}),
        ):
            with pytest.raises(ConfigError, match=r"nested levels.* fewer files at once"):
                encode_record(record)
        add = Add("a", "part", "p", "f", 1, 1, "crc32:0", 1, "", "e", Origin("q", 0, 0))
        record = Record(0, "n", BatchWriteAuthor("j"), 0, adds=(add,) * 20)
        monkeypatch.setattr(record_format, "FILE_BYTES_MAX", 1000)
        with pytest.raises(ConfigError, match=r"a file of the log cannot have .* fewer files at once"):
            encode_record(record)

    def test_without_a_checkpoint_the_query_goes_on(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        driver = Driver(MemoryFileSystem("without"))
        driver.commit_new(0)
        monkeypatch.setattr(record_format, "FILE_BYTES_MAX", 10)
        with pytest.raises(ConfigError):
            encode_checkpoint(driver.log.refresh())
        renew_checkpoint(driver.log, driver.log.refresh())
        assert "could not write a log checkpoint" in caplog.text
        assert list_checkpoints(driver.fs) == []
        MemoryFileSystem.drop("without")


class Bounded(WrapperFileSystem):
    """Reads no more of a file below `_ftfile` than the caller has said."""

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        assert bytes_max is not None, path
        return super().read(path, bytes_max)


@pytest.mark.slow
class TestLengths:
    @pytest.mark.parametrize(
        "place", ["log/*.record", "log/*.changes", "checkpoints/*", "hints/_published", "directory/_format"]
    )
    def test_of_a_longer_file_no_more_is_read_than_it_may_have(
        self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(record_format, "COMPANION_FROM_BYTES", 1)
        driver = Driver(open_filesystem(str(tmp_path)))
        for batch in range(2):
            driver.commit_new(batch)
        renew_checkpoint(driver.log, driver.log.refresh())
        driver.commit_new(2)
        for path in (tmp_path / layout.META).glob(place):
            lengthen(path)
        log = CommitLog(Bounded(driver.fs))
        if place in {"checkpoints/*", "hints/_published"}:
            assert log.refresh().version == 2
            return
        with pytest.raises(CorruptData, match="at most"):
            log.check_layout() if place == "directory/_format" else log.refresh()

    def test_notes_and_marks_have_a_length(self, tmp_path: Path) -> None:
        fs = open_filesystem(str(tmp_path))
        fs.make_directories(layout.DIRECTORY)
        note = f"x-{'0' * 32}.finalPath"
        for name in (layout.MARKER, note):
            (tmp_path / name).touch()
            lengthen(tmp_path / name)
        assert read_note(Bounded(fs), note) is None
        with pytest.raises(CorruptData, match="at most"):
            read_marker(Bounded(fs))

    def test_a_mac_is_no_part_of_what_a_file_may_have(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FTFILE_TEST_KEYS", f"one {base64.b64encode(bytes(range(32))).decode()}")
        forget_keys()
        fs = with_keys(directory("sealed and long"), "one")
        fs.create_exclusive(layout.FORMAT_FILE, to_checked_text([LAYOUT_VERSION]))
        path = layout.record_path(0)
        fs.create_exclusive(path, ENCODED)
        assert read_within(fs, path, len(ENCODED)) == ENCODED
        with pytest.raises(CorruptData, match="at most"):
            read_within(fs, path, len(ENCODED) - 1)
        monkeypatch.setattr(sealed, "_MAC_BYTES_MAX", 0)
        with pytest.raises(CorruptData, match="MAC"):
            read_within(fs, path, len(ENCODED))
        forget_keys()


def lengthen(path: Path) -> None:
    """Make a file far longer than memory, without a byte on the disk."""
    with path.open("r+b") as file:
        file.truncate(100 << 30)
