"""Arguments, options and names that an operator's store refuses, or warns of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.unit.kv.operator.stores import open_store
from tests.unit.kv.stores import query_of, rows

if TYPE_CHECKING:
    from pathlib import Path

SHAPE: dict[str, Any] = {"keys": {"k": "string"}, "values": {"n": "long"}, "buckets": 4, "maintenance": "none"}
PAIR: dict[str, Any] = {"a": "long", "b": "long"}


@pytest.fixture
def fs() -> CrashingFileSystem:
    return CrashingFileSystem()


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("path", "/elsewhere", "first argument"),
        ("keyColumns", "value", "argument keys="),
        ("bucketBy", "key", "argument bucket_by="),
        ("buckets", "4", "argument buckets="),
        ("MERGE", "sum", "argument merge="),
        ("deleteColumn", "value", r"call delete\(key\)"),
        ("sequenceColumn", "value", "write it by Spark"),
        ("tombstoneTtl", "1d", "for stores with a sequenceColumn"),
        ("badRecords", "drop", "for writes by Spark"),
        ("maxRecordBytes", "1m", "for writes by Spark"),
        ("maxOpenBytes", "1m", "for writes by Spark"),
        ("fingerprint", "strong", "for writes by Spark"),
        ("onNewQuery", "continue", "for writes by Spark"),
        ("onGap", "accept", "for writes by Spark"),
        ("onReplayMismatch", "keep", "for writes by Spark"),
        ("txnAppId", "app", "argument writer="),
        ("txnVersion", "1", "argument writer="),
    ],
)
def test_options_that_are_arguments_or_have_no_effect(
    fs: CrashingFileSystem, option: str, value: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=f"option '{option}' of a KeyValueStore: .*{told}"):
        open_store(fs, options={option: value})
    assert fs.list("") == []


def test_a_store_with_a_sequence_column_is_written_by_spark_alone(out: str) -> None:
    query_of(out, sequenceColumn="n").run(0, [rows("a", n=2)])
    with pytest.raises(ConfigError, match="sequenceColumn=n: it is written by Spark alone"):
        kv.KeyValueStore(out, writer="w", **SHAPE)
    with kv.open(out) as reader:
        assert reader.get("a") == 2


@pytest.mark.parametrize("given", [["b", "a"], ["new", "a", "b"], ["a", "new", "b"]])
def test_columns_in_another_order(fs: CrashingFileSystem, given: list[str]) -> None:
    widen: dict[str, Any] = {"options": {"onSchemaChange": "widen"}}
    with open_store(fs, values=PAIR) as store:
        store.put(b"k", (1, 2))
        store.commit()
        version = store.version
    with pytest.raises(ConfigError, match=r"order \['a', 'b'.*\], and \['" + "', '".join(given)):
        open_store(fs, values=dict.fromkeys(given, "long"), **widen)
    with open_store(fs, values=PAIR | {"new": "long"}, **widen) as store:
        assert store.version == version + 1, "what was refused is not recorded"
        assert store.get(b"k") == (1, 2, None)


def test_keys_in_another_order(fs: CrashingFileSystem) -> None:
    open_store(fs, keys=PAIR).close()
    with pytest.raises(ConfigError, match=r"keyColumns: the store has \['a', 'b'\], and \['b', 'a'\] is given"):
        open_store(fs, keys={"b": "long", "a": "long"})
