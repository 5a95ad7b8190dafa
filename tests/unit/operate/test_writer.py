"""`ftfile.writer`: rows and the position of their source in one commit after the other, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import (
    ArgumentError,
    CallOrder,
    ConfigError,
    EncodingError,
    Fenced,
    FtfileError,
    SchemaError,
    UnknownQuery,
)
from ftfile.testing.checker import check_directory
from ftfile.testing.context import ManualClock, open_filesystem, repeatable
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.operate.numbered_rows import numbers_of, opened, rows, staged, visible
from tests.unit.writing.files.encrypted import write_ring

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.operate.writers.application_writer import DirectoryWriter


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


class TestCommits:
    def test_a_restarted_program_continues_at_its_position(self, out: str) -> None:
        with opened(out) as writer:
            assert (writer.position, writer.version) == (None, -1)
            writer.write(rows(1))
            writer.write(rows(2, 3))
            assert visible(out) == []
            assert writer.commit({"orders-0": 3}) == 1
            assert (writer.position, writer.version) == ({"orders-0": 3}, 1)
        with opened(out) as writer:
            assert (writer.position, writer.version) == ({"orders-0": 3}, 1)
            writer.write(rows(4))
            assert writer.commit({"orders-0": 4}) == 3
        assert visible(out) == [1, 2, 3, 4]
        assert len(ftfile.open(out).files()) == 2
        assert check_directory(open_filesystem(out)).committed == {"orders": [0, 1]}

    def test_only_a_new_position_is_a_commit_without_rows(self, out: str) -> None:
        with opened(out) as writer:
            assert writer.commit() == -1
            assert writer.commit(5) == 1
            assert writer.commit(5) == 1
            assert writer.commit([5, {"a": None}]) == 2
            writer.write(rows())
            assert writer.commit() == 3
            assert writer.position == [5, {"a": None}]
            assert writer.commit() == 3
            assert writer.commit(None) == 4
            assert writer.position is None
        assert check_directory(open_filesystem(out)).committed == {"orders": [0, 1, 2, 3]}

    def test_the_position_is_shown(self, out: str) -> None:
        with opened(out) as writer:
            writer.commit(1)
            writer.write(rows(1))
            writer.commit({"p": 2})
        directory = ftfile.open(out)
        version = directory.history()[-1]
        assert (version.query_id, version.batch_id) == ("orders", 1)
        assert (version.position, version.offsets) == ({"p": 2}, [{"p": 2}])
        assert directory.version_details(2).offsets_before == [1]
        (file,) = directory.files()
        batches = directory.file_details(file.path).batches
        assert batches is not None
        assert (batches.offsets_before, batches.offsets) == ([1], [{"p": 2}])
        (query,) = ftfile.status(out).queries
        assert query.application is not None
        assert query.application.position == {"p": 2}

    def test_a_changed_position_of_the_caller_is_not_committed(self, out: str) -> None:
        position = {"p": 1}
        writer = opened(out)
        writer.commit(position)
        position["p"] = 2
        assert writer.position == {"p": 1}

    def test_the_position_can_be_changed_for_the_next_commit(self, out: str) -> None:
        with opened(out) as writer:
            writer.commit({"offsets": [1]})
            position = writer.position
            position["offsets"][0] = 2
            writer.write(rows(1))
            writer.abort()  # the position is still the committed one, so the program reads the row again
            assert writer.position == {"offsets": [1]}

    def test_the_position_survives_vacuum_and_a_lost_log_record(self, out: str) -> None:
        with repeatable(ManualClock(tick_ms=1)) as context:
            with opened(out) as writer:
                for number in range(20):
                    writer.write(rows(number))
                    writer.commit({"p": number})
            context.clock.advance(400 * 24 * 3600)  # type: ignore[attr-defined]
            with opened(out, "others") as writer:
                for number in range(100, 200):
                    writer.write(rows(number))
                    writer.commit()
            ftfile.compact(out, context=context)
            ftfile.vacuum(out, retention="0s", force=True, context=context)
            assert opened(out).position == {"p": 19}
            assert numbers_of(out) == [*range(20), *range(100, 200)]

    def test_abort_drops_rows_and_their_files(self, out: str) -> None:
        with opened(out) as writer:
            writer.write(rows(1))
            writer.abort()
            assert staged(out) == []
            writer.write(rows(2))
            writer.commit()
        assert visible(out) == [2]

    def test_an_exception_drops_the_rows(self, out: str) -> None:
        def stop(writer: DirectoryWriter) -> None:
            with writer:
                writer.write(rows(1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            stop(opened(out))
        assert staged(out) == []
        assert opened(out).position is None

    def test_rows_without_a_commit_are_dropped_with_a_warning(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        with opened(out) as writer:
            writer.commit(1)
            writer.write(rows(1))
        assert "closed with rows after its last commit" in caplog.text
        assert staged(out) == []
        writer.close()  # idempotent

    def test_other_columns_are_allowed_in_another_batch_as_in_the_options(self, out: str) -> None:
        with opened(out, on_schema_change="widen") as writer:
            writer.write(rows(1))
            writer.commit()
            writer.write(pa.table({"n": [2], "m": ["a"]}))
            writer.commit()
        assert ftfile.open(out).to_arrow().sort_by("n")["m"].to_pylist() == [None, "a"]


class TestTwoProcesses:
    def test_the_second_one_takes_over(self, out: str) -> None:
        first = opened(out)
        first.write(rows(1))
        first.commit(1)
        first.write(rows(2))
        second = opened(out)
        for _ in range(2):
            with pytest.raises(Fenced, match=r"another process, .*@.*, has opened .* app_id='orders' at 20"):
                first.commit(2)
        with pytest.raises(Fenced, match="another process"):
            first.write(rows(2))
        with pytest.raises(Fenced):
            first.abort()
        first.close()
        assert second.position == 1
        second.write(rows(2))
        second.commit(2)
        second.close()
        assert visible(out) == [1, 2]

    def test_a_fenced_batch_is_not_taken_for_the_batch_of_the_other_process(self, out: str) -> None:
        first = opened(out)
        first.write(rows(1))
        second = opened(out)
        second.write(rows(1))
        second.commit({"p": 1})
        with pytest.raises(Fenced):
            first.commit({"p": 1})
        with pytest.raises(Fenced):
            first.commit({"p": 1})
        assert visible(out) == [1]

    def test_a_position_without_rows_is_also_fenced(self, out: str) -> None:
        first, second = opened(out), opened(out)
        with pytest.raises(Fenced):
            first.commit(1)
        assert second.commit(2) == 2

    def test_other_applications_are_independent(self, out: str) -> None:
        writers = [opened(out, f"app-{number}") for number in range(3)]
        for round_ in range(3):
            for number, writer in enumerate(writers):
                writer.write(rows(10 * number + round_))
                writer.commit(round_)
        assert visible(out) == sorted(10 * number + round_ for number in range(3) for round_ in range(3))
        assert [opened(out, f"app-{number}").position for number in range(3)] == [2, 2, 2]

    def test_a_lost_log_is_not_taken_for_another_process(self, out: str) -> None:
        writer = opened(out)
        writer.commit(1)
        for path in Path(out).rglob("*"):
            if path.is_file():
                path.unlink()
        with pytest.raises(FtfileError) as error:
            writer.commit(2)
        assert not isinstance(error.value, Fenced)


COLUMNS = {"n": "long"}


class TestSpark:
    def test_a_query_and_a_program_write_to_one_directory(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        writer = opened(out)
        for number in range(5):
            query.run(number, [[{"n": number}]])
            writer.write(rows(100 + number))
            writer.commit(number)
        query.restart()
        query.run(5, [[{"n": 5}]])
        assert visible(out) == [*range(6), *range(100, 105)]
        check_directory(open_filesystem(out))

    def test_a_second_query_is_still_refused(self, out: str) -> None:
        with opened(out) as writer:
            writer.commit(1)
        MicroBatch(out, COLUMNS, {"fileFormat": "json"}).run(0, [[{"n": 1}]])
        other = MicroBatch(out, COLUMNS, {"fileFormat": "json"}, query_id="00000000-0000-0000-0000-000000000002")
        with pytest.raises(UnknownQuery, match="000000000001"):
            other.run(0, [[{"n": 1}]])

    def test_the_id_of_a_query_is_no_app_id(self, out: str) -> None:
        query = MicroBatch(out, COLUMNS, {"fileFormat": "json"})
        query.run(0, [[{"n": 1}]])
        with pytest.raises(ConfigError, match="the id of a query of Spark"):
            opened(out, query.query_id)

    def test_an_identity_of_batch_writes_is_no_app_id(self, out: str) -> None:
        ftfile.write(out, rows(1), app_id="loads", version=3, file_format="json")
        with pytest.raises(ConfigError, match="the identity of batch writes"):
            opened(out, "loads")
        opened(out, "orders").close()
        with pytest.raises(ConfigError, match="is the app_id of an"):
            ftfile.write(out, rows(1), app_id="orders", version=3, file_format="json")


class TestRolling:
    def test_files_stay_open_over_commits(self, out: str, caplog: pytest.LogCaptureFixture) -> None:
        with opened(out, rolling="policy", max_records_per_file=5) as writer:
            for number in range(0, 12, 2):
                writer.write(rows(number, number + 1))
                writer.commit(number)
            (warning,) = [text for text in caplog.messages if "in progress" in text and "commit without rows" in text]
            assert "spark" not in warning
            assert visible(out) != numbers_of(out) == list(range(12))
        ftfile.flush(out)
        assert visible(out) == list(range(12))
        check_directory(open_filesystem(out))

    def test_a_commit_without_rows_ends_files_whose_time_has_passed(self, out: str) -> None:
        with repeatable(ManualClock(tick_ms=1)) as context:
            writer = opened(out, rollover_interval="1m")
            writer.write(rows(1))
            writer.commit(1)
            versions = [writer.commit(1) for _ in range(3)]
            assert len(set(versions)) == 1
            assert visible(out) == []
            context.clock.advance(61)  # type: ignore[attr-defined]
            for _ in range(3):
                writer.commit(1)
            assert visible(out) == [1]
            assert writer.position == 1

    @pytest.mark.parametrize(
        "options",
        [{}, {"partition_by": "n"}, {"finalize_column": "end"}, {"event_time_interval": "at:1h"}],
        ids=["interval", "partitions", "finalize column", "event time"],
    )
    def test_a_restarted_program_without_new_rows_ends_them_too(self, out: str, options: dict[str, Any]) -> None:
        table = pa.table({"n": [1], "m": [2], "end": [False], "at": pa.array([0], pa.timestamp("us", "UTC"))})
        clock = ManualClock(tick_ms=1)
        with repeatable(clock) as context:
            with opened(out, rollover_interval="1m", **options) as writer:
                writer.write(table)
                writer.commit(1)
            with opened(out, rollover_interval="1m", **options) as writer:
                version = writer.commit(1)
                assert writer.commit(1) == version
                assert not ftfile.open(out, context=context).files()
                clock.advance(61)
                for _ in range(3):
                    writer.commit(1)
                (file,) = ftfile.open(out, context=context).files()
                assert file.rows == 1
                writer.write(table)
                writer.commit(2)
        ftfile.flush(out, code=[])
        assert numbers_of(out) == [1, 1]
        check_directory(open_filesystem(out))

    def test_a_restarted_program_with_options_for_other_columns_commits_positions(self, out: str) -> None:
        with opened(out, rollover_interval="1m") as writer:
            writer.write(rows(1))
            writer.commit(1)
        with opened(out, rollover_interval="1m", event_time_interval="at:1h") as writer:
            assert writer.commit(2) > 0
        assert numbers_of(out) == [1]

    def test_a_restarted_program_continues_open_files(self, out: str) -> None:
        options: dict[str, Any] = {"rolling": "policy", "max_records_per_file": 4}
        for number in range(8):
            with opened(out, **options) as writer:
                assert writer.position == (number or None)
                writer.write(rows(number))
                writer.commit(number + 1)
        with opened(out, **options) as writer:
            writer.commit(9)  # without rows, and without known columns
        ftfile.flush(out)
        assert visible(out) == list(range(8))
        assert {file.rows for file in ftfile.open(out).files()} == {4}


class TestOptions:
    def test_partitions_compression_and_functions(self, out: str, published: list[str]) -> None:
        table = pa.table({"day": ["a", "b", "a"], "n": [1, 2, 3]})
        with opened(out, partition_by="day", compression="gzip", on_publish=f"{__name__}:remember") as writer:
            writer.write(table)
            writer.commit()
        assert sorted(Path(path).suffix for path in published) == [".gz", ".gz"]
        assert numbers_of(out) == [1, 2, 3]

    def test_encryption(self, out: str, tmp_path: Path) -> None:
        write_ring(tmp_path / "keys", first=os.urandom(32))
        options = {"encryption": "aes-gcm", "key_provider": f"file:{tmp_path / 'keys'}", "file_format": "parquet"}
        for number in range(2):
            with opened(out, **options) as writer:
                assert writer.position == (number or None)
                writer.write(rows(number))
                writer.commit(number + 1)
        directory = ftfile.open(out, key_provider=options["key_provider"])
        assert sorted(directory.to_arrow()["n"].to_pylist()) == [0, 1]
        with pytest.raises(ConfigError):
            opened(out, file_format="parquet")

    def test_bad_records_become_dead_letters(self, out: str) -> None:
        table = pa.table({"t": ["a", "b" * 200, "c"]})
        with opened(out, bad_records="deadLetter", max_record_bytes=100) as writer:
            writer.write(table)
            writer.commit(1)
        assert ftfile.open(out).to_arrow()["t"].to_pylist() == ["a", "c"]
        assert ftfile.open(out).history()[-1].bad_records == 1
        with opened(out + "2", max_record_bytes=100) as writer:
            writer.write(table)
            with pytest.raises(EncodingError):
                writer.commit(1)
            with pytest.raises(CallOrder, match="call abort"):
                writer.write(table)
            with pytest.raises(CallOrder, match="call abort"):
                writer.commit(1)
            writer.abort()
            writer.write(table.slice(0, 1))
            writer.commit(1)
        assert ftfile.open(out + "2").to_arrow()["t"].to_pylist() == ["a"]

    def test_exports_follow_commits(self, out: str) -> None:
        with opened(out, file_format="parquet", export_to="delta") as writer:
            for number in range(3):
                writer.write(rows(number))
                writer.commit(number)
        deltalake = pytest.importorskip("deltalake")
        table = deltalake.DeltaTable(out).to_pyarrow_table()
        assert sorted(table["n"].to_pylist()) == [0, 1, 2]

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"unknown_option": 1}, "there is no such option"),
            ({"on_gap": "accept"}, "can lose their checkpoint"),
            ({"replace_where": "n = 1"}, "it is for ftfile.write"),
            ({"txn_version": 1}, "numbers its batches"),
            ({"rolling": "yes"}, "rolling"),
            ({"threads": 0}, "at least one thread"),
            ({"rollover_interval": "soon"}, "rolloverInterval"),
        ],
    )
    def test_wrong_options_are_errors_before_anything_is_written(
        self, out: str, options: dict[str, Any], reason: str
    ) -> None:
        with pytest.raises(ConfigError, match=reason):
            opened(out, **options)
        assert not Path(out).exists()

    @pytest.mark.parametrize("app_id", ["", "a/b", "..", "_x", "x" * 101, "a b"])
    def test_names_that_are_no_directory_are_errors(self, out: str, app_id: str) -> None:
        with pytest.raises(ConfigError, match="app_id="):
            opened(out, app_id)

    def test_a_store_and_a_table_of_another_program_are_refused(self, out: str, tmp_path: Path) -> None:
        with ftfile.kv.KeyValueStore(out, writer="w") as store:
            store.put(b"a", b"b")
            store.commit()
        with pytest.raises(ConfigError, match="store"):
            opened(out)
        (tmp_path / "delta/_delta_log").mkdir(parents=True)
        with pytest.raises(ConfigError, match="Delta"):
            opened(str(tmp_path / "delta"))


@pytest.fixture
def published() -> Iterator[list[str]]:
    _published.clear()
    yield _published
    _published.clear()


_published: list[str] = []


def remember(event: Any) -> None:
    _published.extend(part.path for part in event)


class TestBadInput:
    @pytest.mark.parametrize(
        "position",
        [{1: 2}, (1, 2), {"a": {1}}, float("nan"), b"a", "\ud800", "x" * 70_000, object(), [[]] * 40_000],
        ids=["key", "tuple", "set", "nan", "bytes", "surrogate", "long", "object", "many"],
    )
    def test_a_position_that_is_no_small_json_is_an_error(self, out: str, position: Any) -> None:
        writer = opened(out)
        writer.write(rows(1))
        with pytest.raises(ArgumentError, match="position"):
            writer.commit(position)
        assert writer.commit(1) == 1

    def test_a_deep_position_is_an_error(self, out: str) -> None:
        position: list[Any] = []
        for depth in range(5000):
            if depth in {90, 300, 4999}:
                with pytest.raises(ArgumentError, match="position"):
                    opened(out).commit(position)
            position = [position]

    @pytest.mark.parametrize(
        "position",
        ["é\n", 2**70, -1.5, True, {"": [None, {}]}, "x" * 65_000],
        ids=["text", "int", "float", "bool", "nested", "long"],
    )
    def test_any_json_is_a_position(self, out: str, position: Any) -> None:
        with opened(out) as writer:
            writer.commit(position)
        assert opened(out).position == position

    def test_true_is_another_position_than_one(self, out: str) -> None:
        with opened(out) as writer:
            assert writer.commit(1) < writer.commit(True)
            assert writer.position is True

    def test_other_columns_in_a_batch_are_an_error_and_the_batch_is_unchanged(self, out: str) -> None:
        with opened(out) as writer:
            writer.write(rows(1))
            for table, reason in (
                (pa.table({"n": ["a"]}), "column `n` is string, and was int64"),
                (pa.table({"m": [1]}), "no column `n`"),
                (pa.table({"n": [1], "m": [1]}), "column `m` is new"),
            ):
                with pytest.raises(SchemaError, match=reason):
                    writer.write(table)
            with pytest.raises(ArgumentError, match="data="):
                writer.write("rows")
            writer.commit()
            with pytest.raises(SchemaError, match="m is new"):
                writer.write(pa.table({"n": [1], "m": [1]}))
            with pytest.raises(SchemaError, match="n is missing"):
                writer.write(pa.table({"m": [1]}))
            writer.write(rows(2))
            writer.commit()
        assert visible(out) == [1, 2]

    def test_a_closed_writer_refuses_calls(self, out: str) -> None:
        writer = opened(out)
        writer.close()
        for call in (lambda: writer.write(rows(1)), writer.commit, writer.abort):
            with pytest.raises(CallOrder, match="the writer is closed"):
                call()

    def test_a_forked_process_cannot_use_the_writer(self, out: str) -> None:
        with opened(out) as writer:
            writer.write(rows(1))
            child = os.fork()
            if child == 0:
                codes = []
                for call in (lambda: writer.write(rows(2)), writer.commit, writer.abort):
                    try:
                        call()
                    except CallOrder:
                        codes.append(1)
                writer.close()  # without effect
                os._exit(len(codes))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
            writer.commit(1)
        assert numbers_of(out) == [1]

    def test_rows_during_a_commit_are_an_error(self, out: str) -> None:
        global _during  # noqa: PLW0603 - for the function that the option names
        writer = opened(out, on_publish=f"{__name__}:write_more")
        errors: list[Exception] = []

        def during() -> None:
            try:
                writer.write(rows(2))
            except CallOrder as error:
                errors.append(error)

        _during = during
        writer.write(rows(1))
        writer.commit()
        assert "another call of this writer runs" in str(errors[0])
        assert visible(out) == [1]

    def test_an_error_of_the_data_needs_an_abort(self, out: str) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from rows(1).to_batches()
            raise OSError("the source failed")

        with opened(out) as writer:
            with pytest.raises(OSError, match="the source failed"):
                writer.write(batches())
            with pytest.raises(CallOrder, match="the source failed"):
                writer.commit(1)
            writer.abort()
            assert staged(out) == []
            assert writer.commit(1) == 1


_during: Any = None


def write_more(_: Any) -> None:
    _during()
