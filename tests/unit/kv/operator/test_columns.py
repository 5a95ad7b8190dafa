"""The definition of a store, given as objects: columns, types by their names, and merge functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, EncodingError
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.micro_batch import StoreBatch
from tests.kit.parameters import parametrize
from tests.kit.store_check import check_store
from tests.unit.kv.operator.stores import keys_of, open_store

if TYPE_CHECKING:
    from pathlib import Path

ODD_NAMES = ["a,b", "a:b", " a", ".a", "_number", "n"]
SUMS = dict.fromkeys(ODD_NAMES, "sum")


@pytest.fixture
def fs() -> CrashingFileSystem:
    return CrashingFileSystem()


@parametrize("merge", ["sum", SUMS, SUMS | {"n": "last"}], ids=["text", "mapping", "one is last"], quick=1)
def test_columns_of_any_name_have_functions(tmp_path: Path, merge: Any) -> None:
    path, columns = f"{tmp_path}/store", dict.fromkeys(ODD_NAMES, "long")
    last = 1 if isinstance(merge, dict) and merge["n"] == "last" else 3
    for given in (merge, None):
        shape: dict[str, Any] = {"keys": {"k": "string"}, "values": columns} if given else {}
        with kv.KeyValueStore(path, writer="w", merge=given, maintenance="none", **shape) as store:
            store.merge("a", (1,) * 6)
            store.commit()
    StoreBatch(path, {"k": "string", **columns}, {"keyColumns": "k"}).run(
        0, [[{"k": "a", **dict.fromkeys(ODD_NAMES, 1)}]]
    )
    with kv.KeyValueStore(path, writer="w", maintenance="none") as store:
        assert tuple(store.get("a")) == (3,) * 5 + (last,)
        assert tuple(store.read("a")) == (3,) * 5 + (last,)


def test_functions_by_name_are_those_of_the_text(fs: CrashingFileSystem) -> None:
    shape: dict[str, Any] = {"keys": {"k": "string"}, "values": {"n": "long", "m": "long"}}
    with open_store(fs, **shape, merge={"n": "sum", "m": "last"}) as store:
        assert store.definition.merge == {"n": "sum"}
    for same in ({"n": "sum"}, {"N": "sum"}, "n:sum", None):
        open_store(fs, merge=same).close()
    with pytest.raises(ConfigError, match="merge: the store has n:sum, and m:sum is given"):
        open_store(fs, merge={"m": "sum"})
    with pytest.raises(ConfigError, match="'x' is not one of the value columns"):
        open_store(fs, merge={"x": "sum"})
    with pytest.raises(TypeError, match=r"merge=.*it takes a text, or a dictionary of texts"):
        open_store(fs, merge={"n": 5})


def test_names_are_spelled_as_the_store_has_them(fs: CrashingFileSystem) -> None:
    shape: dict[str, Any] = {"keys": {"City": "string", "day": "date"}, "values": {"Total": "long"}, "buckets": 4}
    with open_store(fs, **shape, bucket_by=["city"], merge={"total": "sum"}) as store:
        definition = store.definition
        assert (definition.bucket_by, definition.merge) == (("City",), {"Total": "sum"})
    lower: dict[str, Any] = {"keys": {"city": "string", "DAY": "date"}, "values": {"total": "bigint"}}
    with open_store(fs, **lower) as store:
        assert store.definition == definition


def test_types_are_named_as_in_spark_or_sql(fs: CrashingFileSystem) -> None:
    types = {"a": "BIGINT", "b": "real", "c": "timestamp_ltz", "d": "Numeric(12, 2)", "e": "dec", "f": pa.int16()}
    with open_store(fs, keys={"k": "Int"}, values=types) as store:
        assert store.definition.schema.types == [
            pa.int32(),
            pa.int64(),
            pa.float32(),
            pa.timestamp("us", "UTC"),
            pa.decimal128(12, 2),
            pa.decimal128(10, 0),
            pa.int16(),
        ]
    with pytest.raises(ConfigError, match=r"column 'a': give 'array<int>' as a type of Arrow, such as pa\.list_"):
        open_store(CrashingFileSystem(), values={"a": "array<int>"})
    with pytest.raises(ConfigError, match="keyColumns names no column"):
        open_store(CrashingFileSystem(), keys={})


@pytest.mark.slow
def test_a_store_of_keys_alone(tmp_path: Path) -> None:
    path = f"{tmp_path}/store"
    with kv.KeyValueStore(path, writer="w", keys={"k": "string"}, values={}, maintenance="none") as store:
        assert store.definition.values == []
        store.begin_window(1)
        for key in ("a", "b", "c"):
            store.put(key, ())
        store.merge("d", {})
        store.end_window()
        with pytest.raises(EncodingError, match=r"a row must have a value for each of the columns \(none\)"):
            store.put("e", 1)
    with kv.KeyValueStore(path, writer="w", maintenance="none") as store:
        assert (store.read("a"), store.get_uncommitted("d"), store.get("a")) == ((), (), None)
        store.begin_window(2)
        store.delete("a")
        store.end_window()
        assert (store.read("a", "none"), store.get_uncommitted("a")) == ("none", kv.DELETED)
        store.committed(2)
        assert (store.get("a"), store.multi_get(["a", "b"]), keys_of(store)) == (None, [None, ()], ["b", "c", "d"])
        assert store.lookup(pa.array(["a", "b"])).to_pylist() == [
            {"k": "a", "_found": False},
            {"k": "b", "_found": True},
        ]
        store.put("a", ())
        store.commit()
    kv.compact(path, full=True)
    with kv.open(path) as reader:
        assert [row for batch in reader.scan() for row in batch.to_pylist()] == [{"k": key} for key in "abcd"]
    changed = [row["k"] for batch in kv.changes(path) for row in batch.to_pylist()]
    assert sorted(changed) == ["a", "b", "c", "d"]
    with kv.KeyValueStore(path, writer="w", values={}, maintenance="none") as store:
        check_store(store.log.fs)
