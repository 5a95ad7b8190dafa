"""`ftfile write` and `ftfile migrate` of Parquet files of other programs: the types and values that Spark reads."""

from __future__ import annotations

import datetime as dt
import io
import re
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import ftfile
from ftfile.core.errors import ConfigError, SchemaError
from ftfile.source.decoding.meanings import opened_parquet, parquet_meanings
from tests.unit.tools.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

pl = pytest.importorskip("polars")

UTC = dt.timezone.utc
INSTANT, CLOCK = pa.timestamp("us", "UTC"), pa.timestamp("us")
NOON = dt.datetime(2024, 7, 1, 12, tzinfo=UTC)
SPARK_2 = {"org.apache.spark.version": "2.4.8"}
LEGACY = {
    "org.apache.spark.version": "4.0.0",
    "org.apache.spark.timeZone": "UTC",
    "org.apache.spark.legacyDateTime": "",
    "org.apache.spark.legacyINT96": "",
}
# 1500-01-01 of the Julian calendar is the day 1500-01-10 of the Gregorian calendar.
JULIAN_DAY = dt.date(1500, 1, 10)
NESTED = {
    "a": lambda kind: kind,
    "l": pa.list_,
    "s": lambda kind: pa.struct([("n", pa.int64()), ("x.y", kind)]),
    "m": lambda kind: pa.map_(pa.string(), kind),
    "deep": lambda kind: pa.list_(pa.struct([("x", pa.map_(pa.string(), pa.list_(kind)))])),
}  # fmt: skip

TYPES = {
    "fixed list": pa.array([[1, 2], None], pa.list_(pa.int32(), 2)),
    "large list": pa.array([[1], None], pa.large_list(pa.int32())),
    "list in a struct": pa.array([{"x": [1]}, None], pa.struct([("x", pa.large_list(pa.int32()))])),
    "unsigned": pa.array([2**64 - 1, None], pa.uint64()),
    "unsigned in a map": pa.array([[("k", 2**63)], None], pa.map_(pa.string(), pa.uint64())),
    "time of milliseconds": pa.array([1, None], pa.time32("ms")),
    "time of nanoseconds": pa.array([1000, None], pa.time64("ns")),
    "short decimal": pa.array(["1.50", None]).cast(pa.decimal32(9, 2)),
    "wide decimal": pa.array(["1.50", None]).cast(pa.decimal256(30, 2)),
    "eight bits": pa.array([True, None]).cast(pa.int8()).cast(pa.bool8()),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "nanoseconds": pa.array([1000, None], pa.timestamp("ns")),
    "seconds": pa.array([1, None], pa.timestamp("s", "Asia/Tokyo")),
}  # fmt: skip


def nested(value: Any) -> dict[str, Any]:
    """Return a row with a value in each column of `NESTED`."""
    return {
        "a": value,
        "l": [value, None],
        "s": {"n": 1, "x.y": value},
        "m": [("k", value)],
        "deep": [{"x": [("k", [value])]}, None],
    }


def table_of(kind: pa.DataType, *values: Any, metadata: dict[str, str] | None = None) -> pa.Table:
    schema = pa.schema([(name, make(kind)) for name, make in NESTED.items()], metadata)
    return pa.Table.from_pylist([nested(value) for value in values], schema)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def file_of(path: Path, table: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def int96(path: Path, table: pa.Table, **options: Any) -> Path:
    return file_of(path, table, use_deprecated_int96_timestamps=True, **options)


def enum_file(path: Path) -> Path:
    """Write the texts `x` and `y`: the logical type ENUM replaces STRING, which has the same length."""
    table = pa.table({"e": ["x", "y"], "n": [{"e": "x"}, None], "t": ["x", "z"]})
    path.parent.mkdir(exist_ok=True)
    data = io.BytesIO()
    pq.write_table(table, data, store_schema=False, write_statistics=False)
    # In Thrift, the converted type UTF8 (0) becomes ENUM (4), and the logical type STRING (1) becomes ENUM (4).
    stored, utf_8, enum = data.getvalue(), b"\x25\x00\x4c\x1c\x00\x00\x00", b"\x25\x08\x4c\x4c\x00\x00\x00"
    assert stored.count(utf_8) == 3
    path.write_bytes(stored.replace(utf_8, enum, 2))
    return path


def migrated(path: Path) -> pa.Table:
    ftfile.migrate(path.parent, file_format="parquet", dry_run=False)
    return ftfile.open(path.parent).to_arrow()


class TestInt96:
    @pytest.mark.parametrize("options", [{}, {"store_schema": False}, {"use_dictionary": False}])
    def test_it_is_an_instant_also_in_nested_columns(self, options: dict[str, Any], out: str, tmp_path: Path) -> None:
        rows = table_of(CLOCK, NOON.replace(tzinfo=None), None)
        table = pa.concat_tables([rows, pa.Table.from_pylist([dict.fromkeys(NESTED)], rows.schema)])
        path = int96(tmp_path / "in" / "a.parquet", table, **options)
        run("write", out, path)
        written = ftfile.open(out).to_arrow()
        assert written.schema.types == [make(INSTANT) for make in NESTED.values()]
        assert written.to_pylist() == [nested(NOON), nested(None), dict.fromkeys(NESTED)]
        assert migrated(path).to_pylist() == written.to_pylist()

    def test_other_times_of_a_nested_column_keep_their_meaning(self, tmp_path: Path) -> None:
        """A map by the name of the top-level column would change them."""
        table = pa.table({"s": [{"x": 5}]}, pa.schema([("s", pa.struct([("x", pa.timestamp("ms"))]))]))
        path = file_of(tmp_path / "a.parquet", table)
        assert parquet_meanings(opened_parquet(path)).schema.equals(pq.read_schema(path).remove_metadata())

    def test_a_directory_with_instants_accepts_it(self, out: str, tmp_path: Path) -> None:
        ftfile.write(out, table_of(INSTANT, NOON))
        run("write", out, int96(tmp_path / "a.parquet", table_of(CLOCK, NOON.replace(tzinfo=None))))
        assert ftfile.open(out).to_arrow().to_pylist() == [nested(NOON)] * 2

    def test_a_directory_with_local_times_refuses_it(self, out: str, tmp_path: Path) -> None:
        ftfile.write(out, table_of(CLOCK, dt.datetime(2024, 7, 1)))  # noqa: DTZ001
        path = int96(tmp_path / "a.parquet", table_of(CLOCK, NOON.replace(tzinfo=None)))
        assert "a was timestamp[us] and is timestamp[us, tz=UTC]" in run("write", out, path, code=2).stderr

    def test_files_without_rows(self, out: str, tmp_path: Path) -> None:
        run("write", out, int96(tmp_path / "a.parquet", table_of(CLOCK)))
        assert ftfile.open(out).to_arrow().schema.types == [make(INSTANT) for make in NESTED.values()]

    def test_files_with_other_physical_types_in_one_call(self, out: str, tmp_path: Path) -> None:
        old = int96(tmp_path / "a.parquet", table_of(CLOCK, NOON.replace(tzinfo=None)))
        new = file_of(tmp_path / "b.parquet", table_of(INSTANT, NOON))
        run("write", out, old, new)
        assert ftfile.open(out).to_arrow().to_pylist() == [nested(NOON)] * 2
        clocks = file_of(tmp_path / "c.parquet", table_of(CLOCK, NOON.replace(tzinfo=None)))
        assert "column `a` is timestamp[us], but timestamp[us, tz=UTC]" in run("write", out, old, clocks, code=2).stderr

    def test_times_beyond_the_range_of_nanoseconds(self, out: str, tmp_path: Path) -> None:
        far = [dt.datetime(year, 1, 1) for year in (1600, 9000)]  # noqa: DTZ001
        run("write", out, int96(tmp_path / "a.parquet", table_of(CLOCK, *far)))
        assert ftfile.open(out).to_arrow().to_pylist() == [nested(value.replace(tzinfo=UTC)) for value in far]


class TestCalendars:
    @pytest.mark.parametrize("metadata", [SPARK_2, LEGACY])
    def test_dates_are_rebased(self, metadata: dict[str, str], out: str, tmp_path: Path) -> None:
        table = table_of(pa.date32(), JULIAN_DAY, None, dt.date(2024, 7, 1), metadata=metadata)
        run("write", out, file_of(tmp_path / "a.parquet", table))
        expected = [nested(value) for value in (dt.date(1500, 1, 1), None, dt.date(2024, 7, 1))]
        assert ftfile.open(out).to_arrow().to_pylist() == expected

    @pytest.mark.parametrize("kind", [INSTANT, pa.timestamp("ms", "UTC")])
    def test_instants_of_a_writer_in_utc_are_rebased(self, kind: pa.DataType, out: str, tmp_path: Path) -> None:
        table = table_of(kind, dt.datetime(1500, 1, 10, 7, tzinfo=UTC), metadata=LEGACY)
        run("write", out, file_of(tmp_path / "a.parquet", table))
        assert ftfile.open(out).to_arrow().to_pylist() == [nested(dt.datetime(1500, 1, 1, 7, tzinfo=UTC))]

    def test_int96_of_a_writer_in_utc_is_rebased(self, out: str, tmp_path: Path) -> None:
        table = table_of(CLOCK, dt.datetime(1500, 1, 10, 7), metadata=LEGACY)  # noqa: DTZ001
        run("write", out, int96(tmp_path / "a.parquet", table))
        assert ftfile.open(out).to_arrow().to_pylist() == [nested(dt.datetime(1500, 1, 1, 7, tzinfo=UTC))]

    @pytest.mark.parametrize("zone", [None, "America/New_York"])
    def test_instants_of_another_zone_are_refused(self, zone: str | None, out: str, tmp_path: Path) -> None:
        metadata = LEGACY | {"org.apache.spark.timeZone": zone} if zone else SPARK_2
        old = dt.datetime(1700, 1, 10)  # noqa: DTZ001
        for kind, write in ((INSTANT, file_of), (CLOCK, int96)):
            for name in NESTED:
                table = table_of(kind, old, metadata=metadata).select([name])
                error = run("write", out, write(tmp_path / "a.parquet", table), code=2).stderr
                assert f"column `{name}` cannot be read as" in error
                assert "before 1900-01-01" in error
                assert "Read the file with Spark" in error
            new = table_of(kind, NOON.replace(tzinfo=None), metadata=metadata)
            run("write", f"{out}-new", write(tmp_path / "a.parquet", new))

    def test_local_times_were_never_in_another_calendar(self, out: str, tmp_path: Path) -> None:
        old = dt.datetime(1500, 1, 10)  # noqa: DTZ001
        run("write", out, file_of(tmp_path / "a.parquet", table_of(CLOCK, old, metadata=LEGACY)))
        assert ftfile.open(out).to_arrow().to_pylist() == [nested(old)]

    def test_other_programs_use_the_gregorian_calendar(self, out: str, tmp_path: Path) -> None:
        new = {"org.apache.spark.version": "3.5.0"}
        files = [
            file_of(tmp_path / f"{number}.parquet", table_of(pa.date32(), JULIAN_DAY, metadata=metadata))
            for number, metadata in enumerate(({}, new, SPARK_2))
        ]
        run("write", out, *files)
        days = [row["deep"][0]["x"][0][1][0] for row in ftfile.open(out).to_arrow().to_pylist()]
        assert days == [JULIAN_DAY, JULIAN_DAY, dt.date(1500, 1, 1)]


class TestTexts:
    def test_enum(self, out: str, tmp_path: Path) -> None:
        path = enum_file(tmp_path / "in" / "a.parquet")
        logical = [str(pq.ParquetFile(path).schema.column(number).logical_type) for number in range(3)]
        assert logical == ["Enum", "Enum", "String"]
        run("write", out, path)
        written = ftfile.open(out).to_arrow()
        assert written.to_pylist() == [{"e": "x", "n": {"e": "x"}, "t": "x"}, {"e": "y", "n": None, "t": "z"}]
        assert written.schema.field("e").type == pa.string()
        found = migrated(path)
        assert found.equals(written)
        assert ftfile.open(path.parent).to_arrow(where="e = 'y'").num_rows == 1

    def test_json_and_uuid(self, out: str, tmp_path: Path) -> None:
        storage = pa.array(["{}"], pa.json_())
        lists = pa.ListArray.from_arrays([0, 1], storage)
        table = pa.table({"j": storage, "l": lists, "u": pa.array([b"0" * 16], pa.uuid())})
        path = file_of(tmp_path / "in" / "a.parquet", table)
        run("write", out, path)
        written = ftfile.open(out).to_arrow()
        assert written.to_pylist() == [{"j": "{}", "l": ["{}"], "u": b"0" * 16}]
        assert migrated(path).equals(written)


class TestTypes:
    @pytest.mark.parametrize("name", TYPES)
    def test_write_and_migrate_store_the_same(self, name: str, out: str, tmp_path: Path) -> None:
        path = file_of(tmp_path / "in" / "a.parquet", pa.table({"c": TYPES[name]}))
        run("write", out, path)
        assert migrated(path).equals(ftfile.open(out).to_arrow())

    @pytest.mark.parametrize(
        "values",
        [
            pa.array([1001], pa.timestamp("ns")),
            pa.array([1001], pa.time64("ns")),
            pa.array([[1001]], pa.list_(pa.timestamp("ns", "UTC"))),
        ],
    )
    def test_values_without_a_place_in_the_type(self, values: pa.Array, out: str, tmp_path: Path) -> None:
        """The file is not damaged: the error contains the column, in both."""
        path = file_of(tmp_path / "in" / "a.parquet", pa.table({"id": [1], "c": values}))
        with pytest.raises(ConfigError) as refused:
            ftfile.migrate(path.parent, file_format="parquet")
        for error in (run("write", out, path, code=2).stderr, str(refused.value)):
            assert "column `c" in error
            assert "would lose data: 1001" in error
            assert "a.parquet" in error
            assert "corrupt" not in error

    @pytest.mark.parametrize("write", [pl.DataFrame.write_parquet, pl.DataFrame.write_ipc])
    def test_integers_of_128_bits_of_any_format(self, write: Any, out: str, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        path = tmp_path / "in" / ("a.parquet" if write is pl.DataFrame.write_parquet else "a.arrow")
        write(pl.DataFrame({"wide": pl.Series([2**100], dtype=pl.Int128)}), path)
        with pytest.raises(ConfigError) as refused:
            ftfile.migrate(path.parent, file_format=path.suffix[1:])
        for error in (run("write", out, path, code=2).stderr, str(refused.value)):
            assert path.name in error
            assert "which Spark does not have" in error or "does not support a type" in error
            assert "with more than 64 bits" in error
            assert "corrupt" not in error

    @pytest.mark.parametrize("kind", [pl.Int128, pl.UInt128])
    def test_integers_of_128_bits(self, kind: type[Any], out: str, tmp_path: Path) -> None:
        """The file is not damaged, and the error contains the column and the remedy."""
        (tmp_path / "in").mkdir()
        path = tmp_path / "in" / "a.parquet"
        frame = pl.DataFrame({"id": [1], "wide": pl.Series([2**100], dtype=kind)})
        frame.write_parquet(path)
        with pytest.raises(ConfigError) as refused:
            ftfile.migrate(path.parent, file_format="parquet")
        for error in (run("write", out, path, code=2).stderr, str(refused.value)):
            assert "column `wide`: it has integers of 128 bits, which Spark does not have" in error
            assert "pl.Decimal(38, 0)" in error
            assert "corrupt" not in error
        frame.with_columns(pl.col("wide").cast(pl.Decimal(38, 0))).write_parquet(path)
        run("write", out, path)
        assert int(ftfile.open(out).to_arrow().column("wide")[0].as_py()) == 2**100


class TestUnreadTypes:
    @pytest.mark.parametrize(
        ("query", "column", "kind"),
        [
            ("select 1 n, interval '1 month' v", "v", "INTERVAL"),
            ("select {'x y': [interval '1 month']} v", "v.x y.list.element", "INTERVAL"),
            ("select {'metadata': 1, 'a': {'b': 2}} n, {'s': [1]}::variant \"v (1) {\"", "v (1) {", "VARIANT"),
            ("select 1::variant v where false", "v", "VARIANT"),
        ],
    )
    def test_types_of_duckdb(self, query: str, column: str, kind: str, out: str, tmp_path: Path) -> None:
        """They are refused by the command, by `ftfile.write` of a dataset or a fragment, and by `ftfile migrate`."""
        (tmp_path / "in").mkdir()
        path = tmp_path / "in" / "a.parquet"
        duckdb.sql(query).to_parquet(str(path))
        error = run("write", out, path, code=2).stderr
        assert f"'{path}': column `{column}`: it is a" in error
        assert kind in error
        dataset = ds.dataset(path)
        for data in (dataset, next(dataset.get_fragments())):
            with pytest.raises(SchemaError, match=re.escape(f"column `{column}`: it is a")):
                ftfile.write(out, data)
            with ftfile.writer(out, "app") as writer, pytest.raises(SchemaError, match=kind):
                writer.write(data)
        with pytest.raises(ConfigError, match=kind):
            ftfile.migrate(path.parent, file_format="parquet")

    def test_other_bytes_and_structs(self, out: str, tmp_path: Path) -> None:
        variant = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])
        table = pa.table({"b": pa.array([b"a" * 12], pa.binary(12)), "v": pa.array([{"value": b"x"}], variant)})
        path = file_of(tmp_path / "a.parquet", table)
        run("write", out, path)
        ftfile.write(out, ds.dataset(path))
        assert ftfile.open(out).to_arrow().to_pylist() == table.to_pylist() * 2


class TestDatasets:
    """Datasets of Arrow read times without the meanings of their file, so `ftfile.write` refuses such files."""

    @staticmethod
    def refused(out: str, path: Path) -> str:
        """Return the error for a dataset, its fragments, a filtered dataset, and a writer."""
        dataset = ds.dataset([path])
        texts = set()
        for data in (dataset, next(dataset.get_fragments()), dataset.filter(ds.field("id") >= 0)):
            with pytest.raises(SchemaError) as refusal:
                ftfile.write(out, data)
            texts.add(str(refusal.value))
            with ftfile.writer(out, "app") as writer, pytest.raises(SchemaError):
                writer.write(data)
        (text,) = texts
        assert text.startswith(f"{str(path)!r}: column `")
        assert "The command `ftfile write DIR FILE...` reads the file as Spark does" in text
        return text

    @pytest.mark.parametrize("name", NESTED)
    def test_int96(self, name: str, out: str, tmp_path: Path) -> None:
        table = table_of(CLOCK, NOON.replace(tzinfo=None)).select([name]).append_column("id", pa.array([1]))
        path = int96(tmp_path / "a.parquet", table)
        assert "is INT96, which Spark reads as TIMESTAMP" in self.refused(out, path)
        run("write", out, path)

    @pytest.mark.parametrize("name", NESTED)
    @pytest.mark.parametrize(
        ("kind", "first", "before"),
        [
            (pa.date32(), dt.date(1582, 10, 15), dt.date(1582, 10, 4)),
            (
                INSTANT,
                dt.datetime(1900, 1, 1, tzinfo=dt.timezone.utc),
                dt.datetime(1899, 12, 31, tzinfo=dt.timezone.utc),
            ),
        ],
        ids=["date", "timestamp"],
    )
    def test_old_times_of_another_calendar(
        self, kind: pa.DataType, first: Any, before: Any, name: str, out: str, tmp_path: Path
    ) -> None:
        metadata = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
        for at, value in enumerate((first, before)):
            table = table_of(kind, value, None, metadata=metadata).select([name]).append_column("id", pa.array([1, 2]))
            path = file_of(tmp_path / f"{at}.parquet", table, row_group_size=1)
            if value == before:
                assert "used the Julian calendar" in self.refused(out, path)
                assert "used the Julian calendar" in self.refused(out, file_of(path, table, write_statistics=False))
                assert ftfile.open(out).count() == 2
            else:
                ftfile.write(out, ds.dataset(path))
                assert ftfile.open(out).to_arrow()[name].to_pylist() == table[name].to_pylist()

    def test_columns_that_are_not_read(self, out: str, tmp_path: Path) -> None:
        clock = pa.array([NOON.replace(tzinfo=None)], CLOCK)
        path = int96(tmp_path / "a.parquet", pa.table({"id": [1], "at": clock, "on": pa.array([1], pa.date32())}))
        ftfile.write(out, ds.dataset(path, schema=pa.schema({"id": "int64", "on": "date32"})))
        assert ftfile.open(out).to_arrow().to_pylist() == [{"id": 1, "on": dt.date(1970, 1, 2)}]

    def test_files_without_times_are_not_opened(self, out: str, tmp_path: Path) -> None:
        dataset = ds.dataset(file_of(tmp_path / "a.parquet", pa.table({"id": [1], "at": pa.array([1], CLOCK)})))

        class Opened:
            """A dataset whose fragments must not be requested."""

            scanner = ds.dataset(dataset.files, schema=pa.schema({"id": "int64"})).scanner

            def get_fragments(self) -> None:
                raise AssertionError

        ftfile.write(out, Opened())
        assert ftfile.open(out).count() == 1


class TestPandas:
    @pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
    def test_an_index_without_a_name_is_not_a_column(self, name: str, out: str, tmp_path: Path) -> None:
        frame = pd.DataFrame({"v": [1, 2]}, index=[5, 3])
        other = pd.DataFrame({"v": [7]})
        for number, each in enumerate((frame, other)):
            table = pa.Table.from_pandas(each)
            if name.endswith("parquet"):
                each.to_parquet(tmp_path / f"{number}{name}")
            else:
                feather.write_feather(table, tmp_path / f"{number}{name}")
        run("write", out, tmp_path / f"0{name}", tmp_path / f"1{name}")
        assert ftfile.open(out).to_arrow().to_pydict() == {"v": [1, 2, 7]}

    def test_an_index_with_a_name_is_a_column(self, out: str, tmp_path: Path) -> None:
        index = pd.MultiIndex.from_tuples([(5, "a"), (3, "b")], names=["key", "kind"])
        frame = pd.DataFrame({"v": [1, 2]}, index=index)
        frame.to_parquet(tmp_path / "a.parquet")
        run("write", out, tmp_path / "a.parquet")
        assert ftfile.open(out).to_arrow().to_pydict() == {"v": [1, 2], "key": [5, 3], "kind": ["a", "b"]}

    @pytest.mark.parametrize("ending", ["parquet", "feather", "arrows"])
    @pytest.mark.parametrize(
        ("index", "problem"),
        [
            (pd.Index(["a", "b"]), "has values (string) without a name"),
            (pd.Index([1.5, 2.5]), "has values (double) without a name"),
            (pd.date_range("2024-01-01", periods=2), "without a name"),
            (pd.MultiIndex.from_tuples([(5, "a"), (3, "b")]), "without a name"),
            (pd.MultiIndex.from_tuples([(5, "a"), (3, "b")], names=["key", None]), "without a name"),
            (pd.RangeIndex(100, 102, name="id"), "has the name 'id', and no column has its values"),
            (pd.Index(["a", "b"], name="v"), "has the name 'v', and no column has its values"),
        ],
        ids=["text", "float", "date", "two levels", "one of two levels", "named range", "name of a column"],
    )
    def test_an_index_that_would_be_lost_is_refused(
        self, index: pd.Index[Any], problem: str, ending: str, out: str, tmp_path: Path
    ) -> None:
        """By the command with the error of `ftfile.write`, and by `ftfile migrate`, whose table would lack it."""
        frame = pd.DataFrame({"v": [1, 2]}, index=index)
        with pytest.raises(SchemaError) as refused:
            ftfile.write(out, frame)
        (tmp_path / "in").mkdir()
        path, table = tmp_path / "in" / f"a.{ending}", pa.Table.from_pandas(frame)
        if ending == "parquet":
            frame.to_parquet(path)
        elif ending == "feather":
            feather.write_feather(table, path)
        else:
            with pa.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table)
        error = run("write", out, path, code=2).stderr
        assert f"'{path}': {refused.value}. Nothing was written" in error
        assert problem in error
        if ending == "parquet":
            with pytest.raises(ConfigError, match=re.escape(problem)):
                ftfile.migrate(path.parent, file_format="parquet")

    def test_a_migrated_file_without_labels_of_rows(self, tmp_path: Path) -> None:
        pd.DataFrame({"v": [1, 2]}, index=[5, 3]).to_parquet(tmp_path / "a.parquet")
        assert migrated(tmp_path / "a.parquet").to_pydict() == {"v": [1, 2]}

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"index_columns": 1}', '{"columns": [1]}', "[" * 100_000])
    def test_other_metadata_of_this_name_is_ignored(self, text: str, out: str, tmp_path: Path) -> None:
        table = pa.table({"__index_level_0__": [1]}).replace_schema_metadata({"pandas": text})
        run("write", out, file_of(tmp_path / "a.parquet", table))
        assert ftfile.open(out).to_arrow().to_pydict() == {"__index_level_0__": [1]}
