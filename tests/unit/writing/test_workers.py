"""Maintenance by several threads, with records on the way, interrupted, and in bounded memory."""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, NotPublished, OutOfSpace
from ftfile.core.progress import Progress
from ftfile.formats import parts as reader
from ftfile.formats.columnar import CollectingEncoder
from ftfile.log import apply as fold
from ftfile.operate.rewriter.row_rewriter import RowRewriter
from ftfile.operate.rewriting import RewriteReport
from ftfile.storage.registry import WrapperFile, WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.stage import OpenPart
from ftfile.writing.workers import Threads
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import InputFile

COLUMNS = {"id": "long", "bucket": "string"}
LETTERS = "abcdef"
ROWS = [{"id": number, "bucket": letter} for number in range(3) for letter in LETTERS]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def written(out: str, letters: str = LETTERS, batches: int = 3, **options: str) -> MicroBatch:
    """Write one small part of each bucket in each batch."""
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "bucket"} | options)
    for batch in range(batches):
        query.run(batch, [[{"id": batch, "bucket": letter} for letter in letters]])
    return query


def rows_of(out: str) -> list[dict[str, Any]]:
    return sorted(ftfile.open(out).to_arrow().to_pylist(), key=lambda row: (row["id"], row["bucket"]))


def staged(out: str) -> list[Path]:
    return [*Path(out, "_ftfile/staged").rglob("*.staged")]


def parts(out: str) -> list[Path]:
    return sorted(path for path in Path(out).rglob("part-*") if "_ftfile" not in path.parts)


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"7"))


class Interruption:
    """Raises KeyboardInterrupt when so many files were read, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, progress: Progress) -> None:
        if progress.done >= self.after:
            raise KeyboardInterrupt


class TestThreads:
    @pytest.mark.slow
    def test_as_many_merge_at_once_as_are_asked_for(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        written(out)
        together, honest = threading.Barrier(3), OpenPart.end

        def end(part: OpenPart) -> None:
            together.wait(300)
            honest(part)

        monkeypatch.setattr(OpenPart, "end", end)
        report = ftfile.compact(out, threads=3)
        assert (report.files_written, report.records) == (6, 1)
        assert rows_of(out) == ROWS
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_names_and_order_are_those_of_one_thread(self, out: str, tmp_path: Path) -> None:
        other = str(tmp_path / "other")
        for path, threads in ((out, 1), (other, 4)):
            written(path)
            ftfile.compact(path, threads=threads)
        found = [
            [(add.directory_key, add.rows) for add in ftfile.open(path).snapshot().adds.values()]
            for path in (out, other)
        ]
        assert found[0] == found[1]

    @pytest.mark.slow
    def test_an_error_ends_the_others_before_it_is_raised(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        written(out)
        failed, honest, ended = threading.Event(), RowRewriter._rewrite, []  # noqa: SLF001

        def merge(*arguments: Any) -> Any:
            if arguments[3].inputs[0].directory_key == "bucket=a":
                failed.set()
                raise OutOfSpace("write", "path", "full")
            assert failed.wait(300)
            ended.append(honest(*arguments))
            return ended[-1]

        monkeypatch.setattr(RowRewriter, "_rewrite", merge)
        with pytest.raises(OutOfSpace):
            ftfile.compact(out, threads=2)
        assert not staged(out)
        assert rows_of(out) == ROWS

    @pytest.mark.slow
    def test_flush_and_verify(self, out: str) -> None:
        written(out, rolling="policy")
        report = ftfile.flush(out, threads=3)
        assert (report.files, report.rows) == (6, 18)
        assert rows_of(out) == ROWS
        damage(parts(out)[4])
        for threads in (1, 3):
            (finding,) = ftfile.open(out).verify(full=True, threads=threads).findings
            assert (finding.code, finding.path) == ("damaged-part", str(parts(out)[4].relative_to(out)))

    @pytest.mark.parametrize(
        "call",
        [
            lambda out: ftfile.compact(out, threads=0),
            lambda out: ftfile.flush(out, threads=0),
            lambda out: ftfile.open(out).verify(full=True, threads=0),
        ],
        ids=["compact", "flush", "verify"],
    )
    def test_none_are_refused(self, out: str, call: Callable[[str], object]) -> None:
        written(out)
        with pytest.raises(ConfigError, match="threads=0"):
            call(out)

    def test_by_default_there_is_one_for_each_core(self) -> None:
        assert Threads.of("job", None, current()).at_once >= 1
        with repeatable() as context:
            assert Threads.of("job", None, context).at_once == 1


class TestRecords:
    def test_every_number_of_a_report_adds_up(self) -> None:
        numbers = [column.name for column in fields(RewriteReport) if type(column.default) is int]
        counts: dict[str, Any] = {name: place for place, name in enumerate(numbers, start=1)}
        hundreds: dict[str, Any] = dict.fromkeys(numbers, 100)
        first = RewriteReport(version=7, where="id = 1", **counts)
        later = RewriteReport(version=9, **hundreds)
        total = first.plus(later)
        assert [getattr(total, name) for name in numbers] == [101 + place for place in range(len(numbers))]
        assert (total.version, total.where, total.dry_run) == (9, "id = 1", False)
        assert first.plus(RewriteReport()) == first

    @pytest.mark.slow
    def test_one_after_so_many_new_parts(self, out: str) -> None:
        written(out)
        report = ftfile.compact(out, commit_every=4, context=current())
        assert (report.records, report.version, report.files_written, report.files_removed) == (2, 4, 6, 18)
        assert [record.files for record in ftfile.open(out).history()][-2:] == [4, 2]
        assert rows_of(out) == ROWS
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_more_parts_are_removed_than_a_head_remembers(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fold, "REMOVED_KEPT", 4)
        written(out)
        report = ftfile.compact(out, commit_every=1, context=current())
        assert (report.records, report.files_lost) == (6, 0)
        assert rows_of(out) == ROWS
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_damage_in_one_leaves_the_others(self, out: str) -> None:
        written(out)
        damage(parts(out)[1])
        with pytest.raises(CorruptData, match="bucket=a"):
            ftfile.compact(out, commit_every=1, context=current())
        assert len(parts(out)) == 3 + 5

    @pytest.mark.slow
    def test_a_flush_records_as_often(self, out: str) -> None:
        written(out, rolling="policy")
        assert ftfile.flush(out, commit_every=2, context=current()).version == 2 + 3
        assert rows_of(out) == ROWS

    @pytest.mark.parametrize("call", [ftfile.compact, ftfile.flush], ids=["compact", "flush"])
    def test_none_are_refused(self, out: str, call: Callable[..., object]) -> None:
        written(out)
        with pytest.raises(ConfigError, match="commit_every=0"):
            call(out, commit_every=0, context=current())


class TestInterruption:
    @pytest.mark.slow
    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize("after", [1, 9, 18])
    def test_what_is_recorded_stays_and_nothing_is_left(self, out: str, threads: int, after: int) -> None:
        written(out)
        with pytest.raises(KeyboardInterrupt):
            ftfile.compact(out, threads=threads, commit_every=2, progress=Interruption(after))
        assert not staged(out)
        assert len(parts(out)) == 18 - 4 * ((after - 1) // 6)
        assert rows_of(out) == ROWS
        assert ftfile.compact(out).files_written == 6 - 2 * ((after - 1) // 6)
        assert rows_of(out) == ROWS
        check_directory(open_filesystem(out))

    @parametrize("threads", [1, 3], quick=1)
    def test_of_a_flush(self, out: str, threads: int) -> None:
        written(out, rolling="policy")
        with pytest.raises(KeyboardInterrupt):
            ftfile.flush(out, threads=threads, commit_every=2, progress=Interruption(9))
        assert not staged(out)
        assert len(parts(out)) == 2
        assert ftfile.flush(out).files == 4
        assert rows_of(out) == ROWS
        check_directory(open_filesystem(out))

    @pytest.mark.slow
    def test_between_a_record_and_its_files_deletes_none_of_them(self) -> None:
        """The record exists, and its parts are still staged: after any failure, the next commit publishes them."""

        class Stuck(WrapperFileSystem):
            def rename(self, source: str, target: str) -> None:
                if source.endswith(".staged") and query.query_id not in source:
                    raise OutOfSpace("rename", source, "for files of the compaction")
                super().rename(source, target)

        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = written(url)
        with mounted(Stuck(inner)) as url, pytest.raises(NotPublished):
            ftfile.compact(url, context=current())
        with mounted(inner) as url:
            ftfile.compact(url, context=current())
            assert rows_of(url) == ROWS
            check_directory(open_filesystem(url))


class TestProgress:
    @pytest.mark.slow
    def test_of_files_and_bytes(self, out: str) -> None:
        written(out)
        told: list[Progress] = []
        ftfile.compact(out, progress=told.append, context=current())
        assert [(each.done, each.total) for each in told] == [(3 * number, 18) for number in range(1, 7)]
        assert told[-1].done_bytes == told[-1].total_bytes > 0
        assert {each.operation for each in told} == {"compact"}
        ftfile.open(out).verify(full=True, threads=1, progress=told.append)
        assert (told[-1].operation, told[-1].done, told[-1].total) == ("verify", 6, 6)

    @pytest.mark.slow
    def test_of_a_flush(self, out: str) -> None:
        written(out, rolling="policy")
        told: list[Progress] = []
        ftfile.flush(out, progress=told.append, context=current())
        assert [(each.done, each.total) for each in told] == [(3 * number, 18) for number in range(1, 7)]
        assert told[-1].done_bytes == told[-1].total_bytes > 0

    def test_time_left(self) -> None:
        assert (
            Progress(operation="compact", done=0, total=4, done_bytes=0, total_bytes=100, elapsed_s=5.0).left_s is None
        )
        assert (
            Progress(operation="compact", done=1, total=4, done_bytes=25, total_bytes=100, elapsed_s=5.0).left_s == 15.0
        )

    @pytest.mark.slow
    def test_lines_of_the_log(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        written(out)
        clock = ManualClock()
        caplog.set_level(logging.INFO, "ftfile")
        with repeatable(clock):
            ftfile.compact(out, progress=lambda _: clock.advance(6), context=current())
        lines = [line for line in caplog.messages if " files, " in line]
        assert [line.partition("] ")[2] for line in lines] == [
            "compact: 9 of 18 files, 0 of 0 MB, about 12 s left",
            "compact: 15 of 18 files, 0 of 0 MB, about 5 s left",
        ]


class Sizes(WrapperFileSystem):
    """Notes how much is read at once of parts."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.largest = 0

    def read(self, path: str, bytes_max: int | None = None) -> bytes:
        return self.note(path, super().read(path, bytes_max))

    def open(self, path: str) -> InputFile:
        return _SizedFile(super().open(path), self)

    def note(self, path: str, data: bytes) -> bytes:
        if "part-" in path or path.endswith(".staged"):
            self.largest = max(self.largest, len(data))
        return data


class _SizedFile(WrapperFile):
    def __init__(self, inner: InputFile, owner: Sizes) -> None:
        super().__init__(inner, owner)
        self._notes = owner

    def read_at(self, offset: int, length: int) -> bytes:
        return self._notes.note(self.path, super().read_at(offset, length))


class TestMemory:
    @pytest.mark.slow
    @pytest.mark.parametrize("file_format", ["parquet", "json"])
    def test_large_parts_pass_in_pieces(self, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each part has several row groups; neither it nor the new one is in memory as a whole."""
        monkeypatch.setattr(reader, "WHOLE_BYTES", 1 << 14)
        monkeypatch.setattr("ftfile.log.places.PIECE_BYTES", 1 << 15)
        monkeypatch.setattr("ftfile.formats.line_formats._BLOCK_BYTES", 1 << 15)
        monkeypatch.setattr("ftfile.filters.decoded._READ_BYTES", 1 << 15)
        monkeypatch.setattr("ftfile.formats.parquet_files._SPAN_BYTES", 1 << 16)
        monkeypatch.setattr(CollectingEncoder, "group_rows_max", 1000)
        inner = CrashingFileSystem()
        draw = random.Random(1)
        values = [draw.randbytes(16).hex() for _ in range(18_000)]
        with mounted(inner) as url:
            query = MicroBatch(url, {"value": "string"}, {"fileFormat": file_format})
            for batch in range(2):
                query.run(batch, [[{"value": value} for value in values]])
            length = min(file.size_bytes for file in ftfile.open(url).files())
        sizes = Sizes(inner)
        with mounted(sizes) as url:
            assert ftfile.compact(url, context=current()).files_written == 1
        assert sizes.largest < length / 2
        with mounted(inner) as url:
            assert ftfile.open(url).to_arrow()["value"].to_pylist() == 2 * values

    @pytest.mark.slow
    def test_a_large_part_that_was_changed_is_not_merged(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "WHOLE_BYTES", 1)
        for number, (file_format, found, put) in enumerate((("json", b"1", b"7"), ("parquet", b"-arrow", b"-Arrow"))):
            path = f"{out}-{number}"
            written(path, "a", fileFormat=file_format)
            changed = parts(path)[1]
            assert found in changed.read_bytes()
            changed.write_bytes(changed.read_bytes().replace(found, put))
            with pytest.raises(CorruptData, match=changed.name):
                ftfile.compact(path, context=current())
            assert len(parts(path)) == 3
