"""The methods of format ftkv that Spark calls, without a JVM: reading, filters, refusals."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructType

import ftfile
import ftfile.kv
from ftfile.core.errors import ConfigError, SchemaError
from ftfile.kv.definition import define
from ftfile.kv.reading.reader import CACHE
from ftfile.kv.run.reader import RunReader
from ftfile.spark.datasource import FtFileDataSource, FtKvDataSource
from ftfile.spark.store_lookup import reader_here
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.kv.building import Builder
from tests.unit.spark.pickled import pickled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql.datasource import DataSourceReader

DEFINITION = define(
    pa.schema([("day", pa.int32()), ("word", pa.string()), ("n", pa.int64())]), ["day", "word"], bucket_by=["word"],
    buckets=4,
)  # fmt: skip
SCHEMA = StructType.fromJson(
    {"type": "struct", "fields": [
        {"name": "day", "type": "integer", "nullable": True, "metadata": {}},
        {"name": "word", "type": "string", "nullable": True, "metadata": {}},
        {"name": "n", "type": "long", "nullable": True, "metadata": {}},
    ]}
)  # fmt: skip
ROWS = {(day, word): 10 * day + len(word) for day in range(5) for word in ("a", "bb", "ccc", "dddd", "eeeee", "ffffff")}
EqualTo, In, GreaterThan = datasource.EqualTo, datasource.In, datasource.GreaterThan


@pytest.fixture
def store(tmp_path: Path) -> Builder:
    made = Builder(str(tmp_path / "store"), DEFINITION)
    made.put(ROWS)
    return made


def source(path: str, **options: str) -> FtKvDataSource:
    return FtKvDataSource({"path": path, **options})


def read(reader: DataSourceReader) -> list[dict[str, Any]]:
    shipped = pickle.loads(pickled(reader))
    batches = [batch for partition in reader.partitions() for batch in shipped.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]


def as_rows(expected: dict[tuple[int, str], int]) -> list[dict[str, Any]]:
    return [{"day": day, "word": word, "n": n} for (day, word), n in sorted(expected.items())]


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["day"], row["word"]))


def test_each_bucket_is_a_task_and_all_rows_are_read(store: Builder) -> None:
    assert [(field.name, field.nullable) for field in source(store.path).schema()] == [
        ("day", False), ("word", False), ("n", True),
    ]  # fmt: skip
    reader = source(store.path).reader(SCHEMA)
    assert len(reader.partitions()) == 1 < len({add.directory_key for add in store.log.refresh().segments.values()})
    assert in_order(read(reader)) == as_rows(ROWS)


def test_a_schema_of_ones_own_matches_names_whatever_their_case(store: Builder) -> None:
    schema = StructType().add("N", LongType()).add("other", BooleanType()).add("WORD", StringType())
    rows = read(source(store.path).reader(schema))
    assert {tuple(row) for row in rows} == {("N", "other", "WORD")}
    assert sorted(row["N"] for row in rows) == sorted(ROWS.values())
    assert {row["other"] for row in rows} == {None}
    assert len(read(source(store.path).reader(StructType().add("other", BooleanType())))) == len(ROWS)


def test_a_schema_of_other_types_is_refused_before_a_task_starts(store: Builder) -> None:
    wrong = StructType().add("n", StringType()).add("WORD", BooleanType()).add("day", LongType())
    with pytest.raises(
        SchemaError, match="n is int64, but string was requested; WORD is string, but bool was requested"
    ):
        source(store.path).reader(wrong)
    changes = source(store.path, readChangeFeed="true")
    row = StructType().add("n", StringType())
    stream = changes.streamReader(StructType().add("day", LongType()).add("new", row))
    with pytest.raises(SchemaError, match=r"columns: new\.n is int64, but string was requested\. Leave"):
        stream.latestOffset()  # type: ignore[call-arg] # as Spark 4.0 calls it


@pytest.mark.slow
def test_older_versions_are_read(store: Builder) -> None:
    store.delete(*[(day, "a") for day in range(5)])
    assert len(read(source(store.path).reader(SCHEMA))) == len(ROWS) - 5
    assert in_order(read(source(store.path, versionAsOf="0").reader(SCHEMA))) == as_rows(ROWS)
    with pytest.raises(ConfigError, match="set only one of them"):
        source(store.path, versionAsOf="0", timestampAsOf="2024-01-01").schema()
    with pytest.raises(ConfigError, match="version"):
        source(store.path, versionAsOf="7").schema()


def test_writers_take_from_the_store_what_options_leave_out(store: Builder) -> None:
    spelled = StructType().add("DAY", IntegerType()).add("Word", StringType()).add("n", LongType())
    writers: list[Any] = [source(store.path).writer, source(store.path, checkpointLocation="c").streamWriter]
    for writer in writers:
        config = writer(spelled, overwrite=False)._config  # noqa: SLF001
        assert config.definition == DEFINITION
        assert config.schema.names == ["day", "word", "n"]


class TestFilters:
    def pushed(
        self, store: Builder, *filters: datasource.Filter, schema: StructType = SCHEMA
    ) -> tuple[list[datasource.Filter], Any]:
        reader = source(store.path, filterPushdown="true").reader(schema)
        return list(reader.pushFilters([*filters])), reader

    def test_whole_keys_are_looked_up(self, store: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
        filters = EqualTo(("day",), 3), In(("word",), ("a", "none", "ccc", None)), datasource.IsNotNull(("day",))
        left, reader = self.pushed(store, *filters)
        assert left == []
        monkeypatch.delattr("ftfile.kv.reading.reader.Reader.scan")
        assert in_order(read(reader)) == as_rows({(3, "a"): 31, (3, "ccc"): 33})

    def test_bucket_columns_choose_buckets(self, store: Builder) -> None:
        left, reader = self.pushed(store, of_word := EqualTo(("word",), "bb"), above := GreaterThan(("n",), 12))
        assert left == [of_word, above]  # the same bucket contains rows of other words
        assert len(reader.partitions()) == 1
        rows = read(reader)
        assert [row for row in rows if row["word"] == "bb"] == as_rows(
            {key: ROWS[key] for key in ROWS if key[1] == "bb"}
        )
        assert len(rows) < len(ROWS)

    @pytest.mark.slow
    def test_ranges_are_scanned(self, store: Builder) -> None:
        left, reader = self.pushed(store, GreaterThan(("day",), 1), datasource.LessThanOrEqual(("day",), 3))
        assert left == []
        assert in_order(read(reader)) == as_rows({key: n for key, n in ROWS.items() if 1 < key[0] <= 3})
        left, reader = self.pushed(store, EqualTo(("DAY",), 2), GreaterThan(("word",), "bb"))
        assert left == []
        assert in_order(read(reader)) == as_rows({key: n for key, n in ROWS.items() if key[0] == 2 and key[1] > "bb"})

    @pytest.mark.slow
    def test_less_is_read_than_the_bucket_has(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        definition = define(pa.schema([("id", pa.int64()), ("text", pa.string())]), ["id"], buckets=1)
        store = Builder(str(tmp_path / "store"), definition, compression="none", block_bytes=1024)
        store.put({number: f"text {number}" * 5 for number in range(20_000)})
        read_bytes = []
        plain_read = RunReader._read  # noqa: SLF001 - every byte of a run is read by it

        def counting(reader: RunReader, start: int, end: int) -> memoryview:
            read_bytes.append(end - start)
            return plain_read(reader, start, end)

        monkeypatch.setattr(RunReader, "_read", counting)
        schema = StructType().add("id", LongType()).add("text", StringType())
        sizes = []
        for filters in ([], [GreaterThan(("id",), 19_000)], [In(("id",), (7, 12_000))]):
            _, reader = self.pushed(store, *filters, schema=schema)
            reader_here(reader._place).close()  # noqa: SLF001 - out of the cache
            read_bytes.clear()
            rows = read(reader)
            sizes.append((len(rows), sum(read_bytes)))
        (all_rows, all_bytes), (range_rows, range_bytes), (key_rows, key_bytes) = sizes
        assert (all_rows, range_rows, key_rows) == (20_000, 999, 2)
        # Each read opens the run and reads the required pages.
        assert key_bytes < range_bytes < all_bytes // 4

    def test_a_contradiction_reads_nothing(self, store: Builder) -> None:
        left, reader = self.pushed(store, EqualTo(("day",), 1), EqualTo(("day",), 2))
        assert left == []
        assert read(reader) == []

    def test_all_others_are_left_to_spark(self, store: Builder) -> None:
        others = (
            datasource.Not(EqualTo(("day",), 1)), datasource.IsNull(("word",)), EqualTo(("n",), 11),
            EqualTo(("word", "part"), "a"), datasource.StringStartsWith(("word",), "b"), EqualTo(("word",), 5),
        )  # fmt: skip
        left, reader = self.pushed(store, *others)
        assert left == [*others]
        assert len(read(reader)) == len(ROWS)

    def test_a_column_of_another_type_than_the_stored_is_left_to_spark(self, store: Builder) -> None:
        schema = StructType().add("day", LongType()).add("word", StringType())
        left, _ = self.pushed(store, equal := EqualTo(("day",), 1), schema=schema)
        assert left == [equal]

    def test_old_sparks_cannot(self, store: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(datasource.DataSourceReader, "pushFilters")
        with pytest.raises(ConfigError, match=r"from 4\.1 on, with spark\.sql\.python\.filterPushdown"):
            source(store.path, filterPushdown="true").reader(SCHEMA)

    def test_a_plain_reader_takes_none(self, store: Builder) -> None:
        """Spark requires a setting if a reader has this method."""
        found = type(source(store.path).reader(SCHEMA)).pushFilters
        assert found is datasource.DataSourceReader.pushFilters


class TestKinds:
    @pytest.mark.slow
    def test_a_store_is_no_directory_of_files(self, store: Builder) -> None:
        files = FtFileDataSource({"path": store.path})
        stream = FtFileDataSource({"path": store.path}).streamReader(SCHEMA)
        uses: list[Callable[[], object]] = [
            lambda: ftfile.open(store.path), files.schema, lambda: files.reader(SCHEMA),
            lambda: files.writer(SCHEMA, overwrite=False), lambda: files.streamWriter(SCHEMA, overwrite=False),
            lambda: stream.latestOffset(),  # type: ignore[call-arg]  # noqa: PLW0108 - as Spark 4.0 calls it
        ]  # fmt: skip
        for use in uses:
            with pytest.raises(ConfigError, match=r"is a store of keys and values.*`ftkv`.*ftfile\.kv\.open"):
                use()
        others: dict[str, Callable[[], object]] = {
            r"ftfile\.kv\.compact": lambda: ftfile.compact(store.path),
            r"runs: ftfile\.kv\.compact": lambda: ftfile.flush(store.path),
            r"ftfile\.kv\.purge": lambda: ftfile.drop(store.path, "all"),
        }
        for advice, use in others.items():
            with pytest.raises(ConfigError, match=f"is a store of keys and values.*{advice}"):
                use()
        assert len(read(source(store.path).reader(SCHEMA))) == len(ROWS)

    def test_files_are_no_store(self, tmp_path: Path) -> None:
        path = str(tmp_path / "out")
        MicroBatch(path, {"id": "long"}).run(0, [[{"id": 1}]])
        for use in (lambda: ftfile.kv.open(path), source(path).schema, lambda: source(path).reader(SCHEMA)):
            with pytest.raises(ConfigError, match="is a directory of files, not a store"):
                use()

    def test_what_is_nowhere(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="nothing was ever committed"):
            source(str(tmp_path)).schema()
        with pytest.raises(ConfigError, match="the reader has no `path`"):
            FtKvDataSource({}).schema()
        with pytest.raises(ConfigError, match=r"readChangeFeed=true.*ftfile\.spark\.lookup"):
            source(str(tmp_path)).streamReader(SCHEMA)
        with pytest.raises(ConfigError, match="inside one process"):
            source("memory://x").schema()


def test_cache_bytes_bound_what_a_process_that_reads_keeps(store: Builder) -> None:
    before = CACHE.here.capacity_bytes
    try:
        reader = source(store.path, cacheBytes="1k").reader(SCHEMA)
        assert len(read(reader)) == len(ROWS)
        assert CACHE.here.capacity_bytes == 1024
        assert CACHE.here.size_bytes <= 1024
    finally:
        CACHE.here.resize(before)
