"""Names, types and arguments: each works, or is refused at once by an error that names the remedy."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, EncodingError, SchemaError, UserCodeError
from ftfile.kv.config import StoreConfig
from ftfile.kv.definition import FOUND, StoreDefinition, define
from ftfile.kv.type_names import type_named
from ftfile.rows.spark_types import spark_schema_json
from ftfile.testing.context import current
from tests.kit.parameters import parametrize
from tests.unit.kv.building import Builder
from tests.unit.kv.stores import query_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAR = 3_000_000  # days from 1970 to the year 10183
NAMES = ["_number", "a,b", "a:b", " a", ".a", "[a"]
TEXTS = define(pa.schema([("k", pa.string()), ("n", pa.int64())]), ["k"], buckets=2)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store")


class TestNames:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", NAMES)
    def test_of_value_columns(self, path: str, name: str) -> None:
        query = query_of(path, {"k": "string", name: "long"}, merge="sum")
        for batch in range(3):
            query.run(batch, [[{"k": key, name: batch + 1} for key in "ab"]])
        query.restart()
        query.options = {option: value for option, value in query.options.items() if option != "merge"}
        query.run(3, [[{"k": "a", name: 10}]])
        reader = kv.open(path, context=current())
        expected = {"a": 16, "b": 6}
        assert {key: reader.get(key) for key in "ab"} == expected
        for result in (pa.Table.from_batches(reader.scan()), reader.lookup(pa.array(["b", "a"]))):
            assert dict(zip(result["k"].to_pylist(), result[name].to_pylist(), strict=True)) == expected
        changes = [row for batch in kv.changes(path, context=current()) for row in batch.to_pylist()]
        assert changes[-1]["new"] == {name: 16}
        kv.compact(path, full=True, context=current())
        reader.refresh()
        assert reader.multi_get(["a", "b"]) == [16, 6]

    @pytest.mark.slow
    @pytest.mark.parametrize("name", NAMES)
    def test_of_key_columns(self, path: str, name: str) -> None:
        store = Builder(path, define(pa.schema([(name, pa.string()), ("n", pa.int64())]), [name], buckets=4))
        for batch in range(3):
            store.put(dict.fromkeys("abcdefgh"[batch:], batch))
        expected = dict(zip("abcdefgh", [0, 1, *[2] * 6], strict=True))
        for _ in range(2):
            reader = kv.open(path)
            assert {key: reader.get(key) for key in expected} == expected
            rows = pa.Table.from_batches(reader.scan())
            assert dict(zip(rows[name].to_pylist(), rows["n"].to_pylist(), strict=True)) == expected
            assert rows[name].to_pylist() == sorted(expected)
            assert sum(batch.num_rows for batch in kv.changes(path)) > 8
            kv.rebucket(path, 2)

    @pytest.mark.parametrize("name", ["", "_op", "_deletedMs", FOUND])
    def test_that_no_store_has(self, name: str) -> None:
        with pytest.raises(ConfigError, match=f"column '{name}': .* other than _op, _deletedMs, _found: rename it"):
            define(pa.schema([("k", pa.string()), (name, pa.int64())]), ["k"])

    def test_merge_functions_by_column(self) -> None:
        schema = pa.schema([("k", pa.string()), ("a,b", pa.int64()), ("a:b", pa.int64())])
        assert define(schema, ["k"], merge={"a,b": "sum", "a:b": "last"}).merge == {"a,b": "sum"}
        with pytest.raises(ConfigError, match="'c' is not one of the value columns"):
            define(schema, ["k"], merge={"c": "sum"})
        with pytest.raises(ConfigError, match="use one of append, coalesce"):
            define(schema, ["k"], merge={"a:b": "total"})
        counts = pa.schema([("k", pa.string()), ("n", pa.int64())])
        with pytest.raises(ConfigError, match="'total' is not understood: use one of append, coalesce"):
            define(counts, ["k"], merge="n:total")  # the column of that name, not a module

    def test_merge_functions_of_the_store_are_not_parsed(self) -> None:
        schema = pa.schema([("k", pa.string()), ("a,b:sum", pa.int64())])
        recorded = define(schema, ["k"], merge={"a,b:sum": "max"})
        given = {"path": "memory://arguments/x", "keyColumns": "k"}
        config = StoreConfig.from_options(given, spark_schema_json(schema), recorded=recorded)
        assert config.definition.merge == recorded.merge

    @pytest.mark.slow
    def test_no_value_columns(self, path: str) -> None:
        query = query_of(path, {"k": "string", "gone": "boolean"}, deleteColumn="gone")
        query.run(0, [[{"k": key, "gone": False} for key in "abc"]])
        query.run(1, [[{"k": "a", "gone": True}, {"k": "d", "gone": False}]])
        for _ in range(2):
            reader = kv.open(path, context=current())
            assert reader.definition.values == []
            assert [reader.get(key) for key in "ab"] == reader.multi_get(["a", "b"]) == [None, ()]
            assert reader.lookup(pa.array(["a", "b"]))[FOUND].to_pylist() == [False, True]
            assert pa.Table.from_batches(reader.scan())["k"].to_pylist() == ["b", "c", "d"]
            assert sum(batch.num_rows for batch in kv.changes(path, context=current())) == 5
            kv.compact(path, full=True, context=current())


LOOKUPS: list[tuple[pa.Array, str]] = [
    (pa.array([1, 2]), "key column 'k' has the type string; the keys have int64: cast them to string"),
    (pa.array([b"a"]), "the keys have binary: cast them"),
    (pa.array([True]), "the keys have bool: cast them"),
    (pa.array([datetime.date(2024, 1, 2)]), "cast them"),
]
TWICE = pa.table([["a"], ["b"]], ["k", "k"])
CALLS: list[tuple[Callable[[kv.Reader], Any], type[Exception], str]] = [
    *((lambda reader, keys=keys: reader.lookup(keys), ConfigError, text) for keys, text in LOOKUPS),
    (lambda reader: reader.lookup(TWICE), ConfigError, "k must occur exactly once"),
    (lambda reader: reader.lookup(pa.table({"n": [1]})), ConfigError, "k must occur exactly once"),
    (lambda reader: reader.lookup(pa.array(["a"]), ["n", "n"]), ConfigError, "name each column once"),
    (lambda reader: reader.scan(columns=["n", "k", "n"]), ConfigError, "name each column once"),
    (lambda reader: reader.scan(start=["a"]), TypeError, "key column 'k' takes str, not list"),
    (lambda reader: kv.purge(reader.path, prefix=["1"]), TypeError, "is a list: give one value, or a tuple"),
    (lambda reader: kv.purge(reader.path, ["1"]), TypeError, "is a list: give one value, or a tuple"),
    (lambda reader: kv.purge(reader.path, prefix=("a", "b")), ConfigError, "a key of this store has 1, k"),
    (lambda reader: kv.purge(reader.path, prefix=1), TypeError, "key column 'k' takes str, not int"),
]  # fmt: skip


class TestCalls:
    @parametrize(("call", "error", "text"), CALLS, ids=range(len(CALLS)), quick=6)
    def test_that_are_refused(
        self, path: str, call: Callable[[kv.Reader], Any], error: type[Exception], text: str
    ) -> None:
        Builder(path, TEXTS).put({"1": 1, "a": 2})
        reader = kv.open(path)
        with pytest.raises(error) as caught:
            call(reader)
        assert text in str(caught.value)
        assert reader.refresh() == 0

    def test_a_prefix_that_is_no_tuple_is_one_value(self, path: str) -> None:
        Builder(path, TEXTS).put({"": 0, "a": 1, "b": 2, "ab": 3})
        kv.purge(path, prefix="ab")
        assert [batch["k"].to_pylist() for batch in kv.open(path).scan()] == [["", "a", "b"]]
        kv.purge(path, prefix="")
        assert [batch["k"].to_pylist() for batch in kv.open(path).scan()] == [["a", "b"]]

    @pytest.mark.parametrize(
        ("kind", "keys"),
        [
            (pa.int64(), pa.array([1], pa.int8())),
            (pa.int8(), pa.array([1], pa.uint64())),
            (pa.string(), pa.array(["1"], pa.large_string())),
            (pa.string(), pa.array(["1"]).dictionary_encode()),
            (pa.binary(), pa.array([b"1"], pa.large_binary())),
            (pa.decimal128(9, 2), pa.array(["1"]).cast(pa.decimal128(5, 0))),
            (pa.date32(), pa.array([86_400_000], pa.date64())),
            (pa.timestamp("us"), pa.array([1], pa.timestamp("ms"))),
        ],
    )
    def test_keys_of_the_same_sort_are_cast(self, path: str, kind: pa.DataType, keys: pa.Array) -> None:
        store = Builder(path, define(pa.schema([("k", kind), ("n", pa.int64())]), ["k"]))
        store.put({keys.cast(kind)[0].as_py(): 7})
        assert kv.open(path).lookup(keys)["n"].to_pylist() == [7]
        nulls = pa.nulls(2)
        assert kv.open(path).lookup(nulls)[FOUND].to_pylist() == [False, False]

    def test_days_that_python_does_not_have(self, path: str) -> None:
        definition = define(pa.schema([("k", pa.string()), ("day", pa.date32())]), ["k"], buckets=1, merge="day:min")
        store = Builder(path, definition)
        days = pa.array([FAR, 0, FAR], pa.date32())
        store.write_tables({0: pa.table({"k": ["far", "near", "soon"], "day": days})})
        reader = kv.open(path)
        reads: list[Callable[[], Any]] = [
            lambda: reader.get("far"),
            lambda: reader.multi_get(["near", "far"]),
            lambda: reader.multi_get(["near", "far"] * 1200),
        ]
        for read in reads:
            with pytest.raises(ConfigError, match=r"key 'far': column 'day' .* after the year 9999.*lookup or scan"):
                read()
        assert reader.lookup(pa.array(["far"]))["day"].cast(pa.int32()).to_pylist() == [FAR]
        store.merge({"soon": datetime.date(1970, 1, 2)})
        reader.refresh()
        assert reader.get("soon") == reader.multi_get(["soon"])[0] == datetime.date(1970, 1, 2)
        assert reader.get("none", 5) == 5


class TestErrorsNameTheKey:
    @pytest.mark.parametrize(
        ("merge", "values", "error"),
        [("sum", (2**62, 2**62), EncodingError), ("tests.unit.kv.user_merges:Never", (1, 2), UserCodeError)],
    )
    @parametrize(
        "shown", [(pa.string(), "bad", "'bad'"), (pa.date32(), FAR, "10183-09-21"), (pa.int64(), 7, "7")], quick=1
    )
    def test_by_every_read(self, path: str, merge: str, values: Any, error: Any, shown: Any) -> None:
        kind, key, text = shown
        schema = pa.schema([("k", kind), ("n", pa.int64())])
        store = Builder(path, define(schema, ["k"], buckets=1, merge=f"n:{merge}"))
        keys = pa.array([key], kind)
        for value in values:
            rows = pa.table({"k": keys, "n": [value], "_op": pa.array([1], pa.int8())})
            store.write_tables({0: rows})
        reader = kv.open(path, merge=merge)
        reads: list[Callable[[], Any]] = [
            lambda: reader.lookup(pa.concat_arrays([keys, keys])),
            lambda: [*reader.scan()],
            lambda: [*kv.changes(path, merge=merge)],
        ]
        if kind != pa.date32():
            reads += [lambda: reader.get(key), lambda: reader.multi_get([key] * 1200)]
        for read in reads:
            with pytest.raises(error, match=rf"key \({text}\)"):
                read()


TYPES = [
    ("bigint", pa.int64()), ("LONG", pa.int64()), ("int", pa.int32()), ("integer", pa.int32()), ("tinyint", pa.int8()),
    ("SmallInt", pa.int16()), ("real", pa.float32()), ("float", pa.float32()), ("double", pa.float64()),
    ("timestamp_ltz", pa.timestamp("us", "UTC")), ("TIMESTAMP", pa.timestamp("us", "UTC")),
    ("timestamp_ntz", pa.timestamp("us")), ("numeric", pa.decimal128(10, 0)), ("dec(5)", pa.decimal128(5, 0)),
    ("Numeric( 12 , 2 )", pa.decimal128(12, 2)), ("decimal(38,10)", pa.decimal128(38, 10)), ("string", pa.string()),
    ("varchar(5)", pa.string()), ("binary", pa.binary()), ("boolean", pa.bool_()), ("date", pa.date32()),
]  # fmt: skip


class TestTypeNames:
    @pytest.mark.parametrize(("name", "kind"), TYPES)
    def test_of_spark_and_sql(self, name: str, kind: pa.DataType) -> None:
        assert type_named("n", name) == kind

    @pytest.mark.parametrize(
        ("name", "example"),
        [("array<string>", "pa.list_"), ("MAP<string, int>", "pa.map_"), ("struct<a: int>", "pa.struct")],
    )
    def test_nested_ones_are_given_as_types_of_arrow(self, name: str, example: str) -> None:
        with pytest.raises(ConfigError, match=rf"column 'n': give '{name}' as a type of Arrow, such as {example}"):
            type_named("n", name)

    @pytest.mark.parametrize("name", ["text", "decimal(50,2)", "interval day", ""])
    def test_others(self, name: str) -> None:
        with pytest.raises(SchemaError, match="column `n`"):
            type_named("n", name)


def test_definitions_come_back_from_the_log() -> None:
    schema = pa.schema([("k", pa.string()), ("a,b", pa.int64()), (" a", pa.int64())])
    made = define(schema, ["k"], merge={"a,b": "sum", " a": "max"})
    assert StoreDefinition.from_json(made.to_json()) == made
