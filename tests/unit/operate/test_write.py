"""`ftfile.write`: rows of Arrow libraries in one commit, without Spark."""

from __future__ import annotations

import datetime
import decimal
import inspect
import random
import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.core.errors import ArgumentError, ConfigError, OutcomeUnknown, SchemaError, Unavailable
from ftfile.core.options.kinds import DURATION
from ftfile.core.options.table import OPTIONS
from ftfile.operate.writers import arrow_rows, row_threads
from ftfile.operate.writers.named_options import option_texts
from ftfile.operate.writers.sink_arguments import SinkArguments
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, fault_sweep
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem

ROWS = pa.table({"day": ["a", "b", "a"], "n": [1, 2, 3]})


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def rows_of(out: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in ftfile.open(out).to_arrow().to_pylist())


def staged(out: str) -> list[Path]:
    return [*Path(out, "_ftfile").rglob("*.staged")]


def as_dataset(tmp_path: Path) -> ds.Dataset:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    return ds.dataset(tmp_path / "rows.parquet")


KINDS: dict[str, Callable[[Path], Any]] = {
    "Table": lambda _: ROWS,
    "RecordBatch": lambda _: ROWS.to_batches()[0],
    "RecordBatchReader": lambda _: ROWS.to_reader(max_chunksize=2),
    "list": lambda _: ROWS.to_batches(max_chunksize=1),
    "generator": lambda _: (batch for batch in ROWS.to_batches(max_chunksize=2)),
    "Dataset": as_dataset,
    "Polars": lambda _: pytest.importorskip("polars").from_arrow(ROWS),
    "pandas": lambda _: ROWS.to_pandas(),
    "DuckDB": lambda _: pytest.importorskip("duckdb").arrow(ROWS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_library_are_written(out: str, tmp_path: Path, kind: str) -> None:
    data = KINDS[kind](tmp_path)
    if not (hasattr(data, "__arrow_c_stream__") or kind in ("list", "generator", "Dataset")):
        pytest.skip("this version has no __arrow_c_stream__")
    assert ftfile.write(out, data, file_format="parquet") == 0
    assert rows_of(out) == [("a", 1), ("a", 3), ("b", 2)]


def test_modes_replace_all_rows_or_partitions(out: str) -> None:
    options: dict[str, Any] = {"file_format": "json", "partition_by": ["day"]}
    assert ftfile.write(out, ROWS, **options) == 0
    assert ftfile.write(out, ROWS.slice(0, 1), mode="dynamic", **options) == 1
    assert rows_of(out) == [("a", 1), ("b", 2)]
    only_b = pa.table({"day": ["b"], "n": [7]})
    assert ftfile.write(out, only_b, mode="overwrite", replace_where="day = 'b'", **options) == 2
    assert rows_of(out) == [("a", 1), ("b", 7)]
    assert ftfile.write(out, only_b, mode="overwrite", **options) == 3
    assert rows_of(out) == [("b", 7)]
    check_directory(open_filesystem(out))


def test_an_identity_is_written_once(out: str) -> None:
    for _ in range(2):
        assert ftfile.write(out, ROWS, app_id="loads", version=5, file_format="json") == 0
    assert ftfile.write(out, ROWS, app_id="loads", version=6, file_format="json") == 1
    assert len(rows_of(out)) == 6


def test_a_query_of_spark_and_a_program_write_to_one_directory(out: str) -> None:
    query = MicroBatch(out, {"day": "string", "n": "long"}, {"fileFormat": "json", "rolling": "policy"})
    query.run(0, [[{"day": "c", "n": 0}]])
    ftfile.write(out, ROWS, file_format="json")
    query.run(1, [[{"day": "c", "n": 1}]])
    ftfile.flush(out)
    assert rows_of(out) == [("a", 1), ("a", 3), ("b", 2), ("c", 0), ("c", 1)]
    check_directory(open_filesystem(out))


NOON = datetime.datetime.fromisoformat("2024-01-01T12:00:00")
TYPES: list[tuple[pa.Array, list[Any]]] = [
    (pa.array([255, None], pa.uint8()), [255, None]),
    (pa.array([2**16 - 1], pa.uint16()), [2**16 - 1]),
    (pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
    (pa.array([2**64 - 1], pa.uint64()), [decimal.Decimal(2**64 - 1)]),
    (pa.array(np.array([1.5], np.float16)), [1.5]),
    (pa.array(["a", None], pa.large_string()), ["a", None]),
    (pa.array([b"a"], pa.large_binary()), [b"a"]),
    (pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    (pa.array(["a", "b", None, "a"]).dictionary_encode(), ["a", "b", None, "a"]),
    (pa.array([NOON], pa.timestamp("s")), [NOON]),
    (pa.array([NOON], pa.timestamp("ns")), [NOON]),
    (pa.array([NOON], pa.timestamp("ms", "Asia/Kathmandu")), [NOON.replace(tzinfo=datetime.timezone.utc)]),
    (pa.array([NOON.date()], pa.date64()), [NOON.date()]),
    (pa.array([decimal.Decimal("1.50")], pa.decimal256(9, 2)), [decimal.Decimal("1.50")]),
    (pa.array([[1, None], None], pa.large_list(pa.uint8())), [[1, None], None]),
    (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [[1, 2]]),
    (pa.array([{"u": 7}, None], pa.struct([("u", pa.uint32())])), [{"u": 7}, None]),
    (pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.uint8())), [[("k", 1)]]),
]


@pytest.mark.parametrize(("values", "expected"), TYPES, ids=lambda value: str(getattr(value, "type", "")))
def test_types_that_spark_does_not_have_are_stored_as_wider_ones(
    out: str, values: pa.Array, expected: list[Any]
) -> None:
    ftfile.write(out, pa.table({"v": values}), file_format="parquet")
    assert ftfile.open(out).to_arrow()["v"].to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (pa.array([None]), "it has no type"),
        (pa.array([1], pa.timestamp("ns")), "Cast or round the column"),
        (pa.array([decimal.Decimal(1)], pa.decimal256(40, 0)), "at most 38 digits"),
        (pa.array([1], pa.duration("s")), "duration.*cannot be stored: cast it"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_types_and_values_that_cannot_be_stored_write_nothing(out: str, values: pa.Array, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as error:
        ftfile.write(out, pa.table({"v": values}), file_format="parquet")
    assert "`v`" in str(error.value)
    assert staged(out) == []
    with pytest.raises(ConfigError):
        ftfile.open(out)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"file_fromat": "json"}, "Did you mean file_format"),
        ({"fileFormat": "json"}, "Did you mean file_format"),
        ({"nothing": 1}, "lists the options of the sink"),
        ({"txn_app_id": "a"}, "use app_id"),
        ({"partition_by": 7.5j}, "it takes a text"),
        ({"mode": "error"}, "it is one of append, overwrite, dynamic"),
        ({"mode": "append", "replace_where": "n = 1"}, "set mode='overwrite'"),
        ({"app_id": "a"}, "give both, or none"),
        ({"version": 1}, "give both, or none"),
        ({"threads": 0}, "at least one thread"),
        ({"rolling": "policy"}, "files stay open"),
        ({"file_format": "nothing"}, "fileFormat 'nothing'"),
        ({"export_to": "delta", "file_format": "json"}, "exportTo=delta"),
    ],
)
def test_wrong_arguments_are_errors(out: str, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ftfile.write(out, ROWS, **arguments)
    assert not Path(out).exists()


@pytest.mark.parametrize("data", [None, 7, "text", {"a": [1]}, [], [1], [ROWS]], ids=repr)
def test_data_of_other_types_is_an_error(out: str, data: Any) -> None:
    with pytest.raises(ArgumentError, match="data"):
        ftfile.write(out, data)


def test_options_have_the_texts_of_spark() -> None:
    texts = option_texts(
        {"partition_by": ["day", "a b", "c`d"], "max_records_per_file": 7, "quote_all": True, "file_format": None},
        {"partSize": "8MiB", "storage.region": "eu"},
        {},
    )
    assert texts == {
        "partitionBy": "day,`a b`,`c``d`",
        "maxRecordsPerFile": "7",
        "quoteAll": "true",
        "storage.partSize": "8MiB",
        "storage.region": "eu",
    }
    assert option_texts({"partition_by": [], "filters": (), "statistics_columns": []}, None, {}) == {
        "statisticsColumns": "none"
    }
    with pytest.raises(ArgumentError, match="encryption"):
        option_texts({"encryption": []}, None, {})


class TestThreads:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(row_threads, "ROWS_PER_THREAD", 100)
        monkeypatch.setattr(row_threads, "SMALL_ROWS", 0)
        monkeypatch.setattr(arrow_rows, "BATCH_ROWS", 10)

    def test_each_writes_separate_files_and_all_rows_are_in_one_commit(self, out: str) -> None:
        numbers = list(range(1000))
        assert ftfile.write(out, pa.table({"n": numbers}), threads=3, file_format="json") == 0
        assert 1 < len(ftfile.open(out).files()) <= 3
        assert sorted(ftfile.open(out).to_arrow()["n"].to_pylist()) == numbers

    def test_few_rows_are_in_one_file_in_their_order(self, out: str) -> None:
        ftfile.write(out, pa.table({"n": range(99)}), threads=3, file_format="json")
        assert len(ftfile.open(out).files()) == 1
        assert ftfile.open(out).to_arrow()["n"].to_pylist() == list(range(99))

    @pytest.mark.parametrize("failing", [3, 15, 40])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_an_error_of_the_data_ends_all_threads_and_leaves_no_file(
        self, out: str, threads: int, failing: int
    ) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(50):
                if number == failing:
                    raise OSError("the source failed")
                yield pa.RecordBatch.from_pydict({"n": [number] * 10})

        with pytest.raises(OSError, match="the source failed"):
            ftfile.write(out, batches(), threads=threads, file_format="json")
        assert staged(out) == []

    def test_an_error_of_one_thread_removes_the_files_of_all(self, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first thread fails after the other threads have written all rows."""

        def failing(plan: Any, identity: Any, batches: Any, context: Any) -> Any:
            def rows() -> Iterator[pa.RecordBatch]:
                yield from batches
                if identity.partition == 0:
                    time.sleep(0.1)  # until the other threads have ended
                    raise OSError("the disk failed")

            return write_task(plan, identity, rows(), context)

        monkeypatch.setattr(row_threads, "write_task", failing)
        with pytest.raises(OSError, match="the disk failed"):
            ftfile.write(out, pa.table({"n": range(1000)}), threads=3, file_format="json")
        assert staged(out) == []

    def test_ctrl_c_ends_all_threads(self, out: str) -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,)).start()
            while True:
                yield pa.RecordBatch.from_pydict({"n": [1] * 10})

        with pytest.raises(KeyboardInterrupt):
            ftfile.write(out, batches(), threads=2, file_format="json")
        assert staged(out) == []

    def test_a_batch_with_other_columns_is_an_error(self, out: str) -> None:
        batches = [pa.RecordBatch.from_pydict({"n": [1]}), pa.RecordBatch.from_pydict({"n": ["a"]})]
        with pytest.raises(SchemaError, match="column `n` is"):
            ftfile.write(out, batches, file_format="json")


@pytest.mark.slow
@pytest.mark.parametrize("effect", ["before", "after"])
def test_an_error_at_any_call_writes_all_rows_once_or_none(effect: Any) -> None:
    def write(url: str) -> None:
        ftfile.write(url, ROWS, app_id="loads", version=1, file_format="json", context=current())

    def scenario(fs: FileSystem) -> None:
        with mounted(fs) as url:
            write(url)

    error = Unavailable if effect == "before" else OutcomeUnknown
    runs = 0
    for run in fault_sweep(Fault(error, effect), CrashingFileSystem, scenario, step=1):
        with mounted(run.file_system) as url:
            write(url)
            check_directory(open_filesystem(url))
            assert rows_of(url) == [("a", 1), ("a", 3), ("b", 2)], run
        runs += 1
    assert runs > 10


@pytest.mark.slow
def test_random_writes_have_the_rows_of_a_model(out: str, seed: int) -> None:
    dice = random.Random(seed)
    model: list[tuple[Any, ...]] = []
    for number in range(30):
        rows = [(dice.choice("abc"), number * 100 + place) for place in range(dice.randrange(5))]
        table = pa.table({"day": pa.array([row[0] for row in rows], pa.string()), "n": [row[1] for row in rows]})
        table = table.set_column(1, "n", table["n"].cast(pa.int64()))
        mode = dice.choice(["append", "append", "append", "dynamic", "overwrite"])
        ftfile.write(out, table, mode=mode, file_format="json", partition_by="day")
        replaced = {row[0] for row in rows} if mode == "dynamic" else set("abc" if mode == "overwrite" else "")
        model = [row for row in model if row[0] not in replaced] + rows
        assert rows_of(out) == sorted(model)
        if dice.random() < 0.2:
            ftfile.compact(out)
    check_directory(open_filesystem(out))


@pytest.mark.parametrize("function", [ftfile.write, ftfile.writer])
def test_the_signature_shows_each_option_with_its_type_and_default(function: Any) -> None:
    shown = inspect.signature(function).parameters
    sink = {option.attribute for option in OPTIONS if "write" in option.used_by}
    arguments = {"data", "mode", "app_id", "version", "threads", "storage", "context", "options"}
    replaced = {"txn_app_id", "txn_version", "partition_overwrite_mode", "on_new_query", "on_gap"}
    if function is ftfile.writer:
        replaced |= {"replace_where", "on_replay_mismatch"}
    assert shown.keys() - arguments == sink - replaced
    assert shown["max_records_per_file"].annotation == "int | str | None"
    assert shown["max_records_per_file"].default is None
    assert shown["success_delay"].default == "3600s"
    with pytest.raises(ArgumentError, match="Did you mean max_records_per_file"):
        function("/nothing", "a", max_record_per_file=7)


@pytest.mark.parametrize("name", SinkArguments.__annotations__)
def test_the_shown_default_is_the_default(name: str) -> None:
    default = inspect.signature(ftfile.write).parameters[name].default
    (option,) = [option for option in OPTIONS if option.attribute == name and "write" in option.used_by]
    if default is None:
        assert option.default in {None, ()}
    else:
        assert option.kind.parse(option_texts({name: default}, None, {})[option.name]) == option.default


@pytest.mark.parametrize("name", SinkArguments.__annotations__)
def test_the_shown_type_is_the_type(name: str) -> None:
    shown = SinkArguments.__annotations__[name].__forward_arg__
    (option,) = [option for option in OPTIONS if option.attribute == name and "write" in option.used_by]

    def parsed(text: str) -> Any:
        try:
            return option.kind.parse(text)
        except ValueError:
            return None

    assert ("int" in shown.split(" | ")) == (type(parsed("7")) is int)
    assert ("bool" in shown.split(" | ")) == (parsed("true") is True)
    assert ("timedelta" in shown.split(" | ")) == (option.kind is DURATION)
    assert ("Sequence[str]" in shown) == ("separated by" in option.kind.accepts)
    if "Literal" in shown:
        assert re.findall("'([^']+)'", shown) == re.findall("`([^`]+)`", option.kind.accepts)


def test_a_column_and_a_type_of_another_library_are_errors(out: str) -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(ArgumentError, match="data=Series: it is one column"):
        ftfile.write(out, polars.Series("a", [1]))
    with pytest.raises(SchemaError, match="column `a`: it has integers of 128 bits"):
        ftfile.write(out, polars.DataFrame({"a": polars.Series([1], dtype=polars.Int128)}))
    assert not Path(out).exists()
