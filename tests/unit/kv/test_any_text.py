"""Strings that are not UTF-8, as Spark's may be: keys and values of a store come back byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, EncodingError
from ftfile.kv.key_columns import contain
from ftfile.testing.context import current
from ftfile.writing.batch import commit_batch
from ftfile.writing.messages import TaskIdentity
from ftfile.writing.task import write_task
from tests.kit.parameters import parametrize
from tests.unit.kv.stores import query_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BAD = b"\xff\xfe"
WORDS = [b"a", BAD, b"b"]
_STRUCT = {"type": "struct", "fields": [{"name": "x", "type": "string", "nullable": True, "metadata": {}}]}
NESTED = {"type": "array", "elementType": _STRUCT, "containsNull": True}


def texts(values: Sequence[bytes]) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def nested(values: Sequence[bytes]) -> pa.Array:
    structs = pa.StructArray.from_arrays([texts(values)], names=["x"])
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), structs)


def plain(column: pa.ChunkedArray) -> list[bytes]:
    array = column.combine_chunks()
    if pa.types.is_list(array.type):
        array = array.flatten().field("x")
    values: list[bytes] = array.view(pa.binary()).to_pylist()
    return values


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def write(out: str, words: Sequence[bytes], values: pa.Array, batch_id: int = 0, **options: Any) -> None:
    """Write one batch to a store of a key column and a value column of strings."""
    columns = {"word": "string", "value": NESTED if pa.types.is_list(values.type) else "string"}
    query = query_of(out, columns, keyColumns="word", buckets="1", **options)
    plan = query.plan()
    batch = pa.RecordBatch.from_arrays([texts(words), values], names=["word", "value"])
    message = write_task(plan, TaskIdentity(query.identity(batch_id), 0, 0), [batch], current())
    commit_batch(plan.sink, plan.config, [message], batch_id, current())


@parametrize("make", [texts, nested], quick=1)
@pytest.mark.parametrize("compression", ["lz4", "none"])
def test_every_way_to_read_has_their_bytes(out: str, make: Any, compression: str) -> None:
    write(out, WORDS, make([b"1", BAD, b"3"]), compression=compression)
    write(out, [b"c", BAD], make([b"4", b"\xc3"]), 1, compression=compression)
    expected = {b"a": b"1", BAD: b"\xc3", b"b": b"3", b"c": b"4"}
    changes = pa.Table.from_batches([*kv.changes(out, context=current())])
    assert sorted(plain(changes["word"])) == sorted([*WORDS, b"c", BAD])
    for is_compacted in (False, True):
        with kv.open(out, context=current()) as reader:
            scanned = pa.Table.from_batches([*reader.scan()])
            assert dict(zip(plain(scanned["word"]), plain(scanned["value"]), strict=True)) == expected
            looked_up = reader.lookup(texts([BAD, b"b", b"\xfe"]))
            assert looked_up["_found"].to_pylist() == [True, True, False]
            assert plain(looked_up["value"].slice(0, 2)) == [b"\xc3", b"3"]
            assert reader.get("b") == reader.multi_get(["b", "z"])[0] == make([b"3"]).to_pylist()[0]
        assert kv.verify(out, context=current()).damaged == ()
        if not is_compacted:
            kv.compact(out, full=True, context=current())


def test_python_has_no_such_values(out: str) -> None:
    write(out, WORDS, texts([b"1", b"2", BAD]))
    with kv.open(out, context=current()) as reader:
        for read in (reader.get, lambda key: reader.multi_get([key]), lambda key: reader.multi_get([key] * 40)):
            with pytest.raises(
                ConfigError, match=r"key 'b': column 'value' .* not UTF-8\. Read it as Arrow, with lookup or scan"
            ):
                read("b")
        assert reader.get("a") == "1"


def test_an_error_shows_the_bytes_of_a_key(out: str) -> None:
    values = {"word": "string", "value": "long"}
    query = query_of(out, values, keyColumns="word", buckets="1", merge="value:sum")
    plan = query.plan()
    batch = pa.RecordBatch.from_arrays([texts([BAD, BAD]), pa.array([2**63 - 1, 1])], names=["word", "value"])
    with pytest.raises(EncodingError, match=r"key \(b'\\xff\\xfe'\)"):
        write_task(plan, TaskIdentity(query.identity(0), 0, 0), [batch], current())


def test_a_range_of_such_keys_is_purged(out: str) -> None:
    write(out, WORDS, texts(WORDS))
    kv.purge(out, start="b", context=current())
    with kv.open(out, context=current()) as reader:
        assert plain(pa.Table.from_batches([*reader.scan()])["word"]) == [b"a"]


def test_a_range_of_the_log_may_end_at_such_a_key() -> None:
    assert contain([((b"b",), (BAD,))], [texts(WORDS)]).tolist() == [False, False, True]
