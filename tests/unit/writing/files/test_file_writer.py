"""The sink without a JVM: files, names, limits, refusals."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import random
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData, InvalidMessages, ReplayMismatch, SchemaError, UnknownQuery
from ftfile.log.commit_log import CommitLog
from ftfile.rows.spark_types import arrow_schema
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import MicroBatch, spark_schema
from ftfile.writing.bad_records import raise_fault
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files import part_writer as parts
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.files.part_writer import EncodableRows
from ftfile.writing.messages import OperationIdentity, StreamIdentity, TaskIdentity
from ftfile.writing.stage import Stage
from ftfile.writing.task import write_task

COLUMNS = {"id": "long", "word": "string"}
ROWS: list[dict[str, Any]] = [{"id": 1, "word": "a"}, {"id": 2, "word": None}]


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture
def query(out: str) -> MicroBatch:
    return MicroBatch(out, COLUMNS, {"fileFormat": "json"})


def rows_of(path: str) -> list[dict[str, Any]]:
    return sorted(ftfile.open(path).to_arrow().to_pylist(), key=lambda row: row["id"])


def visible(path: str) -> list[str]:
    return sorted(
        str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file() and "_ftfile" not in file.parts
    )


class TestFiles:
    def test_names_say_batch_and_number_and_are_unique(self, query: MicroBatch, out: str) -> None:
        query.run(0, [ROWS, [], ROWS[:1]])
        first, second = visible(out)
        assert first.startswith("part-0000000000-00000-")
        assert second.startswith("part-0000000000-00001-")
        assert second.endswith(".json")

    def test_a_task_without_rows_writes_no_file(self, query: MicroBatch, out: str) -> None:
        query.run(0, [[], []])
        assert visible(out) == []
        assert rows_of(out) == []

    def test_partition_columns_are_in_the_path_and_not_in_the_file(self, out: str) -> None:
        MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "word"}).run(0, [ROWS])
        assert [name.split("/")[0] for name in visible(out)] == ["word=__HIVE_DEFAULT_PARTITION__", "word=a"]
        assert {Path(out, name).read_text() for name in visible(out)} == {'{"id":1}\n', '{"id":2}\n'}
        assert rows_of(out) == ROWS

    def test_a_partition_column_that_begins_with_an_underscore_is_not_overlooked(self, out: str) -> None:
        options = {"fileFormat": "parquet", "partitionBy": "_word"}
        MicroBatch(out, {"id": "long", "_word": "string"}, options).run(0, [[{"id": 1, "_word": "a"}]])
        assert pd.read_parquet(out).to_dict("records") == [{"id": 1, "_word": "a"}]
        assert ftfile.open(out).to_arrow().to_pylist() == [{"id": 1, "_word": "a"}]

    @pytest.mark.slow
    def test_parts_hold_no_more_in_memory_than_one_may(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parts, "ROUTE_ROWS", 1_000)
        options = {"path": out, "partitionBy": "id", "maxOpenBytes": "100000"}
        config = SinkConfig.from_options(options, spark_schema(COLUMNS))
        identity = TaskIdentity(OperationIdentity("job"), 0, 0)
        stage = Stage(open_filesystem(out), identity)
        encodable = EncodableRows(config, raise_fault)
        writer = parts.PartWriter(config, config.directories.router(raise_fault, 0), stage, encodable)
        words = random.Random(0).randbytes(100_000).hex()
        for number in range(20):
            rows = [{"id": n % 50, "word": words[50 * n : 50 * n + 200]} for n in range(number, number + 1_000)]
            writer.write(pa.RecordBatch.from_pylist(rows, schema=config.schema))
            assert 0 < writer.buffered_bytes <= 100_000
        writer.finish()

    def test_a_stage_that_is_taken_away_meanwhile_is_made_again(self, tmp_path: Path) -> None:
        class Cleared(WrapperFileSystem):
            times = 2

            def make_directories(self, path: str) -> None:
                super().make_directories(path)
                if self.times:
                    self.times -= 1
                    self.remove_directory(path)

        stage = Stage(Cleared(open_filesystem(str(tmp_path))), TaskIdentity(OperationIdentity("job"), 0, 0))
        config = SinkConfig.from_options({"path": str(tmp_path)}, spark_schema(COLUMNS))
        stage.finish(stage.open("", config.format, config.schema, config.chain))
        assert Path(tmp_path, stage.finished[0].path).exists()

    @pytest.mark.slow
    def test_many_directories_are_all_written_with_few_files_open(self, out: str) -> None:
        rows = [{"id": n, "word": f"w{n % 300}"} for n in range(900)]
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "partitionBy": "word"})
        open_before = len(list(Path("/proc/self/fd").iterdir()))
        query.run(0, [rows])
        assert rows_of(out) == rows
        assert len(visible(out)) == 300
        assert len(list(Path("/proc/self/fd").iterdir())) <= open_before

    @pytest.mark.parametrize("file_format", ["json", "csv", "parquet"])
    def test_max_records(self, out: str, file_format: str) -> None:
        options = {"fileFormat": file_format, "maxRecordsPerFile": "3"}
        MicroBatch(out, COLUMNS, options).run(0, [[{"id": n, "word": "x"} for n in range(8)]])
        assert [file.rows for file in ftfile.open(out).files()] == [3, 3, 2]

    def test_max_bytes_closes_after_the_record_that_reaches_it(self, out: str) -> None:
        line = len('{"id":0,"word":"x"}\n')
        for limit, expected in ((2 * line, [2, 2, 1]), (2 * line + 1, [3, 2]), (1, [1] * 5)):
            path = f"{out}-{limit}"
            options = {"fileFormat": "json", "maxBytesPerFile": str(limit)}
            MicroBatch(path, COLUMNS, options).run(0, [[{"id": n, "word": "x"} for n in range(5)]])
            assert [file.rows for file in ftfile.open(path).files()] == expected

    def test_the_umask_is_honoured(self, query: MicroBatch, out: str) -> None:
        before = os.umask(0o027)
        try:
            query.run(0, [ROWS])
        finally:
            os.umask(before)
        mode = stat.S_IMODE(Path(out, visible(out)[0]).stat().st_mode)
        assert mode == 0o640

    def test_a_batch_write_is_a_commit_of_its_own(self, query: MicroBatch, out: str) -> None:
        query.run_batch_write("a" * 32, [ROWS])
        query.run_batch_write("b" * 32, [ROWS])
        assert [version.operation for version in ftfile.open(out).history()] == ["batch", "batch"]
        assert visible(out)[0].startswith("part-waaaaaaaaaaaa-00000-")

    def test_a_failing_attempt_removes_its_files(self, query: MicroBatch, out: str) -> None:
        def failing() -> Any:
            yield pa.RecordBatch.from_pylist(ROWS, schema=query.config().schema)
            raise RuntimeError("source")

        from ftfile.writing.messages import StreamIdentity, TaskIdentity

        with pytest.raises(RuntimeError):
            write_task(
                pickle.loads(query.pickled_plan()),
                TaskIdentity(StreamIdentity("q", "r", 0), 0, 0),
                failing(),
                current(),
            )
        assert not list(Path(out).rglob("*.staged"))


class TestReplay:
    def test_otherwise_partitioned(self, query: MicroBatch, out: str) -> None:
        query.run(0, [ROWS])
        query.restart()
        assert query.run(0, [[ROWS[1]], [], [ROWS[0]]]).replayed
        assert rows_of(out) == ROWS

    def test_tasks_of_a_committed_batch_write_nothing(self, query: MicroBatch) -> None:
        query.run(0, [ROWS])
        query.restart()
        assert [message.parts for message in query.run_tasks(0, [ROWS, ROWS])] == [(), ()]

    def test_tasks_notice_a_commit_after_the_plan(self, query: MicroBatch) -> None:
        """An orphaned driver commits the batch while the tasks of the new driver begin."""
        from ftfile.writing.messages import StreamIdentity

        planned = query.pickled_plan()
        query.run(0, [ROWS])
        identity = StreamIdentity(query.query_id, "run-2", 0)
        assert query.run_task(planned, identity, 0, ROWS, attempt=1).found_committed
        first = query.run_task(planned, identity, 0, ROWS)
        assert len(first.parts) == 1
        assert query.commit(0, [first]).replayed

    @pytest.mark.parametrize("other", [ROWS[:1], [*ROWS, ROWS[0]], [{"id": 1, "word": "b"}, ROWS[1]]])
    def test_other_rows(self, query: MicroBatch, out: str, other: list[dict[str, Any]]) -> None:
        query.run(0, [ROWS])
        query.restart()
        with pytest.raises(ReplayMismatch):
            query.run(0, [other])
        assert rows_of(out) == ROWS

    def test_values_that_changed_rows_are_seen_by_the_strong_fingerprint(self, query: MicroBatch) -> None:
        swapped: list[dict[str, Any]] = [{"id": 1, "word": None}, {"id": 2, "word": "a"}]
        query.run(0, [ROWS])
        query.restart()
        with pytest.raises(ReplayMismatch):
            query.run(0, [swapped])
        assert query.run(0, [list(reversed(ROWS))]).replayed

    def test_rows_that_only_sum_up_alike_are_refused(self, query: MicroBatch, out: str) -> None:
        """Where the checkpoint is not known, only strong fingerprints prove anything."""
        query.run(0, [[{"id": 1, "word": "order-0021"}, {"id": 2, "word": "order-0005"}]])
        query.restart()
        with pytest.raises(ReplayMismatch):
            query.run(0, [[{"id": 1, "word": "order-0012"}, {"id": 2, "word": "order-0500"}]])
        assert [row["word"] for row in rows_of(out)] == ["order-0021", "order-0005"]

    def test_the_content_fingerprint_alone_proves_nothing(self, out: str, tmp_path: Path) -> None:
        """The offsets of the batch can no longer be read when it is repeated."""
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"}, checkpoint=str(tmp_path / "checkpoint"))
        query.run(0, [ROWS])
        query.restart()
        messages = query.run_tasks(0, [ROWS])
        (tmp_path / "checkpoint/offsets/0").unlink()
        with pytest.raises(ReplayMismatch, match="of the kind content can be equal for different rows"):
            query.commit(0, messages)

    def test_a_checkpoint_that_the_writer_receives_only_when_a_batch_is_repeated(
        self, query: MicroBatch, tmp_path: Path
    ) -> None:
        """The rows are compared as they were recorded. Later batches are compared by their offsets."""
        query.run(0, [ROWS])
        query.checkpoint = str(tmp_path / "checkpoint")
        query.restart()
        with pytest.raises(ReplayMismatch):
            query.run(0, [ROWS[:1]])
        assert query.run(0, [list(reversed(ROWS))]).replayed
        query.run(1, [ROWS])
        query.run(2, [ROWS])
        query.restart()
        assert query.run(2, [ROWS]).replayed
        log = CommitLog(open_filesystem(query.path))
        assert [self.kind_of(log, version) for version in range(3)] == ["strong", "strong", "content"]
        query.checkpoint = None
        query.restart()
        with pytest.raises(ReplayMismatch, match="the writer had a checkpointLocation then; set it for this batch"):
            query.run(2, [ROWS])

    def kind_of(self, log: CommitLog, version: int) -> str | None:
        """Return the kind of the fingerprint of a record; None if no commit compares its rows."""
        record = log.read_record(version)
        assert record is not None
        fingerprint = record.fingerprint
        if fingerprint is None:
            return None
        assert fingerprint.covers_content == (fingerprint.kind == "strong")
        return fingerprint.kind

    @pytest.mark.parametrize(
        ("options", "checkpoint", "job", "kind"),
        [
            ({}, False, False, "strong"),
            ({}, True, False, "content"),
            ({}, False, True, None),
            ({"txnAppId": "a", "txnVersion": "1"}, True, True, "strong"),
        ],
    )
    def test_which_fingerprint_is_taken(
        self, out: str, tmp_path: Path, options: dict[str, str], *, checkpoint: bool, job: bool, kind: str | None
    ) -> None:
        where = str(tmp_path / "checkpoint") if checkpoint else None
        batch = MicroBatch(out, COLUMNS, {"fileFormat": "json", **options}, checkpoint=where)
        if job:
            batch.run_batch_write("job", [ROWS])
        else:
            batch.run(0, [ROWS])
        assert self.kind_of(CommitLog(open_filesystem(out)), 0) == kind

    def test_abort_deletes_nothing(self, query: MicroBatch, out: str) -> None:
        messages = query.run_tasks(0, [ROWS])
        query.commit(0, messages)
        query.abort(0, messages)
        query.abort(0, [None])
        assert rows_of(out) == ROWS
        late = query.run_tasks(1, [ROWS])
        query.abort(1, late)
        query.commit(1, late)
        assert len(rows_of(out)) == 4


class TestOffsets:
    def checkpoint(self, tmp_path: Path, query_id: str, batch: int, text: str) -> str:
        (tmp_path / "c" / "offsets").mkdir(parents=True, exist_ok=True)
        (tmp_path / "c" / "metadata").write_text(json.dumps({"id": query_id}))
        (tmp_path / "c" / "offsets" / str(batch)).write_text(text)
        return str(tmp_path / "c")

    def test_recorded_and_compared_on_replay(self, query: MicroBatch, out: str, tmp_path: Path) -> None:
        text = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":5}\n{"logOffset":3}\n-'
        checkpoint = self.checkpoint(tmp_path, query.query_id, 0, text)
        query.options = {**query.options, "checkpointLocation": checkpoint}
        query.run(0, [ROWS])
        assert ftfile.open(out).history()[0].offsets == [{"logOffset": 3}, "-"]
        query.restart()
        assert query.run(0, [ROWS[:1]]).replayed  # the same offsets: another read of the source
        self.checkpoint(tmp_path, query.query_id, 0, text.replace("5", "6"))
        with pytest.raises(ReplayMismatch, match="offsets"):
            query.run(0, [ROWS])

    def test_a_new_query_among_others_is_refused_at_planning(self, query: MicroBatch, tmp_path: Path) -> None:
        query.run(0, [ROWS])
        checkpoint = self.checkpoint(tmp_path, "another query", 0, "v1\n{}\n1")
        query.options = {**query.options, "checkpointLocation": checkpoint}
        with pytest.raises(UnknownQuery):
            query.pickled_plan()

    @pytest.mark.slow
    def test_a_checkpoint_that_cannot_be_read_is_not_known(
        self, query: MicroBatch, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        query.options = {**query.options, "checkpointLocation": "nosuch://x/y"}
        query.run(0, [ROWS])
        assert "compared by content instead" in caplog.text
        assert ftfile.open(out).history()[0].offsets is None


class TestMessages:
    def test_a_missing_message_commits_nothing(self, query: MicroBatch, out: str) -> None:
        messages = query.run_tasks(0, [ROWS, ROWS])
        for broken in ([messages[0], None], [None], []):
            with pytest.raises(InvalidMessages):
                query.commit(0, broken)
        assert not Path(out, "_ftfile", "log").exists()

    def test_messages_of_two_batches_or_of_another_batch(self, query: MicroBatch) -> None:
        first, other = query.run_tasks(0, [ROWS]), query.run_tasks(1, [ROWS])
        with pytest.raises(InvalidMessages, match="one batch has messages of"):
            query.commit(0, first + other)
        with pytest.raises(InvalidMessages, match="batch 3 cannot be committed"):
            query.commit(3, first)

    def test_two_messages_of_one_partition(self, query: MicroBatch) -> None:
        with pytest.raises(InvalidMessages, match="two messages of one partition"):
            query.commit(0, query.run_tasks(0, [ROWS]) + query.run_tasks(0, [ROWS]))

    def test_another_version_in_an_executor(self, query: MicroBatch) -> None:
        from dataclasses import replace

        (message,) = query.run_tasks(0, [ROWS])
        assert message is not None
        with pytest.raises(InvalidMessages, match="install one version everywhere"):
            query.commit(0, [replace(message, writer_version="0.0.1")])


class TestSchema:
    def change(self, query: MicroBatch, columns: dict[str, str], policy: str) -> MicroBatch:
        query.run(0, [ROWS])
        query.restart()
        query.columns = columns
        query.options = {**query.options, "onSchemaChange": policy}
        return query

    @pytest.mark.parametrize(
        ("columns", "text"),
        [
            (
                {"id": "long"},
                r"word is missing\. Set onSchemaChange=any, or add word with null values, or write to a new",
            ),
            ({**COLUMNS, "n": "long"}, r"n is new\. Set onSchemaChange=widen or any, or write to a new"),
            (
                {"id": "string", "word": "string"},
                r"id was int64 and is string\. Cast to the recorded type, or write to a new directory",
            ),
        ],
    )
    def test_any_change_is_refused_by_default(self, query: MicroBatch, columns: dict[str, str], text: str) -> None:
        with pytest.raises(SchemaError, match=text):
            self.change(query, columns, "fail").pickled_plan()

    def test_another_order_is_no_change(self, query: MicroBatch, out: str) -> None:
        self.change(query, {"word": "string", "id": "long"}, "fail").run(1, [[{"id": 3, "word": "c"}]])
        assert rows_of(out) == [*ROWS, {"id": 3, "word": "c"}]

    @pytest.mark.slow
    def test_widen_takes_new_columns_and_wider_numbers(self, out: str) -> None:
        query = MicroBatch(out, {"id": "integer"}, {"fileFormat": "parquet", "onSchemaChange": "widen"})
        query.run(0, [[{"id": 1}]])
        query.restart()
        query.columns = {"id": "long", "new": "string"}
        query.run(1, [[{"id": 2**40, "new": "x"}]])
        assert rows_of(out) == [{"id": 1, "new": None}, {"id": 2**40, "new": "x"}]
        query.columns = {"new": "string"}
        with pytest.raises(SchemaError, match="id is missing"):
            query.pickled_plan()
        query.options = {**query.options, "onSchemaChange": "any"}
        query.run(2, [[{"new": "y"}]])
        assert sorted(row["new"] or "" for row in ftfile.open(out).to_arrow().to_pylist()) == ["", "x", "y"]

    def test_another_format_is_refused_unless_it_is_accepted(self, query: MicroBatch, out: str) -> None:
        query.run(0, [ROWS])
        query.restart()
        query.options = {"fileFormat": "parquet"}
        with pytest.raises(ConfigError, match=r"was written as json: .* Set fileFormat=json, .* onFormatChange=accept"):
            query.pickled_plan()
        query.options = {"fileFormat": "parquet", "onFormatChange": "accept"}
        query.run(1, [[{"id": 3, "word": "c"}]])
        assert rows_of(out) == [*ROWS, {"id": 3, "word": "c"}]

    def test_another_partition_by_is_refused(self, query: MicroBatch) -> None:
        query.run(0, [ROWS])
        query.options = {**query.options, "partitionBy": "word"}
        with pytest.raises(ConfigError, match="was written without partitionBy"):
            query.pickled_plan()


class TestNulls:
    """A promise of one batch about nulls does not hold for the next."""

    def columns(self, *, nullable: bool) -> str:
        items = {"type": "array", "elementType": "long", "containsNull": nullable}
        pair = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": nullable, "metadata": {}}]}
        scores = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": nullable}
        kinds = {"id": "long", "items": items, "pair": pair, "scores": scores}
        fields = [{"name": name, "type": kind, "nullable": nullable, "metadata": {}} for name, kind in kinds.items()]
        return json.dumps({"type": "struct", "fields": fields})

    @pytest.mark.parametrize("file_format", ["json", "parquet"])
    def test_a_batch_without_nulls_may_stand_beside_one_with(self, out: str, file_format: str) -> None:
        full = {"id": 1, "items": [1, 2], "pair": {"x": 1}, "scores": [("a", 1)]}
        holes = {"id": None, "items": [None], "pair": {"x": None}, "scores": [("a", None)]}
        for number, (nullable, row) in enumerate([(False, full), (True, holes), (False, full)]):
            text = self.columns(nullable=nullable)
            config = SinkConfig.from_options({"path": out, "fileFormat": file_format}, text)
            batch = pa.RecordBatch.from_pylist([row], schema=arrow_schema(text))
            plan = plan_write(FileSink(), config, current())
            message = write_task(plan, TaskIdentity(StreamIdentity("q", "r", number), 0, 0), [batch], current())
            commit_batch(plan.sink, plan.config, [message], number, current())
        table = ftfile.open(out).to_arrow()
        assert table.to_pylist() == [full, holes, full]
        assert all(field.nullable for field in table.schema)

    def test_a_single_csv_column_that_is_never_null_needs_no_null_value(self) -> None:
        for nullable in (False, True):
            column: dict[str, Any] = {"name": "id", "type": "long", "nullable": nullable, "metadata": {}}
            text = json.dumps({"type": "struct", "fields": [column]})
            with pytest.raises(SchemaError, match="set nullValue") if nullable else contextlib.nullcontext():
                SinkConfig.from_options({"path": "/x", "fileFormat": "csv"}, text)


class TestSettings:
    def config(self, columns: dict[str, Any] = COLUMNS, **options: str) -> SinkConfig:
        return SinkConfig.from_options({"path": "/x", **options}, spark_schema(columns))

    def test_keys_in_any_case(self) -> None:
        config = self.config(FILEFORMAT="JSON", PartitionBY="WORD")
        assert (config.format.name, config.directories.partition_by) == ("json", ("word",))

    def test_no_path_shows_the_working_forms(self) -> None:
        with pytest.raises(ConfigError, match=r"INSERT INTO t WITH \(path='/data/out'\)"):
            SinkConfig.from_options({}, spark_schema(COLUMNS))

    @pytest.mark.parametrize("columns", [{"id": "void"}, {"a": "long", "A": "long"}, {"id": "interval day to second"}])
    def test_columns_that_cannot_be_stored_are_refused_by_name(self, columns: dict[str, str]) -> None:
        with pytest.raises(SchemaError, match=next(iter(columns))):
            self.config(columns)

    def test_partition_by_every_column(self) -> None:
        with pytest.raises(SchemaError, match="names every column"):
            self.config(partitionBy="id,word")

    def test_a_pickled_writer_is_small(self, query: MicroBatch) -> None:
        query.run(0, [ROWS])
        assert len(query.pickled_plan()) < 8192


class TestPlaces:
    def test_a_file_in_the_way(self, query: MicroBatch, out: str) -> None:
        Path(out).write_text("x")
        with pytest.raises(ConfigError, match="is a file, not a directory: give the directory"):
            query.run(0, [ROWS])

    def test_a_directory_that_is_not_empty_is_a_warning(
        self, query: MicroBatch, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        Path(out).mkdir()
        Path(out, "foreign.json").write_text("{}")
        query.run(0, [ROWS])
        assert "1 entries that ftfile did not write" in caplog.text
        caplog.clear()
        query.run(1, [ROWS])
        assert "did not write" not in caplog.text

    def test_the_hint_that_partition_by_is_an_option(self, query: MicroBatch, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "ftfile")
        query.run(0, [ROWS])
        assert "never reaches a Python sink" in caplog.text
        assert f"[query {query.query_id} batch 0] batch 0 is committed as version 0" in caplog.text
        query.run_batch_write("job", [ROWS])
        query.run(0, [ROWS])
        assert "batch 0 was already committed as version 0; nothing was written" in caplog.text
        query.run(1, [ROWS])
        query.commit(0, query.run_tasks(0, [ROWS]))
        assert "batch 0 was already committed as version 2 or earlier; nothing was written" in caplog.text

    def test_a_directory_may_be_moved(self, query: MicroBatch, out: str, tmp_path: Path) -> None:
        query.run(0, [ROWS])
        Path(out).rename(tmp_path / "moved")
        query.path = str(tmp_path / "moved")
        query.run(1, [[{"id": 3, "word": "c"}]])
        assert len(rows_of(query.path)) == 3
        check_directory(open_filesystem(query.path))

    @pytest.mark.slow
    def test_no_permission_has_its_own_error(self, tmp_path: Path) -> None:
        assert "PermissionDenied" in run_restricted(tmp_path, "os.setgid(65534); os.setuid(65534)", mode=0o555)

    @pytest.mark.slow
    def test_a_full_disk_has_its_own_error(self, tmp_path: Path) -> None:
        limit = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
        text = run_restricted(tmp_path, limit, mode=0o777)
        assert "OutOfSpace" in text
        assert not list((tmp_path / "out").rglob("part-*"))


def run_restricted(tmp_path: Path, restriction: str, mode: int) -> str:
    """Write a batch in a separate process, under a real restriction of the kernel; return its output."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out").chmod(mode)
    for parent in [tmp_path, *tmp_path.parents][:3]:
        parent.chmod(0o755)
    code = f"""
import os, resource, signal
from ftfile.testing.micro_batch import MicroBatch
query = MicroBatch({str(tmp_path / "out")!r}, {{"word": "string"}}, {{"fileFormat": "text"}})
query.plan()
{restriction}
query.run(0, [[{{"word": "x" * 10_000}}]])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode
    return done.stderr


def test_a_damaged_file_is_an_error_that_names_it(query: MicroBatch, out: str) -> None:
    query.run(0, [ROWS])
    name = visible(out)[0]
    Path(out, name).write_text('{"id":1}\n')
    with pytest.raises(CorruptData, match=name):
        ftfile.open(out).to_arrow()


def test_the_writer_is_planned_from_the_head(query: MicroBatch) -> None:
    query.run(0, [ROWS])
    view = pickle.loads(query.pickled_plan()).view
    assert (view.version, view.last_batches) == (0, {query.query_id: 0})


def test_history_says_who_wrote(query: MicroBatch, out: str) -> None:
    query.run(0, [ROWS])
    query.run_batch_write("some-job", [ROWS])
    stream, job = ftfile.open(Path(out)).history()
    assert (stream.operation, stream.query_id, stream.batch_id, stream.operation_id) == (
        "stream",
        query.query_id,
        0,
        None,
    )
    assert (job.operation, job.query_id, job.batch_id, job.operation_id) == ("batch", None, None, "some-job")


@pytest.mark.slow
def test_without_spark_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None\nimport ftfile; ftfile.open; ftfile.FtFileDataSource"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        done.stderr.splitlines()[-1]
        == "ImportError: ftfile.FtFileDataSource needs pyspark: pip install 'ftfile[spark]'"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("3.5.9", "needs pyspark 4.0 or later, but pyspark 3.5.9 is installed: pip install 'pyspark>=4.0'"),
        ("4.9.0", "ModuleNotFoundError: No module named 'pyspark.sql'"),
    ],
)
def test_an_old_spark_is_named_in_the_error(tmp_path: Path, version: str, error: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark/__init__.py").write_text(f"__version__ = {version!r}")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport ftfile; ftfile.FtFileDataSource"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(error)


@pytest.mark.slow
def test_queries_in_threads_of_one_process(out: str) -> None:
    def run(query_id: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json", "onNewQuery": "continue"}, query_id)
        for batch in range(30):
            query.run(batch, [ROWS])

    names = ["a", "b", "c"]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(run, names))
    assert len(rows_of(out)) == 2 * 30 * len(names)
    check_directory(open_filesystem(out))


@pytest.mark.parametrize(
    ("storage", "options"),
    [
        ("within", {}),
        ("within-rolled", {"rolling": "policy"}),
        ("within-compressed", {"compression": "gzip"}),
        ("within-partitioned", {"partitionBy": "word"}),
    ],
)
def test_a_directory_within_storage_in_memory(storage: str, options: dict[str, str]) -> None:
    url = f"memory://{storage}/a/directory"
    query = MicroBatch(url, COLUMNS, {"fileFormat": "json", **options})
    for batch in range(3):
        query.run(batch, [[{"id": batch, "word": "x"}]])
    ftfile.flush(url)
    assert sorted(ftfile.open(url).to_arrow()["id"].to_pylist()) == [0, 1, 2]
    check_directory(open_filesystem(url))
    MemoryFileSystem.drop(storage)
