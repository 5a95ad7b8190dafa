"""Each invariant is seen when it is broken."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import structs

import ftfile
from ftfile.core.checksum import checksum
from ftfile.core.context import SYSTEM
from ftfile.formats.columnar import RowSegments
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import (
    Add,
    BatchWriteAuthor,
    MaintenanceAuthor,
    Origin,
    Record,
    Remove,
    StreamAuthor,
    Transaction,
)
from ftfile.log.format.record import encode_record
from ftfile.log.places import place
from ftfile.log.read.add_table import compact_records
from ftfile.log.read.compacted_records import write_compacted
from ftfile.log.records import PublishedHint, write_published
from ftfile.testing.checker import DirectoryReport, InvariantViolation, check_directory, list_plainly
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem

QUERY = "query-1"


class Directory:
    """Writes records without the protocol's checks, so that records may have any content."""

    def __init__(self, fs: FileSystem) -> None:
        self.fs = fs
        self.records: list[Record] = []
        CommitLog(fs).prepare_directory()

    def add(self, content: bytes, name: str, *, published: bool = True, **fields: Any) -> Add:
        path = f"{layout.STAGED}/{name}.staged"
        with self.fs.create(path) as stream:
            stream.write(content)
        sums: dict[str, Any] = {"length": len(content), "checksum": checksum(content), "rows": content.count(b"\n")}
        add = Add(
            name,
            "part",
            path,
            f"{name}.txt",
            **sums,
            logical_length=len(content),
            directory_key="",
            encoding="",
            origin=Origin(QUERY, 0, 0),
        )
        if published:
            place(self.fs, [add])
        return structs.replace(add, **fields)

    def record(self, author: Any = None, *, version: int | None = None, **fields: Any) -> Record:
        version = len(self.records) if version is None else version
        author = author or StreamAuthor(QUERY, "run", version)
        known = any(isinstance(r.author, StreamAuthor) and r.author.query_id == QUERY for r in self.records)
        start = {} if known or not isinstance(author, StreamAuthor) else {"lineage_start": author.batch_id}
        record = Record(
            **({"version": version, "nonce": f"n{version}", "author": author, "time_ms": 0} | start | fields)
        )
        self.fs.create_exclusive(layout.record_path(version), encode_record(record).content)
        self.records.append(record)
        return record


@pytest.fixture
def directory(request: pytest.FixtureRequest) -> Iterator[Directory]:
    yield Directory(MemoryFileSystem(request.node.name))
    MemoryFileSystem.drop(request.node.name)


def overwritten(fs: FileSystem, path: str, content: bytes) -> None:
    fs.delete(path)
    fs.create_exclusive(path, content)


def broken(directory: Directory, **settings: Any) -> str:
    """Return which invariant the checker finds broken."""
    with pytest.raises(InvariantViolation) as caught:
        check_directory(directory.fs, **settings)
    return caught.value.invariant


def test_a_right_directory(directory: Directory) -> None:
    first = directory.add(b"a\nb\n", "first")
    directory.record(adds=(first,))
    directory.record(adds=(directory.add(b"c\n", "second", published=False),))
    directory.record(BatchWriteAuthor("job", Transaction("app", 3)), adds=(directory.add(b"b\n", "third"),))
    write_checkpoint(directory.fs, SYSTEM.ids, CommitLog(directory.fs).refresh())
    write_published(directory.fs, PublishedHint(0, "n0"))
    report = check_directory(directory.fs, recorded_by_spark={QUERY: [0, 1]})
    assert report.live_rows == {b"a": 1, b"b": 2, b"c": 1}
    assert report.visible_rows == {b"a": 1, b"b": 2}
    assert report.visible == {"first.txt": b"a\nb\n", "third.txt": b"b\n"}
    assert report.committed == {QUERY: [0, 1]}
    assert list(report.live) == ["first", "second", "third"]
    assert sorted(report.records) == [0, 1, 2]


def test_an_empty_directory(directory: Directory) -> None:
    assert check_directory(directory.fs) == DirectoryReport()
    assert check_directory(MemoryFileSystem("never written")) == DirectoryReport()


def test_rows_of_any_format(directory: Directory) -> None:
    directory.record(adds=(directory.add(b"aab", "first"),))
    assert check_directory(directory.fs, rows_of=lambda content: content).live_rows == {ord("a"): 2, ord("b"): 1}


class TestI1:
    def test_a_version_is_missing(self, directory: Directory) -> None:
        for _ in range(3):
            directory.record()
        directory.fs.delete(layout.record_path(1))
        assert broken(directory) == "I1"

    def test_a_record_is_torn(self, directory: Directory) -> None:
        directory.record()
        content = directory.fs.read(layout.record_path(0))
        overwritten(directory.fs, layout.record_path(0), content[: len(content) // 2])
        assert broken(directory) == "I1"

    def test_a_record_changed(self, directory: Directory) -> None:
        directory.record()
        earlier = check_directory(directory.fs)
        other = structs.replace(directory.records[0], nonce="other")
        overwritten(directory.fs, layout.record_path(0), encode_record(other).content)
        assert broken(directory, earlier=earlier) == "I1"

    def test_the_last_record_is_gone(self, directory: Directory) -> None:
        directory.record()
        earlier = check_directory(directory.fs)
        directory.fs.delete(layout.record_path(0))
        assert broken(directory, earlier=earlier) == "I1"

    def test_a_record_stands_at_anothers_version(self, directory: Directory) -> None:
        directory.record()
        content = directory.fs.read(layout.record_path(0))
        directory.fs.create_exclusive(layout.record_path(1), content)
        assert broken(directory) == "I1"


class TestI2:
    def test_a_batch_has_two_records(self, directory: Directory) -> None:
        directory.record()
        directory.record(StreamAuthor(QUERY, "another run", 0))
        assert broken(directory) == "I2"

    def test_a_transaction_has_two_records(self, directory: Directory) -> None:
        for number in range(2):
            directory.record(BatchWriteAuthor(f"job-{number}", Transaction("app", 5)))
        assert broken(directory) == "I2"


def test_i3_spark_recorded_a_batch_that_is_not_in_the_log(directory: Directory) -> None:
    directory.record()
    assert broken(directory, recorded_by_spark={QUERY: [0, 1]}) == "I3"
    assert broken(directory, recorded_by_spark={"query-2": [0]}) == "I3"


class TestI4:
    def test_a_gap(self, directory: Directory) -> None:
        directory.record()
        directory.record(StreamAuthor(QUERY, "run", 2))
        assert broken(directory) == "I4"

    def test_no_recorded_start(self, directory: Directory) -> None:
        directory.record(lineage_start=None)
        assert broken(directory) == "I4"

    def test_a_recorded_new_start_is_none(self, directory: Directory) -> None:
        directory.record()
        directory.record(StreamAuthor(QUERY, "run", 7), lineage_start=7)
        assert check_directory(directory.fs).committed == {QUERY: [0, 7]}


class TestI5:
    @pytest.mark.parametrize("published", [True, False])
    def test_a_live_part_is_gone(self, directory: Directory, *, published: bool) -> None:
        add = directory.add(b"a\n", "first", published=published)
        directory.record(adds=(add,))
        directory.fs.delete("first.txt" if published else add.path)
        assert broken(directory) == "I5"

    @pytest.mark.parametrize(
        "content", [b"a\n", b"", b"a\nb\nc\n", b"a\nX\n"], ids=["torn", "empty", "longer", "other"]
    )
    def test_a_live_part_has_other_bytes(self, directory: Directory, content: bytes) -> None:
        add = directory.add(b"a\nb\n", "first", published=False)
        directory.record(adds=(add,))
        overwritten(directory.fs, add.path, content)
        assert broken(directory) == "I5"

    def test_a_segment_has_other_bytes(self, directory: Directory) -> None:
        spool = directory.add(b"..a\n..", "spool", published=False, kind="segment", final_path=None)
        segment = structs.replace(spool, offset=2, length=2, logical_length=2, checksum=checksum(b"a\n"))
        directory.record(adds=(segment,))
        assert check_directory(directory.fs).live_rows == {b"a": 1}
        overwritten(directory.fs, spool.path, b"..b\n..")
        assert broken(directory) == "I5"

    def test_a_removed_part_is_gone_before_any_vacuum(self, directory: Directory) -> None:
        add = directory.add(b"a\n", "first")
        directory.record(adds=(add,))
        directory.record(removes=(Remove.of(add),))
        directory.fs.delete("first.txt")
        assert broken(directory) == "I5"
        directory.record(MaintenanceAuthor("vacuum", "v"), horizon_ms=2**60, vacuumed_to=0)
        assert broken(directory) == "I5"
        directory.record(MaintenanceAuthor("vacuum", "v"), horizon_ms=2**60, vacuumed_to=1)
        check_directory(directory.fs)

    def test_dead_letters_may_be_deleted_and_not_changed(self, directory: Directory) -> None:
        path = f"{layout.DEAD_LETTERS}/{QUERY}/_0000000000-00000-first.deadLetters"
        letters = directory.add(b"a\n", "first", published=False, final_path=path)
        directory.record(dead_letters=(letters,))
        place(directory.fs, [letters])
        overwritten(directory.fs, path, b"b\n")
        assert broken(directory) == "I5"
        directory.fs.delete(path)
        check_directory(directory.fs)

    def test_another_file_is_where_a_removed_part_was(self, directory: Directory) -> None:
        """One of another length is somebody's; one of its length cannot be told from it without being read."""
        add = directory.add(b"a\n", "first")
        directory.record(adds=(add,))
        directory.record(removes=(Remove.of(add),))
        directory.fs.rename("first.txt", layout.retired_path(add.id))
        check_directory(directory.fs)
        directory.fs.create_exclusive("first.txt", b"a")
        check_directory(directory.fs)
        directory.fs.put("first.txt", b"b\n")
        assert broken(directory) == "I5"


class TestI6:
    def test_two_parts_share_a_file(self, directory: Directory) -> None:
        add = directory.add(b"a\n", "first")
        directory.record(adds=(add,))
        directory.record(adds=(structs.replace(add, id="second", final_path="second.txt"),))
        assert broken(directory) == "I6"

    def test_two_parts_share_a_final_name(self, directory: Directory) -> None:
        add = directory.add(b"a\n", "first")
        directory.record(adds=(add,))
        directory.record(removes=(Remove.of(add),), adds=(structs.replace(add, id="second", path="other"),))
        assert broken(directory) == "I6"

    def test_two_adds_share_an_id(self, directory: Directory) -> None:
        directory.record(adds=(directory.add(b"a\n", "first"),))
        directory.record(adds=(directory.add(b"a\n", "second", id="first"),))
        assert broken(directory) == "I6"

    def test_segments_overlap(self, directory: Directory) -> None:
        spool = directory.add(b"a\nb\n", "spool", published=False, kind="segment", final_path=None)
        directory.record(
            adds=(spool, structs.replace(spool, id="second", offset=2, length=2, checksum=checksum(b"b\n")))
        )
        assert broken(directory) == "I6"


class TestI7:
    def test_a_record_removes_what_is_not_live(self, directory: Directory) -> None:
        add = directory.add(b"a\n", "first")
        directory.record(adds=(add,))
        for _ in range(2):
            directory.record(removes=(Remove.of(add),))
        assert broken(directory) == "I7"

    def test_a_record_removes_twice(self, directory: Directory) -> None:
        add = directory.add(b"a\n", "first")
        directory.record(adds=(add,))
        directory.record(removes=(Remove.of(add), Remove.of(add)))
        assert broken(directory) == "I7"

    def test_an_overwrite_leaves_something(self, directory: Directory) -> None:
        first, second = directory.add(b"a\n", "first"), directory.add(b"b\n", "second")
        directory.record(adds=(first, second))
        directory.fs.make_directories(layout.RETIRED)
        directory.fs.rename("first.txt", layout.retired_path(first.id))
        directory.record(removes=(Remove.of(first),), overwrite=True)
        assert broken(directory) == "I7"

    def test_a_base_tells_another_story(self, directory: Directory) -> None:
        directory.record()
        state = replace(CommitLog(directory.fs).refresh(), horizon_ms=5)
        write_checkpoint(directory.fs, SYSTEM.ids, state)
        assert broken(directory) == "I7"

    def test_a_base_of_another_history_says_nothing(self, directory: Directory) -> None:
        directory.record()
        state = CommitLog(directory.fs).refresh()
        for other in (replace(state, version=1, horizon_ms=5), replace(state, nonce="other", log_start=9)):
            write_checkpoint(directory.fs, SYSTEM.ids, other)
        check_directory(directory.fs)

    @pytest.mark.parametrize("told", ["other rows", "too few", "what was removed", "what never was"])
    def test_a_range_tells_another_story(self, directory: Directory, told: str) -> None:
        first, second = directory.add(b"a\n", "first"), directory.add(b"b\n", "second", published=False)
        added, more = directory.record(adds=(first,)), directory.record(adds=(second,))
        directory.fs.make_directories(layout.RETIRED)
        directory.fs.rename("first.txt", layout.retired_path(first.id))
        removed = directory.record(removes=(Remove.of(first),))
        last = directory.record()
        another = structs.replace(first, id="another", path="another", final_path="another.txt")
        right = write_compacted(directory.fs, SYSTEM.ids, compact_records([added, more, removed, last], 0))
        check_directory(directory.fs)
        directory.fs.delete(layout.compacted_path(right))
        records = {
            "other rows": [structs.replace(added, adds=(structs.replace(first, rows=2),)), more, removed],
            "too few": [added, structs.replace(more, adds=()), removed],
            "what was removed": [added, more, structs.replace(removed, removes=())],
            "what never was": [
                structs.replace(added, adds=(first, another)),
                more,
                structs.replace(removed, removes=(Remove.of(first), Remove.of(another))),
            ],
        }[told]
        write_compacted(directory.fs, SYSTEM.ids, compact_records([*records, last], 0))
        assert broken(directory) == "I7"

    def test_a_base_forgets_what_is_not_published(self, directory: Directory) -> None:
        directory.record(adds=(directory.add(b"a\n", "first", published=False),))
        state = CommitLog(directory.fs).refresh()
        write_checkpoint(directory.fs, SYSTEM.ids, state)
        check_directory(directory.fs)
        state.unpublished.clear()
        write_checkpoint(directory.fs, SYSTEM.ids, state)
        assert broken(directory) == "I7"

    def test_a_base_forgets_what_is_not_hidden(self, directory: Directory) -> None:
        add = directory.add(b"a\n", "first")
        directory.record(adds=(add,))
        directory.record(removes=(Remove.of(add),))
        state = CommitLog(directory.fs).refresh()
        state.unpublished.clear()
        write_checkpoint(directory.fs, SYSTEM.ids, state)
        assert broken(directory) == "I7"

    def test_a_hint_passes_what_is_not_published(self, directory: Directory) -> None:
        directory.record(adds=(directory.add(b"a\n", "first", published=False),))
        write_published(directory.fs, PublishedHint(0, "of no record"))
        check_directory(directory.fs)
        write_published(directory.fs, PublishedHint(0, "n0"))
        assert broken(directory) == "I7"

    def test_a_published_part_has_its_staged_name_only_as_an_old_name(self, directory: Directory) -> None:
        add = directory.add(b"a\n", "first")
        directory.record(adds=(add,))
        with directory.fs.create(add.path) as stream:
            stream.write(b"a\n")
        assert check_directory(directory.fs, old_names=[add.path]).old_names == set()  # a publisher can still delete it
        write_published(directory.fs, PublishedHint(0, "n0"))
        assert check_directory(directory.fs, old_names=[add.path]).old_names == {add.path}
        assert broken(directory) == "I7"
        directory.record(removes=(Remove.of(add),))
        write_published(directory.fs, PublishedHint(1, "n1"))
        assert broken(directory, old_names=[add.path, add.final_path]) == "I7"


class TestI8:
    def test_maintenance_changes_rows(self, directory: Directory) -> None:
        first, second = directory.add(b"a\n", "first"), directory.add(b"b\n", "second")
        directory.record(adds=(first, second))
        removes = (Remove.of(first), Remove.of(second))
        merged = directory.add(b"a\na\n", "merged", published=False)
        directory.record(MaintenanceAuthor("compact", "c"), adds=(merged,), removes=removes)
        assert broken(directory) == "I8"

    @pytest.mark.parametrize("rows_removed", [0, 2, 1])
    def test_maintenance_ends_as_many_rows_as_it_says(self, directory: Directory, rows_removed: int) -> None:
        first = directory.add(b"a\nb\n", "first")
        directory.record(adds=(first,))
        rest = directory.add(b"a\n", "rest", published=False)
        author = MaintenanceAuthor("delete", "d")
        directory.record(author, adds=(rest,), removes=(Remove.of(first),), rows_removed=rows_removed)
        if rows_removed == 1:
            assert check_directory(directory.fs).live_rows == {b"a": 1}
        else:
            assert broken(directory) == "I8"

    def test_maintenance_brings_rows(self, directory: Directory) -> None:
        first = directory.add(b"a\n", "first")
        directory.record(adds=(first,))
        more = directory.add(b"a\nb\n", "more", published=False)
        directory.record(MaintenanceAuthor("compact", "c"), adds=(more,), removes=(Remove.of(first),))
        assert broken(directory) == "I8"

    def test_maintenance_ends_all_rows_of_a_file(self, directory: Directory) -> None:
        first = directory.add(b"a\nb\n", "first")
        directory.record(adds=(first,))
        directory.record(MaintenanceAuthor("drop", "d"), removes=(Remove.of(first),), rows_removed=1)
        assert broken(directory) == "I8"

    def test_maintenance_keeps_rows(self, directory: Directory) -> None:
        first, second = directory.add(b"a\n", "first"), directory.add(b"b\n", "second")
        directory.record(adds=(first, second))
        merged = directory.add(b"b\na\n", "merged", published=False)
        removes = (Remove.of(first), Remove.of(second))
        directory.record(MaintenanceAuthor("compact", "c"), adds=(merged,), removes=removes)
        assert check_directory(directory.fs).live_rows == {b"a": 1, b"b": 1}

    def test_an_older_snapshot_has_other_rows(self, directory: Directory) -> None:
        directory.record(adds=(directory.add(b"a\n", "first"),))
        earlier = check_directory(directory.fs)
        directory.record(adds=(directory.add(b"b\n", "second"),))
        check_directory(directory.fs, earlier=earlier)
        earlier.live_rows[b"a"] += 1
        assert broken(directory, earlier=earlier) == "I8"


class TestI9:
    def test_a_foreign_file_is_visible(self, directory: Directory) -> None:
        directory.record(adds=(directory.add(b"a\n", "first"),))
        directory.fs.create_exclusive("foreign.txt", b"")
        assert broken(directory) == "I9"

    def test_an_uncommitted_part_is_visible(self, directory: Directory) -> None:
        directory.add(b"a\n", "first")
        assert broken(directory) == "I9"

    def test_a_part_is_visible_beside_what_replaced_it(self, directory: Directory) -> None:
        first = directory.add(b"a\n", "first")
        directory.record(adds=(first,))
        second = directory.add(b"a\n", "second", published=False)
        directory.record(adds=(second,), removes=(Remove.of(first),))
        check_directory(directory.fs)
        place(directory.fs, [second])
        assert broken(directory) == "I9"

    def test_a_part_is_visible_beside_what_replaced_its_replacement(self, directory: Directory) -> None:
        first, second = directory.add(b"a\n", "first"), directory.add(b"a\n", "second")
        third = directory.add(b"a\n", "third")
        directory.fs.rename("second.txt", layout.retired_path("second"))
        for add, replaced in ((first, ()), (second, (Remove.of(first),)), (third, (Remove.of(second),))):
            directory.record(adds=(add,), removes=replaced)
        assert broken(directory) == "I9"

    def test_something_hidden_looks_like_a_part(self, directory: Directory) -> None:
        directory.record(adds=(directory.add(b"a\n", "first"),))
        directory.fs.create_exclusive(f"{layout.STAGED}/leftover.txt", b"")
        assert broken(directory) == "I9"


def test_plain_listers_skip_underscores_and_dots(directory: Directory) -> None:
    for path in ("a=1/b=2", "a=1/_temporary", ".hidden"):
        directory.fs.make_directories(path)
        directory.fs.create_exclusive(f"{path}/file", b"")
        directory.fs.create_exclusive(f"{path}/_SUCCESS", b"")
        directory.fs.create_exclusive(f"{path}/.file.crc", b"")
    assert list(list_plainly(directory.fs)) == ["a=1/b=2/file"]
    assert list(list_plainly(directory.fs, "nowhere")) == []


@pytest.mark.slow
def test_rows_of_a_segment_that_another_part_contains_are_not_counted(tmp_path: Path) -> None:
    """A flush assembles the rest of a segment, whose first row is in a full file."""
    out = str(tmp_path)
    query = MicroBatch(out, {"id": "long"}, {"fileFormat": "arrow", "maxRecordsPerFile": "3", "rolling": "policy"})
    for batch in range(3):
        query.run(batch, [[{"id": 2 * batch}, {"id": 2 * batch + 1}]])
    schema = pa.schema({"id": pa.int64()})

    def ids_in(content: bytes) -> list[int]:
        if content.startswith(b"ARROW1"):
            return list(pa.ipc.open_file(content).read_all()["id"].to_pylist())
        batches = RowSegments(schema).decode(content, "segment", schema)
        return [number for rows in batches for number in rows["id"].to_pylist()]

    fs = open_filesystem(out)
    skipped = [segment.skip_rows for segment in CommitLog(fs).refresh().segments.values()]
    assert skipped.count(1) == 1
    assert check_directory(fs, rows_of=ids_in).live_rows == Counter(range(6))
    ftfile.flush(out)
    assert check_directory(fs, rows_of=ids_in).live_rows == Counter(range(6))
