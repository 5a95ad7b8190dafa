"""Another program changes a directory: repeated writes are still recognised, and no writer mixes settings unnoticed."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import CommitError, ConfigError, SchemaError, StorageError
from ftfile.core.options.declaration import attribute_name
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from tests.unit.operate.numbered_rows import lose_the_response
from tests.unit.tools.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = pa.table({"k": ["a", "b"], "n": pa.array([1, None], pa.int32())})
# The first write, and the rows that another program writes afterwards, with its options.
FIRST: dict[str, Any] = {"file_format": "csv", "header": True, "on_schema_change": "widen"}
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "wider": (pa.table({"k": ["c"], "n": pa.array([1], pa.int64())}), {"on_schema_change": "widen"}),
    "more columns": (
        pa.table({"k": ["c"], "n": pa.array([1], pa.int32()), "m": ["x"]}),
        {"on_schema_change": "widen"},
    ),
    "format": (ROWS, {"mode": "overwrite", "file_format": "parquet"}),
    "partitions": (ROWS, {"mode": "overwrite", "partition_by": ["k"], "null_value": "-"}),
    "separator": (ROWS, {"mode": "overwrite", "sep": ";"}),
    "other columns": (
        pa.table({"z": [[1]], "y": [1]}),
        {"mode": "overwrite", "file_format": "json", "partition_by": "y"},
    ),
    "text": (pa.table({"line": ["x"]}), {"mode": "overwrite", "file_format": "text", "partition_by": []}),
}


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.fixture(params=CHANGES)
def change(request: pytest.FixtureRequest, out: str) -> Callable[[], int]:
    """What another program does; returns the version of the directory."""
    rows, options = CHANGES[request.param]

    def act() -> int:
        return ftfile.write(out, rows, **options)

    return act


def version_of(out: str) -> int:
    return ftfile.status(out).version


class TestRepetitions:
    """The identity of a write is looked up before its settings are compared with the directory."""

    @pytest.mark.parametrize("nulls", [False, True])
    def test_write(self, out: str, change: Callable[[], int], *, nulls: bool) -> None:
        rows = pa.table({"k": ["a"], "n": [None]}) if nulls else ROWS
        if nulls:
            ftfile.write(out, ROWS, **FIRST)
        ftfile.write(out, rows, app_id="load", version=7, **FIRST)
        version = change()
        assert ftfile.write(out, rows, app_id="load", version=7, **FIRST) == version
        assert ftfile.write(out, rows, app_id="load", version=7) == version
        assert version_of(out) == version

    @pytest.mark.parametrize(
        "options",
        [
            {"mode": "dynamic"},
            {"mode": "overwrite", "replace_where": "k = 'a' OR k = 'b'"},
            {"mode": "overwrite", "sep": "\t"},
            {"mode": "overwrite", "quote_all": True, "compression": "bzip2"},
        ],
        ids=str,
    )
    def test_write_with_options_for_the_earlier_settings(
        self, out: str, change: Callable[[], int], options: dict[str, Any]
    ) -> None:
        ftfile.write(out, ROWS, **FIRST, partition_by=["k"], null_value="-")
        ftfile.write(out, ROWS, app_id="load", version=7, **options)
        version = change()
        assert ftfile.write(out, ROWS, app_id="load", version=7, **options) == version

    def test_write_of_an_earlier_version(self, out: str, change: Callable[[], int]) -> None:
        ftfile.write(out, ROWS, app_id="load", version=7, **FIRST)
        ftfile.write(out, ROWS, app_id="load", version=8)
        version = change()
        assert ftfile.write(out, ROWS, app_id="load", version=7) == version

    def test_command(self, out: str, tmp_path: Path, change: Callable[[], int]) -> None:
        file = tmp_path / "rows.csv"
        file.write_text("k,n\na,1\nb,2\n")
        ftfile.write(out, ROWS, **FIRST)
        words = ("write", out, file, "--app-id", "load", "--version", "7")
        run(*words)
        version = change()
        run(*words)
        assert version_of(out) == version

    @pytest.mark.parametrize("has_checkpoint", [False, True])
    def test_stream(self, out: str, tmp_path: Path, change: Callable[[], int], *, has_checkpoint: bool) -> None:
        checkpoint = str(tmp_path / "checkpoint") if has_checkpoint else None
        options = {"fileFormat": "csv", "header": "true", "onSchemaChange": "widen"}
        query = MicroBatch(out, {"k": "string", "n": "integer"}, options, checkpoint=checkpoint)
        rows: list[list[dict[str, Any]]] = [[{"k": "a", "n": 1}], [{"k": "b", "n": None}]]
        query.run(0, rows)
        version = change()
        query.restart()
        assert query.run(0, rows).replayed
        assert version_of(out) == version

    def test_batch_write_of_spark(self, out: str, change: Callable[[], int]) -> None:
        options = {"fileFormat": "csv", "header": "true", "onSchemaChange": "widen"}
        query = MicroBatch(out, {"k": "string", "n": "integer"}, options | {"txnAppId": "load", "txnVersion": "7"})
        query.run_batch_write("a" * 32, [[{"k": "a", "n": 1}]])
        version = change()
        assert query.run_batch_write("b" * 32, [[{"k": "a", "n": 1}]]).replayed
        assert version_of(out) == version

    def test_writer(self, out: str, change: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
        writer = ftfile.writer(out, "orders", **FIRST)
        writer.write(ROWS)
        with monkeypatch.context() as patch:
            lose_the_response(patch)
            with pytest.raises((CommitError, StorageError)):
                writer.commit(1)
        version = change()
        writer.commit(1)
        assert (version_of(out), writer.position) == (version, 1)

    def test_store(self, out: str) -> None:
        query = StoreBatch(out, {"k": "string", "n": "integer"}, {"keyColumns": "k"})
        query.run(0, [[{"k": "a", "n": 1}]])
        other = StoreBatch(
            out,
            {"k": "string", "n": "long", "m": "string"},
            {"keyColumns": "k", "onSchemaChange": "widen", "onNewQuery": "continue"},
            query_id="00000000-0000-0000-0000-000000000002",
        )
        other.run(0, [[{"k": "b", "n": 1, "m": "x"}]])
        query.restart()
        assert query.run(0, [[{"k": "a", "n": 1}]]).replayed

    def test_a_new_write_is_compared_with_the_directory(self, out: str) -> None:
        ftfile.write(out, ROWS, app_id="load", version=7, **FIRST)
        ftfile.write(out, ROWS, mode="overwrite", partition_by=["k"], null_value="-")
        with pytest.raises(ConfigError, match="partitionBy"):
            ftfile.write(out, ROWS, app_id="load", version=8, partition_by=["n"])
        query = MicroBatch(out, {"k": "string", "z": "integer"}, {"fileFormat": "csv", "header": "true"})
        with pytest.raises(SchemaError):
            query.run(0, [[{"k": "a", "z": 1}]])

    def test_other_rows_are_no_repetition(self, out: str, change: Callable[[], int]) -> None:
        ftfile.write(out, ROWS, app_id="load", version=7, **FIRST)
        version = change()
        with pytest.raises(CommitError, match="is in the log"):
            ftfile.write(out, ROWS.slice(1), app_id="load", version=7)
        assert version_of(out) == version


TIMES = pa.table({"k": ["a;b", "c"], "t": pa.array([0, None], pa.timestamp("us", "UTC"))})
# Settings of stored files: the options of the directory, and what another program sets.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sep": ({"file_format": "csv", "header": True}, {"sep": ";"}),
    "header": ({"file_format": "csv", "header": True}, {"header": False}),
    "quote": ({"file_format": "csv"}, {"quote": "'"}),
    "escape": ({"file_format": "csv"}, {"escape": '"'}),
    "nullValue": ({"file_format": "csv"}, {"null_value": "-"}),
    "lineSep": ({"file_format": "csv"}, {"line_sep": "\r\n"}),
    "timestampFormat": ({"file_format": "csv"}, {"timestamp_format": "dd.MM.yyyy HH:mm:ss"}),
    "timeZone": ({"file_format": "json"}, {"time_zone": "America/New_York"}),
}
# Readers find out these settings, but a writer that took them from the directory would not keep them.
TAKEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "compression": ({"file_format": "json"}, {"compression": "gzip"}),
    "compression of parquet": ({"file_format": "parquet"}, {"compression": "gzip"}),
    "quote_all": ({"file_format": "csv"}, {"quote_all": True}),
}


class TestSettings:
    @pytest.mark.parametrize("name", SETTINGS | TAKEN)
    def test_a_writer_names_what_another_program_changed(self, out: str, name: str) -> None:
        first, changed = (SETTINGS | TAKEN)[name]
        ftfile.write(out, TIMES, **first)
        with ftfile.writer(out, "orders") as writer:
            writer.write(TIMES)
            writer.commit(1)
            version = ftfile.write(out, TIMES, mode="overwrite", **changed)
            with pytest.raises(ConfigError, match=attribute_name(name.split(maxsplit=1)[0])):
                write_and_commit(writer)
            assert version_of(out) == version
        with ftfile.writer(out, "orders") as writer:
            assert writer.position == 1
            write_and_commit(writer)
        assert ftfile.open(out).to_arrow().num_rows == 2 * len(TIMES)

    @pytest.mark.parametrize("changed", [{"file_format": "csv"}, {"partition_by": "k"}])
    def test_an_accepted_difference_is_the_callers(self, out: str, changed: dict[str, Any]) -> None:
        """A writer that accepts differences did not choose the format and the partitions that it took."""
        ftfile.write(out, TIMES, file_format="json")
        with ftfile.writer(out, "orders", on_format_change="accept") as writer:
            ftfile.write(out, TIMES, mode="overwrite", **changed)
            with pytest.raises(ConfigError, match="another program has changed"):
                write_and_commit(writer)
        with ftfile.writer(out, "orders", file_format="json", partition_by=[], on_format_change="accept") as writer:
            if "partition_by" not in changed:
                write_and_commit(writer)

    def test_what_the_caller_chose_and_readers_find_out_is_no_difference(self, out: str) -> None:
        ftfile.write(out, TIMES, file_format="json")
        with ftfile.writer(out, "orders", compression="gzip") as writer:
            write_and_commit(writer)
        assert len(list(Path(out).glob("*.json"))) == 1
        assert len(list(Path(out).glob("*.json.gz"))) == 1

    @pytest.mark.parametrize("name", SETTINGS)
    def test_a_write_that_is_overtaken(self, out: str, name: str) -> None:
        """Another program overwrites the directory while the rows are read."""
        first, changed = SETTINGS[name]
        ftfile.write(out, TIMES, **first)

        def batches() -> Iterator[pa.RecordBatch]:
            ftfile.write(out, TIMES, mode="overwrite", **changed)
            yield from TIMES.to_batches()

        with pytest.raises(ConfigError, match=attribute_name(name)):
            ftfile.write(out, pa.RecordBatchReader.from_batches(TIMES.schema, batches()))
        assert ftfile.open(out).to_arrow().num_rows == len(TIMES)

    def test_a_query_of_spark(self, out: str) -> None:
        options = {"fileFormat": "csv", "header": "true"}
        query = MicroBatch(out, {"k": "string", "n": "integer"}, options)
        query.run(0, [[{"k": "a", "n": 1}]])
        ftfile.write(out, ROWS, mode="overwrite", sep=";")
        with pytest.raises(ConfigError, match=r"sep is ',' here, and ';' in the newest files.*onFormatChange=accept"):
            query.run(1, [[{"k": "b", "n": 2}]])
        query.options = options | {"sep": ";"}
        query.run(1, [[{"k": "b", "n": 2}]])
        assert plain_rows(out) == [["a", "1"], ["b", ""], ["b", "2"]]

    def test_accepted_differences(self, out: str) -> None:
        ftfile.write(out, ROWS, **FIRST)
        ftfile.write(out, ROWS, sep=";", on_format_change="accept")
        assert ftfile.open(out).to_arrow().num_rows == 2 * len(ROWS)

    def test_an_overwrite_has_its_own_settings(self, out: str) -> None:
        ftfile.write(out, ROWS, **FIRST)
        ftfile.write(out, ROWS, mode="overwrite", sep=";")
        assert plain_rows(out) == [["a", "1"], ["b", ""]]


def write_and_commit(writer: Any) -> None:
    writer.write(TIMES)
    writer.commit(2)


def plain_rows(out: str) -> list[list[str]]:
    """Return the rows of the visible files, as a program reads them that knows only the separator."""
    rows = []
    for path in Path(out).glob("*.csv"):
        with path.open(newline="") as file:
            rows += list(csv.reader(file, delimiter=";"))[1:]
    return sorted(rows)
