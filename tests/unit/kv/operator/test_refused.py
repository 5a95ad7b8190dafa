"""Arguments, options and names that an operator's store refuses, or warns of."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.kv.operator import recording
from ftfile.kv.operator.store import WINDOW_MAX
from ftfile.log import apply as fold
from ftfile.log.format.model import BatchWriteAuthor, Record, Transaction
from ftfile.log.format.record import encode_record
from ftfile.testing.context import current
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.writing.batch import commit_batch
from ftfile.writing.messages import OperationIdentity
from tests.kit.parameters import parametrize
from tests.unit.kv.operator.stores import open_store
from tests.unit.kv.stores import counting, query_of, rows

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
        ("sequenceColumn", "value", "write it with Spark"),
        ("tombstoneTtl", "1d", "for stores with a sequenceColumn"),
        ("badRecords", "drop", "for writes by Spark"),
        ("maxRecordBytes", "1m", "for writes by Spark"),
        ("maxOpenBytes", "1m", "for writes by Spark"),
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
    with pytest.raises(ConfigError, match="sequenceColumn=n: only Spark can write it"):
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
        assert store.version == version + 2, "what was refused is not recorded"
        assert store.get(b"k") == (1, 2, None)


def test_keys_in_another_order(fs: CrashingFileSystem) -> None:
    open_store(fs, keys=PAIR).close()
    with pytest.raises(ConfigError, match=r"keyColumns: the store has \['a', 'b'\], and \['b', 'a'\] is given"):
        open_store(fs, keys={"b": "long", "a": "long"})


def test_a_writer_with_the_name_of_an_application(out: str) -> None:
    query = counting(out, txnAppId="w", txnVersion="7")
    query.run_batch_write("job", [rows("a")])
    with pytest.raises(ConfigError, match=r"writer='w': Spark has written .* txnAppId='w', and its last txnVersion, 7"):
        kv.KeyValueStore(out, writer="w", **SHAPE, merge="n:sum")
    with kv.KeyValueStore(out, writer="other", **SHAPE, merge="n:sum") as store:
        assert (store.get("a"), store.last_window) == (1, -1)


def test_a_writer_whose_epoch_is_forgotten(fs: CrashingFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (fold, recording):
        monkeypatch.setattr(module, "ENTRIES_MAX", 1)
    for writer in ("w", "other", "w"):
        with open_store(fs, writer) as store:
            store.put(b"k", b"v")
            store.commit()


@parametrize("version", [0, 7], quick=1)
def test_an_application_with_the_name_of_a_writer(out: str, version: int) -> None:
    query = counting(out, txnAppId="w", txnVersion=str(version))
    counting(out).run(0, [rows("a")])
    plan, job = query.plan(), OperationIdentity("job")
    messages = [query.run_task(query.pickled_plan(), job, 0, rows("a"))]
    with kv.KeyValueStore(out, writer="w", **SHAPE, merge="n:sum") as store:
        store.begin_window(6)
        store.merge("a", 1)
        store.end_window()
        with pytest.raises(ConfigError, match=f"txnAppId='w': a KeyValueStore .* writer='w', and txnVersion={version}"):
            commit_batch(plan.sink, plan.config, messages, None, current())
        store.committed(6)
        with pytest.raises(FtfileError):
            commit_batch(plan.sink, plan.config, messages, None, current())
        with pytest.raises(ConfigError, match="txnAppId='w'"):
            query.pickled_plan()
        assert store.get("a") == 2
    counting(out, txnAppId="x", txnVersion="7").run_batch_write("job", [rows("a")])


@pytest.mark.parametrize(("windows", "known"), [([5], "5"), ([], "none")])
def test_a_restore_to_a_window_that_is_not_known(
    fs: CrashingFileSystem, caplog: pytest.LogCaptureFixture, windows: list[int], known: str
) -> None:
    with open_store(fs) as store:
        for number in windows:
            store.begin_window(number)
            store.put(b"k", b"v")
            store.end_window()
    with caplog.at_level(logging.WARNING), open_store(fs, restore=100) as store:
        assert store.last_window == 100
    assert f"restore=100: the store at operator://store/ has windows of writer 'w' up to {known}." in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        open_store(fs, restore=max(windows, default=-1)).close()
    assert "restore=" not in caplog.text


@pytest.mark.parametrize("given", [True, 7.5, "1", np.True_])
def test_a_window_that_is_no_int(fs: CrashingFileSystem, given: Any) -> None:
    with open_store(fs) as store:
        for call in (store.begin_window, store.commit, store.committed, store.checkpointed):
            with pytest.raises(TypeError, match=f"window={given!r}: it takes an int".replace("(", r"\(")):
                call(given)
        store.begin_window(1)
        store.put(b"k", b"v")
        store.end_window()
        store.committed(1)
    with open_store(fs) as store:
        assert (store.recorded_window, store.get(b"k")) == (1, b"v")


def test_a_window_of_more_than_64_bits(fs: CrashingFileSystem) -> None:
    with open_store(fs) as store:
        for call in (store.begin_window, store.commit):
            with pytest.raises(ConfigError, match=f"window {WINDOW_MAX + 1}: the number of a window is at most"):
                call(WINDOW_MAX + 1)
        store.begin_window(WINDOW_MAX)
        store.put(b"k", b"v")
        store.end_window()
        store.committed(WINDOW_MAX)
        store.put(b"k", b"w")
        with pytest.raises(ConfigError, match="is at most"):
            store.commit()
    with pytest.raises(ConfigError, match="is at most"):
        open_store(fs, restore=WINDOW_MAX + 1)
    with open_store(fs) as store:
        assert (store.recorded_window, store.get(b"k")) == (WINDOW_MAX, b"v")


def test_windows_of_numpy(fs: CrashingFileSystem) -> None:
    with open_store(fs) as store:
        store.begin_window(np.int64(5))
        store.put(b"k", b"v")
        store.end_window()
        store.checkpointed(np.int64(5))
        store.committed(np.int32(5))
        assert type(store.last_window) is int
        store.put(b"l", b"w")
        store.commit(np.uint8(6))
    with open_store(fs, restore=np.int64(6)) as store:
        assert (store.recorded_window, store.multi_get([b"k", b"l"])) == (6, [b"v", b"w"])


def test_a_transaction_that_nobody_could_read() -> None:
    record = Record(0, "0" * 32, BatchWriteAuthor("job", Transaction("w", version=True)), 0)
    with pytest.raises(ConfigError, match="the version of a transaction is True, but must be an int"):
        encode_record(record)
