"""Compaction of finished parts."""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, NameCollision, NotPublished, OutOfSpace, Unavailable
from ftfile.log.format import layout
from ftfile.log.format.model import Add, Origin
from ftfile.operate.compact import groups_to_merge
from ftfile.operate.rewriting import RewriteReport
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import SeededIds, current, open_filesystem, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.stage import OpenPart
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from ftfile.storage.api import Capabilities

COLUMNS = {"id": "long", "word": "string"}


def rows(first: int, count: int = 2) -> list[dict[str, Any]]:
    return [{"id": number, "word": f"w{number}"} for number in range(first, first + count)]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def written(out: str, batches: int = 3, **options: str) -> MicroBatch:
    query = MicroBatch(out, COLUMNS, {"fileFormat": "json"} | options)
    for batch in range(batches):
        query.run(batch, [rows(2 * batch)])
    return query


def read(out: str, version: int | None = None) -> list[dict[str, Any]]:
    return sorted(ftfile.open(out).to_arrow(version).to_pylist(), key=lambda row: row["id"])


def parts(out: str) -> list[Path]:
    return sorted(path for path in Path(out).rglob("part-*") if "_ftfile" not in path.parts)


def parts_of(out: str) -> list[Path]:
    return sorted(path for path in Path(out).iterdir() if path.is_file())


def check(out: str) -> None:
    report = check_directory(open_filesystem(out))
    assert report.live_rows == report.visible_rows


class TestParts:
    def test_small_ones_become_one_with_the_same_rows_in_their_order(self, out: str) -> None:
        written(out)
        before = b"".join(path.read_bytes() for path in parts(out))
        report = ftfile.compact(out, context=current())
        (part,) = parts(out)
        assert part.read_bytes() == before
        assert report == RewriteReport(
            version=3,
            files_removed=3,
            files_written=1,
            rows=6,
            bytes_removed=len(before),
            bytes_written=len(before),
            records=1,
        )
        check(out)

    @pytest.mark.slow
    def test_every_version_has_the_rows_it_had(self, out: str) -> None:
        written(out)
        ftfile.compact(out, context=current())
        assert [len(read(out, version)) for version in range(4)] == [2, 4, 6, 6]
        assert read(out, 3) == read(out, 2) == rows(0, 6)

    @pytest.mark.slow
    def test_the_name_sorts_where_the_first_of_them_was(self, out: str) -> None:
        written(out)
        ftfile.compact(out, context=current())
        MicroBatch(out, COLUMNS, {"fileFormat": "json"}).run(3, [rows(6)])
        ftfile.compact(out, context=current())
        (part,) = parts(out)
        assert part.name.startswith("part-0000000000-00000-")
        assert len(part.name) == len("part-0000000000-00000-123456789012.json")
        assert [json.loads(line)["id"] for line in part.read_text().splitlines()] == list(range(8))

    @pytest.mark.slow
    def test_they_grow_to_about_the_target_and_large_ones_are_left_alone(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        for batch in range(10):
            query.run(batch, [rows(10 + 2 * batch)])
        size = parts(out)[0].stat().st_size
        report = ftfile.compact(out, target_bytes=4 * size, context=current())
        assert (report.files_removed, report.files_written) == (10, 3)
        assert sorted(path.stat().st_size // size for path in parts(out)) == [2, 4, 4]
        assert ftfile.compact(out, target_bytes=4 * size, context=current()).version is None
        assert read(out) == rows(10, 20)

    @pytest.mark.slow
    def test_memory_is_bounded_by_the_target_however_much_is_merged(self, out: str) -> None:
        target, merges = 1 << 20, 24
        query = MicroBatch(out, {"value": "string"}, {"fileFormat": "text"})
        for batch in range(4 * merges):
            query.run(batch, [[{"value": f"{batch:04}" + "x" * (target // 32 - 5)}] * 8])
        tracemalloc.start()
        try:
            report = ftfile.compact(out, target_bytes=target, context=current())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert report.files_written == merges
        assert peak < merges * target // 2

    def test_a_single_part_is_left_alone(self, out: str) -> None:
        written(out, 1)
        assert ftfile.compact(out, context=current()) == RewriteReport()
        assert ftfile.open(out).version() == 0

    @pytest.mark.slow
    def test_each_directory_for_itself(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "word"})
        for batch in range(3):
            query.run(batch, [[{"id": batch, "word": word} for word in ("a", "b")]])
        assert ftfile.compact(out, where={"word": "a"}, context=current()).files_removed == 3
        assert [path.parent.name for path in parts(out)] == ["word=a", "word=b", "word=b", "word=b"]
        assert ftfile.compact(out, context=current()).files_removed == 3
        assert len(read(out)) == 6
        check(out)

    @pytest.mark.slow
    def test_parts_of_several_writers_are_merged(self, out: str) -> None:
        query = written(out, 2)
        query.run_batch_write("job", [rows(4)])
        assert ftfile.compact(out, context=current()).files_removed == 3
        (file,) = ftfile.open(out).files()
        assert file.operation_id == ftfile.open(out).history()[-1].operation_id
        assert read(out) == rows(0, 6)

    def test_of_one_writer_the_batches_are_told(self, out: str) -> None:
        query = written(out)
        ftfile.compact(out, context=current())
        (add,) = ftfile.open(out).snapshot().adds.values()
        assert (add.origin.query_id, add.origin.first_batch, add.origin.last_batch) == (query.query_id, 0, 2)

    @parametrize(
        "options",
        [
            {"fileFormat": "parquet"},
            {"fileFormat": "parquet", "compression": "gzip", "compressionLevel": "9"},
            {"fileFormat": "json", "ignoreNullFields": "false", "lineSep": "\r\n"},
            {"fileFormat": "csv", "header": "true", "quoteAll": "true", "sep": ";"},
            {"fileFormat": "csv", "nullValue": "-", "escape": '"', "lineSep": "\r\n"},
        ],
        ids=["parquet", "gzip", "json", "csv with a header", "csv with escapes"],
        quick=1,
    )
    def test_every_format_with_its_options(self, out: str, options: dict[str, str]) -> None:
        values: list[dict[str, Any]] = [
            *({"id": 1, "word": "a"}, {"id": 2, "word": None}, {"id": 3, "word": ""}),
            *({"id": 4, "word": 'q"u;o,te\\'}, {"id": 5, "word": "é\n2"}, {"id": 6, "word": "-"}),
        ]
        query = MicroBatch(out, COLUMNS, options)
        for batch, row in enumerate(values[: 5 if "nullValue" in options else 6]):
            query.run(batch, [[row]])
        before, extension = read(out), query.config().format.extension
        contents = [path.read_bytes() for path in parts(out)]
        ftfile.compact(out, context=current())
        (part,) = parts(out)
        assert part.name.endswith(extension)
        assert read(out) == before
        if options["fileFormat"] == "parquet":
            assert pq.ParquetFile(part).metadata.row_group(0).num_rows == len(before)
            codec = pq.ParquetFile(part).metadata.row_group(0).column(0).compression
            assert codec == options.get("compression", "zstd").upper()
        else:
            head = contents[0].index(b"\n") + 1 if "header" in options else 0
            assert part.read_bytes() == contents[0][:head] + b"".join(content[head:] for content in contents)

    @pytest.mark.slow
    def test_what_is_open_stays_open_and_what_was_rolled_is_merged(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "rolling": "policy", "maxRecordsPerFile": "3"})
        for batch in range(4):
            query.run(batch, [rows(2 * batch)])
        before = read(out)
        opened = [add for add in ftfile.open(out).snapshot().adds.values() if add.kind == "segment"]
        report = ftfile.compact(out, context=current())
        assert report.files_removed > 1
        assert report.files_written == 1
        after = ftfile.open(out).snapshot().adds.values()
        assert [add for add in after if add.kind == "segment"] == opened
        ftfile.flush(out, context=current())
        MicroBatch(out, COLUMNS, {"fileFormat": "json"}, "q", attempts=1).run_batch_write("job", [rows(8)])
        assert ftfile.compact(out, context=current()).files_removed == 3
        assert read(out) == [*before, *rows(8)]

    @pytest.mark.slow
    def test_text(self, out: str) -> None:
        query = MicroBatch(out, {"line": "string"}, {"fileFormat": "text"})
        for batch, line in enumerate(["a", "", None, "b"]):
            query.run(batch, [[{"line": line}]])
        ftfile.compact(out, context=current())
        assert [path.read_text() for path in parts(out)] == ["a\n\n\nb\n"]

    @pytest.mark.slow
    def test_columns_that_the_newest_schema_no_longer_has_are_kept(self, out: str) -> None:
        for file_format in ("json", "parquet"):
            path = f"{out}-{file_format}"
            written(path, 2, fileFormat=file_format)
            query = MicroBatch(path, {"id": "long"}, {"fileFormat": file_format, "onSchemaChange": "any"})
            for batch in (2, 3):
                query.run(batch, [[{"id": batch}]])
            assert (ftfile.compact(path, context=current()).files_removed, len(parts(path))) == (4, 2)
            old, new = parts(path)
            if file_format == "json":
                assert json.loads(old.read_text().splitlines()[0]) == {"id": 0, "word": "w0"}
            else:
                assert [pq.read_schema(part).names for part in (old, new)] == [["id", "word"], ["id"]]

    @pytest.mark.slow
    def test_parts_of_other_encodings_are_not_mixed(self, out: str) -> None:
        written(out, 2)
        query = MicroBatch(out, COLUMNS, {"fileFormat": "csv", "header": "true", "onFormatChange": "accept"})
        for batch in (2, 3):
            query.run(batch, [rows(2 * batch)])
        assert ftfile.compact(out, context=current()).files_written == 2
        assert sorted(path.suffix for path in parts(out)) == [".csv", ".json"]
        assert read(out) == rows(0, 8)


class TestNames:
    """If names may repeat, the new part's name is longer than its first part's name. Too long names are cut."""

    LONG = "tests.unit.writing.files.user_code:long_numbered"

    def query(self, out: str, name: str = LONG, **options: str) -> MicroBatch:
        options = {"fileFormat": "json", "partFileName": name, "ifExists": "fail"} | options
        return MicroBatch(out, {"id": "long", "name": "string"}, options)

    def row(self, number: int, name: str = "") -> dict[str, Any]:
        return {"id": number, "name": name}

    def in_order(self, out: str) -> list[int]:
        """Return the rows as a plain reader finds them in sorted files."""
        return [json.loads(line)["id"] for path in parts_of(out) for line in path.read_text().splitlines()]

    @pytest.mark.slow
    def test_that_are_long_are_cut(self, out: str) -> None:
        query = self.query(out)
        for batch in range(5):
            query.run(batch, [[self.row(batch)]])
        assert len(parts_of(out)[0].name) == 246
        assert ftfile.compact(out, context=current()).files_written == 1
        (part,) = parts_of(out)
        assert len(part.name) == 255
        assert part.name.endswith(".json")
        assert self.in_order(out) == [0, 1, 2, 3, 4]
        check(out)
        query.run(5, [[self.row(5)]])
        assert ftfile.compact(out, context=current()).files_written == 1
        assert self.in_order(out) == [0, 1, 2, 3, 4, 5]
        check(out)

    def test_that_are_not_too_long_are_not_cut(self, out: str) -> None:
        query = self.query(out, "{name}.{number}{ext}", fileNameColumn="name")
        for batch in range(2):
            query.run(batch, [[self.row(batch, "n" * 224)]])
        ftfile.compact(out, context=current())
        (part,) = parts_of(out)
        assert part.name.startswith(f"{'n' * 224}.0-")

    @parametrize(
        ("sizes", "written"),
        [([1] * 6, 3), ([1] * 6 + [9], 3), ([9] + [1] * 6, 3), ([9, 9] + [1] * 4, 2)],
        ids=str,
        quick=1,
    )
    def test_that_are_cut_keep_the_order_of_parts(self, out: str, sizes: list[int], written: int) -> None:
        query = self.query(out)
        for batch, size in enumerate(sizes):
            query.run(batch, [[self.row(10 + batch)] * size])
        small = min(path.stat().st_size for path in parts_of(out))
        rows_before = self.in_order(out)
        assert ftfile.compact(out, target_bytes=2 * small, context=current()).files_written == written
        assert self.in_order(out) == rows_before
        for batch in range(len(sizes), len(sizes) + 4):
            query.run(batch, [[self.row(10 + batch)]])
        if max(sizes) > 1 and sizes[-1] == 1:
            assert ftfile.compact(out, target_bytes=2 * small, context=current()).files_written == 2
            assert self.in_order(out) == [*rows_before, *range(10 + len(sizes), 14 + len(sizes))]
        check(out)

    def test_that_no_storage_keeps_leave_a_directory_as_it_is(self) -> None:
        class Short(WrapperFileSystem):
            @property
            def capabilities(self) -> Capabilities:
                return replace(self.inner.capabilities, path_bytes_max=140)

        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = self.query(url, "{name}.{number}{ext}", fileNameColumn="name")
            for batch in range(2):
                query.run(batch, [[self.row(batch, f"{'d' * 125}/a"), self.row(batch, "b")]])
        with mounted(Short(inner)) as url, pytest.raises(ConfigError, match=r"d/a\.0\.json' on cannot be merged"):
            ftfile.compact(url, context=current())
        with mounted(inner) as url:
            assert check_directory(open_filesystem(url)).live_rows.total() == 4
            assert len(ftfile.open(url).files()) == 3

    @pytest.mark.slow
    def test_of_very_many_parts_are_planned_at_once(self) -> None:
        add = Add("id", "part", "p", "f", 10, 10, "c", 1, "", "e", Origin("q", 0, 0))
        started_s = time.monotonic()
        assert [len(group) for group in groups_to_merge([add] * 200_000, 1 << 30)] == [200_000]
        assert time.monotonic() - started_s < 300


class TestRaces:
    """Another driver commits between the listing of the directory and the record."""

    def race(self, inner: CrashingFileSystem, what: Any, **more: Any) -> RewriteReport:
        class Rival(WrapperFileSystem):
            armed = True

            def create_exclusive(self, path: str, content: bytes) -> None:
                if path.endswith(".record") and self.armed:
                    self.armed = False
                    what()
                super().create_exclusive(path, content)

        with mounted(Rival(inner)) as raced:
            return ftfile.compact(raced, **more, context=current())

    def check(self, url: str, ids: list[int]) -> None:
        report = check_directory(open_filesystem(url))
        assert report.live_rows == report.visible_rows
        assert sorted(ftfile.open(url).to_arrow()["id"].to_pylist()) == ids

    def test_an_append_goes_in_between(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = written(url)
            assert self.race(inner, lambda: query.run(3, [rows(6)])).files_removed == 3
            self.check(url, list(range(8)))

    def test_an_overwrite_wins(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            written(url)
            rival = MicroBatch(url, COLUMNS, {"fileFormat": "json"}, overwrite=True)
            report = self.race(inner, lambda: rival.run_batch_write("job", [rows(9)]))
            assert report == RewriteReport(files_lost=3)
            self.check(url, [9, 10])
            assert ftfile.open(url).version() == 3

    def test_of_two_compactions_one_wins(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            written(url)
            assert self.race(inner, lambda: ftfile.compact(url, context=current())) == RewriteReport(files_lost=3)
            self.check(url, list(range(6)))

    def test_what_a_drop_took_is_left_out_and_the_rest_is_merged(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = MicroBatch(url, COLUMNS, {"fileFormat": "json", "partitionBy": "word"})
            for batch in range(2):
                query.run(batch, [[{"id": batch, "word": word} for word in ("a", "b")]])
            report = self.race(inner, lambda: ftfile.drop(url, where={"word": "a"}, context=current()))
            assert (report.files_removed, report.files_written, report.files_lost) == (2, 1, 2)
            self.check(url, [0, 1])


class TestDamage:
    """A part that cannot be merged is named, and the other parts are merged."""

    def damage(self, path: Path) -> None:
        path.write_bytes(path.read_bytes().replace(b"w", b"v"))

    @pytest.mark.slow
    def test_of_a_part_leaves_those_before_and_after_it(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        written(out, 6)
        damaged = parts(out)[2]
        self.damage(damaged)
        with pytest.raises(CorruptData, match=damaged.name):
            ftfile.compact(out, context=current())
        assert f"'{damaged.name}' is not changed" in caplog.text
        assert [len(path.read_text().splitlines()) for path in parts(out)] == [4, 2, 6]
        assert damaged in parts(out)

    @pytest.mark.slow
    def test_of_several_parts(self, out: str) -> None:
        written(out, 9)
        for number in (0, 4, 8):
            self.damage(parts(out)[number])
        with pytest.raises(CorruptData, match=parts(out)[0].name):
            ftfile.compact(out, context=current())
        assert [len(path.read_text().splitlines()) for path in parts(out)] == [2, 6, 2, 6, 2]

    def test_in_one_directory_leaves_the_others(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "word"})
        for batch in range(2):
            query.run(batch, [[{"id": batch, "word": word} for word in "abc"]])
        first = parts(out)[0]
        first.write_text("{}\n")
        with pytest.raises(CorruptData, match=first.name):
            ftfile.compact(out, context=current())
        assert [path.parent.name[-1] for path in parts(out)] == ["a", "a", "b", "c"]

    def test_of_a_file_that_is_gone(self, out: str) -> None:
        written(out, 4)
        parts(out)[3].unlink()
        with pytest.raises(CorruptData, match="neither staged nor published"):
            ftfile.compact(out, context=current())
        assert [len(path.read_text().splitlines()) for path in parts(out)] == [6]

    def test_of_what_is_written_leaves_the_others(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        honest = OpenPart.write

        def wrong(part: OpenPart, batch: pa.RecordBatch, limit: int | None) -> int:
            shift = 1 if part.directory_key == "word=a" else 0
            return honest(part, batch.set_column(0, "id", pc.add(batch["id"], shift)), limit)

        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "word"})
        for batch in range(2):
            query.run(batch, [[{"id": batch, "word": word} for word in "ab"]])
        with monkeypatch.context() as patched:
            patched.setattr(OpenPart, "write", wrong)
            with pytest.raises(CorruptData, match="other rows"):
                ftfile.compact(out, context=current())
        assert [path.parent.name[-1] for path in parts(out)] == ["a", "a", "b"]
        assert not [*Path(out, "_ftfile/staged").rglob("*.staged")]
        check(out)


class TestFailures:
    # pyarrow ignores the name of the writer in a Parquet file, so readers would not detect this change.
    @pytest.mark.parametrize(
        ("file_format", "found", "put"), [("json", b"w2", b"w9"), ("parquet", b"-arrow", b"-Arrow")]
    )
    def test_a_part_that_was_changed_is_an_error_that_names_it(
        self, out: str, file_format: str, found: bytes, put: bytes
    ) -> None:
        written(out, fileFormat=file_format)
        changed = parts(out)[1]
        assert found in changed.read_bytes()
        changed.write_bytes(changed.read_bytes().replace(found, put))
        with pytest.raises(CorruptData, match=changed.name):
            ftfile.compact(out, context=current())
        assert len(parts(out)) == 3
        assert ftfile.open(out).version() == 2

    def test_rows_that_do_not_come_back_are_an_error(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """An error of an encoder is detected before the compaction replaces the correct parts."""
        honest = OpenPart.write

        def wrong(part: OpenPart, batch: pa.RecordBatch, limit: int | None) -> int:
            return honest(part, batch.set_column(0, "id", pc.add(batch["id"], 1)), limit)

        written(out)
        with monkeypatch.context() as patched:
            patched.setattr(OpenPart, "write", wrong)
            with pytest.raises(CorruptData, match="other rows"):
                ftfile.compact(out, context=current())
        assert read(out) == rows(0, 6)
        assert len(parts(out)) == 3

    def test_what_was_written_is_removed_when_it_fails(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            query = MicroBatch(url, COLUMNS, {"fileFormat": "json", "partitionBy": "word"})
            for batch in range(2):
                query.run(batch, [[{"id": batch, "word": word} for word in ("a", "b")]])
        full = Fault(OutOfSpace, operations=frozenset({"create"}), path="*.staged", at=2)
        with mounted(FaultyFileSystem(inner, [full])) as url, pytest.raises(OutOfSpace):
            ftfile.compact(url, context=current())
        with mounted(inner) as url:
            check_directory(open_filesystem(url))
        staged = [path for path in inner.journal if path.kind == "create" and path.path.endswith(".staged")]
        assert not inner.exists(staged[-1].path)

    def test_what_an_earlier_one_could_not_finish_is_finished(self) -> None:
        inner = CrashingFileSystem()
        with mounted(inner) as url:
            written(url)
        # The operation draws its id first. The parts that it has read are hidden before its new part is moved.
        stage = layout.staged_directory(SeededIds().unique())
        stuck = Fault(Unavailable, operations=frozenset({"rename"}), path=f"{stage}/*", times=10**9)
        with repeatable(), mounted(FaultyFileSystem(inner, [stuck])) as url, pytest.raises(NotPublished):
            ftfile.compact(url, context=current())
        with mounted(inner) as url:
            assert not check_directory(open_filesystem(url)).visible_rows
            assert ftfile.compact(url, context=current()) == RewriteReport()
            assert sum(check_directory(open_filesystem(url)).visible_rows.values()) == 6

    @pytest.mark.slow
    def test_a_part_that_cannot_be_published_is_left_out(self, out: str) -> None:
        query = written(out)
        messages = query.run_tasks(3, [rows(6)])
        blocked = Path(out, f"part-0000000003-00000-{messages[0].parts[0].id[:12]}.json")
        blocked.write_text("foreign")
        with pytest.raises(NameCollision):
            query.commit(3, messages)
        assert ftfile.compact(out, context=current()).files_removed == 3
        blocked.unlink()
        query.run(4, [rows(8)])
        assert ftfile.compact(out, context=current()).files_removed == 3
        assert read(out) == rows(0, 10)

    def test_arguments(self, out: str) -> None:
        with pytest.raises(ConfigError, match="is not an ftfile directory"):
            ftfile.compact(out, context=current())
        written(out)
        with pytest.raises(ConfigError, match="target_bytes=0"):
            ftfile.compact(out, target_bytes=0, context=current())
        with pytest.raises(ConfigError, match="not one of the partition columns"):
            ftfile.compact(out, where={"word": "a"}, context=current())
