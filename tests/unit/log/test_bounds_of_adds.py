"""Bounds of columns in the adds of a table: from records and from compacted logs."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from msgspec import structs

from ftfile.core.bounds import BoundsColumn
from ftfile.core.context import SYSTEM
from ftfile.core.errors import CorruptData
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import compacted, file_statistics, layout
from ftfile.log.format.column_coding import pack_json
from ftfile.log.format.compacted import decode_compacted, encode_compacted
from ftfile.log.format.model import Remove
from ftfile.log.format.record import encode_record
from ftfile.log.read import add_table
from ftfile.log.read.add_table import AddTable, compact_records, merge_compacted
from ftfile.log.read.compacted_records import read_compacted, write_compacted
from ftfile.log.read.compacted_writer import write_fewest_compacted
from ftfile.log.read.snapshot import live_table, take_snapshot
from ftfile.storage.api import RangeFile
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.kit.file_statistics import as_lists
from tests.unit.log.random_log import plain_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ftfile.log.format.compacted import CompactedLog, Document
    from ftfile.log.format.layout import CompactedName
    from ftfile.log.format.model import Add, Record
    from ftfile.storage.api import FileSystem

FS = MemoryFileSystem("bounds of adds")
NAMES = ("id", "zero", "text")
SIZES = {"a": 1 << 40, "b": 1, "c": 1 << 41}


def adds_with(entries: Sequence[dict[str, list[object]]]) -> dict[str, Add]:
    """Return adds with these statistics."""
    adds = plain_record(0, files=len(entries)).adds
    pairs = zip(adds, entries, strict=True)
    return {add.id: structs.replace(add, statistics=statistics) for add, statistics in pairs}


class TestAddsOfRecords:
    def test_bounds_are_those_of_the_statistics_and_unknown_otherwise(self) -> None:
        adds = adds_with([{"a": [1, 2, 0]}, {"b": ["x", None, 3]}, {"a": [1, 2], "b": [None, None, 4]}])
        (bounds,) = AddTable((), adds).bounds(FS, ["a", "b", "c"])
        assert bounds == {
            "a": BoundsColumn([1, None, None], [2, None, None], [0, None, None]),
            "b": BoundsColumn([None, "x", None], [None, None, None], [None, 3, 4]),
            "c": BoundsColumn([None] * 3, [None] * 3, [None] * 3),
        }

    def test_possible_adds_are_those_of_the_mask(self) -> None:
        adds = adds_with([{"a": [1, 2, 0]}, {"a": [3, 4, 0]}, {}])

        def may_match(bounds: dict[str, BoundsColumn], rows: list[int]) -> list[bool]:
            assert rows == [10, 10, 10]
            return [low is None or low > 1 for low in bounds["a"].low]

        table = AddTable((), adds).select_possible(FS, ["a"], may_match)
        assert list(table.values()) == list(adds.values())[1:]
        assert len(table) == 2


def entries(count: int, start: int = 0) -> list[dict[str, list[object]]]:
    """Return statistics of adds with different bounds, some of them without `text`."""
    made: list[dict[str, list[object]]] = []
    for number in range(start, start + count):
        made.append({"id": [number, number + 1, 0], "zero": [-0.0, 0.0, number % 2]})
        if number % 3:
            made[-1]["text"] = [f"a{number}", None, number]
    return made


def record_of(version: int, statistics: Sequence[dict[str, list[object]]], removes: Sequence[Add] = ()) -> Record:
    """Return a record of adds with these statistics."""
    record = plain_record(version, files=len(statistics))
    adds = []
    for add, add_entries in zip(record.adds, statistics, strict=True):
        adds.append(structs.replace(add, statistics=add_entries))
    return structs.replace(record, adds=tuple(adds), removes=tuple(map(Remove.of, removes)))


class Log:
    """Records on a storage system, and compacted logs of them."""

    def __init__(self, records: Sequence[Record]) -> None:
        MemoryFileSystem.drop("compacted bounds")
        self.fs = MemoryFileSystem("compacted bounds")
        for directory in layout.DIRECTORIES:
            self.fs.make_directories(directory)
        self.records = records
        for record in records:
            self.fs.create_exclusive(layout.record_path(record.version), encode_record(record).content)

    def compact(self, *cuts: int) -> CompactedName:
        """Write one compacted log, merged from those between the cuts."""
        ends = [0, *cuts, len(self.records)]
        contents = [compact_records(self.records[start:end], 0) for start, end in itertools.pairwise(ends)]
        content = contents[0]
        if len(contents) > 1:
            content = merge_compacted([self.reread(part) for part in contents], 0)
        return write_compacted(self.fs, SYSTEM.ids, content)

    def reread(self, content: CompactedLog) -> CompactedLog:
        """Return a compacted log as a merge reads it."""
        file = RangeFile.of_content("path", encode_compacted(content))
        return decode_compacted(file, "path", ended=True, statistics=True)

    def table(self, version: int | None = None) -> AddTable:
        """Return the live adds of a version, by default of the last one, without reading records."""
        snapshot = take_snapshot(CommitLog(self.fs), version)
        assert snapshot.compacted_to == snapshot.version, "records were read instead of the compacted log"
        return live_table(snapshot)

    def expected(self, version: int) -> dict[str, dict[str, list[Any]]]:
        """Return the statistics of the live adds of a version, by id."""
        live: dict[str, dict[str, list[Any]]] = {}
        for record in self.records[: version + 1]:
            for remove in record.removes:
                del live[remove.id]
            live |= {add.id: as_lists(add.statistics) for add in record.adds}
        return live


def read_back(table: AddTable, fs: FileSystem, names: Sequence[str] = NAMES) -> dict[str, dict[str, list[Any]]]:
    """Return the statistics of the adds of a table, by id, from their bounds."""
    found: dict[str, dict[str, list[Any]]] = {}
    for bounds, (ids, _) in zip(table.bounds(fs, names), table.columns_by_id(["rows"]), strict=True):
        for at, add_id in enumerate(ids):
            found[add_id] = {}
            for name, column in bounds.items():
                entry = [column.low[at], column.high[at], column.nulls[at]]
                if entry != [None, None, None]:
                    found[add_id][name] = entry
    return found


def history() -> list[Record]:
    """Return records; some remove adds of earlier records."""
    first = record_of(0, entries(6))
    second = record_of(1, entries(5, 10), removes=first.adds[1:3])
    third = record_of(2, [{}] * 2, removes=[first.adds[0], second.adds[4]])
    return [first, second, third, record_of(3, entries(4, 20), removes=third.adds[:1])]


class TestAddsOfCompactedLogs:
    @pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2, 3)])
    @pytest.mark.parametrize("whole", [True, False], ids=["whole documents", "documents joined"])
    def test_bounds_are_those_of_the_records(
        self, cuts: tuple[int, ...], whole: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Documents pass merges as bytes, or are cut and joined; a document has some removed adds, or none."""
        monkeypatch.setattr(add_table, "DOCUMENT_ADDS", 4 if whole else 100)
        log = Log(history())
        log.compact(*cuts)
        for version in range(len(log.records)):
            read = read_back(log.table(version), log.fs)
            for add_id, statistics in log.expected(version).items():
                assert read[add_id] == statistics or (not read[add_id] and add_id not in log.expected(3))
            assert read.keys() == log.expected(version).keys()

    def test_a_later_compacted_log_removes_adds(self) -> None:
        log = Log(history())
        for record in log.records:
            write_compacted(log.fs, SYSTEM.ids, compact_records([record], 0))
        for version in range(len(log.records)):
            assert read_back(log.table(version), log.fs) == log.expected(version)

    def test_zeros_keep_their_signs_and_values_their_types(self) -> None:
        values: list[list[object]] = [[1, True, 0], [True, 1.0, 0], [1.0, 1, 0], [-0.0, 0, 0], [0.0, -0.0, 1]] * 3
        log = Log([record_of(0, [{"x": value} for value in values])])
        log.compact()
        (column,) = next(log.table().bounds(log.fs, ["x"])).values()
        assert repr([list(entry) for entry in zip(*column, strict=True)]) == repr(values)

    @pytest.mark.parametrize(
        ("span_bytes", "names", "reads"),
        [
            (0, ["b", "absent"], [("b", "b")]),
            (0, ["b", "a"], [("a", "b")]),
            (0, ["c", "a"], [("c", "c"), ("a", "a")]),
            (1 << 16, ["c", "a"], [("a", "c")]),
            (1 << 16, ["absent"], []),
        ],
        ids=["one column", "adjacent columns", "distant columns", "near columns", "no column"],
    )
    def test_a_condition_reads_the_columns_that_it_names(
        self, span_bytes: int, names: list[str], reads: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Columns that are near or adjacent are read at once, and others one by one."""
        monkeypatch.setattr(compacted, "SPAN_BYTES", span_bytes)
        rows: list[dict[str, list[object]]]
        rows = [{name: [number * size, None, 0] for name, size in SIZES.items()} for number in range(200)]
        log = Log([record_of(0, rows)])
        content = encode_compacted(compact_records(log.records, 0))
        (document,) = decode_compacted(RangeFile.of_content("path", content), "path", ended=False).kept
        assert list(document.places) == list(SIZES)
        expected = []
        for first, last in reads:
            start, _ = document.places[first]
            offset, stream = document.places[last]
            expected.append((start, offset + stream.length - start))
        read: list[tuple[int, int]] = []

        def read_at(offset: int, length: int) -> bytes:
            read.append((offset, length))
            return content[offset : offset + length]

        bounds = document.read_bounds(RangeFile("path", len(content), read_at), names)
        assert read == expected
        assert bounds.keys() == {*names} - {"absent"}
        for name, column in bounds.items():
            assert column == BoundsColumn([number * SIZES[name] for number in range(200)], [None] * 200, [0] * 200)

    def test_a_snapshot_does_not_read_statistics(self) -> None:
        content = encode_compacted(compact_records(history(), 0))
        read: list[int] = []

        def read_at(offset: int, length: int) -> bytes:
            read.append(min(offset + length, len(content)))
            return content[offset : offset + length]

        header_bytes = content.index(b"\n", content.index(b"\n") + 1) + 1
        with mock.patch("ftfile.log.format.compacted.HEADER_BYTES", header_bytes):
            decoded = decode_compacted(RangeFile("path", len(content), read_at), "path", ended=True)
        assert max(read) == statistics_start(decoded.kept) < len(content)

    def test_removed_adds_have_none(self) -> None:
        decoded = Log(()).reread(compact_records(history(), 0))
        assert decoded.ended is not None
        assert [document.statistics for document in decoded.ended] == [{}]
        assert all(document.statistics for document in decoded.kept)

    def test_a_log_without_statistics_has_no_fields_of_them(self) -> None:
        content = encode_compacted(compact_records([plain_record(0, files=3)], 0))
        assert b"statistics" not in content.split(b"\n")[0]
        log = Log([plain_record(0, files=3)])
        log.compact()
        assert next(log.table().bounds(log.fs, ["id"])) == {}

    def test_forged_entries_are_unknown(self) -> None:
        forged: list[dict[str, list[object]]] = [{"x": [[1], {}, 0]}, {"x": [1, 2]}, {"x": [5, 6, 0]}, {"x": []}]
        log = Log([record_of(0, forged)])
        log.compact()
        assert read_back(log.table(), log.fs, ["x"]) == dict(
            zip(log.expected(0), [{"x": [None, None, 0]}, {}, {"x": [5, 6, 0]}, {}], strict=True)
        )

    def test_possible_adds_of_several_documents(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(add_table, "DOCUMENT_ADDS", 4)
        log = Log(history())
        log.compact()

        def may_match(bounds: dict[str, BoundsColumn], rows: list[int]) -> list[bool]:
            low = bounds["id"].low if "id" in bounds else [None] * len(rows)
            return [value is None or value >= 12 for value in low]

        for version in range(4):
            table = log.table(version).select_possible(log.fs, ["id"], may_match)
            expected = [
                add_id
                for add_id, statistics in read_back(log.table(version), log.fs).items()
                if "id" not in statistics or statistics["id"][0] >= 12
            ]
            assert list(table) == expected == [add.id for add in table.values()]
            assert len(table) == len(expected)


class TestDamage:
    @pytest.fixture
    def log(self) -> Log:
        return Log(history())

    def test_a_compacted_log_that_was_merged_since_excludes_nothing(
        self, log: Log, caplog: pytest.LogCaptureFixture
    ) -> None:
        name = log.compact()
        table = log.table()
        log.fs.delete(layout.compacted_path(name))
        with caplog.at_level(logging.INFO):
            assert next(table.bounds(log.fs, ["id"])) == {}
        assert "conditions and readers of exports read more files" in caplog.text
        assert list(table.select_possible(log.fs, ["id"], lambda bounds, rows: [not bounds] * len(rows))) == list(table)

    @pytest.mark.parametrize("span_bytes", [0, 1 << 16])
    def test_each_damaged_byte_is_noticed_by_conditions_and_by_merges_and_not_by_snapshots(
        self, log: Log, span_bytes: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compacted, "SPAN_BYTES", span_bytes)
        name = log.compact()
        path = layout.compacted_path(name)
        content = log.fs.read(path)
        sound = read_back(log.table(), log.fs)
        start = statistics_start(decode_compacted(RangeFile.of_content("path", content), "path", ended=False).kept)
        for at in range(start, len(content)):
            log.fs.put(path, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            for columns in (NAMES, *([name] for name in NAMES)):
                read = read_back(log.table(), log.fs, columns)
                for add_id, statistics in read.items():
                    for column in columns:
                        assert statistics.get(column) in (None, sound[add_id].get(column))
            with pytest.raises(CorruptData, match="bytes of statistics"):
                read_compacted(log.fs, name, ended=True, statistics=True)

    @pytest.mark.parametrize(
        "stream",
        [
            b"x",
            pack_json({}),
            pack_json([["constant", 1]] * 2),
            pack_json([["plain", [1]]] * 3),
            pack_json([["dictionary", [1], [7] * 6]] * 3),
            pack_json([["dictionary", [1]]] * 3),
        ],
        ids=["no zlib", "no list", "two columns", "few values", "no such value", "no indexes"],
    )
    def test_a_forged_stream_excludes_nothing(self, stream: bytes, log: Log, caplog: pytest.LogCaptureFixture) -> None:
        content = compact_records(log.records[:1], 0)
        (document,) = content.kept
        forged = structs.replace(content, kept=(replace(document, statistics={"id": stream}),))
        name = write_compacted(log.fs, SYSTEM.ids, forged)
        with caplog.at_level(logging.INFO):
            assert next(log.table(0).bounds(log.fs, ["id"])) == {}
        assert "unreadable fields" in caplog.text
        assert [add.statistics for adds in log.table(0).with_statistics(log.fs) for add in adds] == [{}] * 6
        with pytest.raises(CorruptData, match="unreadable fields"):
            merge_compacted([read_compacted(log.fs, name, ended=True, statistics=True)] * 2, 0)

    @pytest.mark.parametrize("log_start", [0, 3])
    def test_a_merge_replaces_damaged_statistics_by_records_or_drops_them(
        self, log_start: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        records = [record_of(version, entries(2, 10 * version)) for version in range(4)]
        log = Log([*records[:3], structs.replace(records[3], log_start=log_start)])
        names = [write_compacted(log.fs, SYSTEM.ids, compact_records([record], 0)) for record in records[:3]]
        path = layout.compacted_path(names[1])
        log.fs.put(path, log.fs.read(path)[:-1] + b"?")
        commit_log = CommitLog(log.fs)
        write_fewest_compacted(commit_log, commit_log.refresh())
        expected = log.expected(3)
        if log_start:
            expected |= {add.id: {} for add in records[1].adds}
        assert read_back(log.table(), log.fs) == expected
        assert ("the statistics of a compacted log are dropped" in caplog.text) == (log_start > 0)


def statistics_start(documents: Iterable[Document]) -> int:
    """Return the offset of the statistics of documents in a compacted log."""
    return min(offset for document in documents for offset, _ in document.places.values())


def test_too_many_bytes_drop_the_last_columns_of_the_oldest_files(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(add_table, "DOCUMENT_ADDS", 4)
    records = [record_of(version, entries(4, 10 * version)) for version in range(4)]
    whole = compact_records(records, 0)
    sizes = [sum(map(len, (document.statistics or {}).values())) for document in whole.kept]
    assert not caplog.records
    monkeypatch.setattr(file_statistics, "RANGE_STATISTICS_MAX", sum(sizes[1:]) - 1)
    log = Log(records)
    log.compact(1, 2, 3)
    assert "statistics of a compacted log have" in caplog.text
    *blocks, _ = log.table().bounds(log.fs, NAMES)
    assert [list(bounds) for bounds in blocks] == [[], ["id", "zero"], [*NAMES], [*NAMES]]
