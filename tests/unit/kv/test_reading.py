"""A store as users read it: keys, versions, errors, many threads."""

from __future__ import annotations

import datetime
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, CorruptData, EncodingError, StaleFiles
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.keys import Keys
from ftfile.kv.definition import FOUND, define
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.kv.building import COUNTS, Builder
from tests.unit.kv.stores import counting, rows
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from pathlib import Path

MANY = 9_000  # rows with which a run has pages
NUMBERED = define(pa.schema([("id", pa.int64()), ("text", pa.string()), ("n", pa.int64())]), ["id"], buckets=2)


def numbers(rows: range) -> dict[Any, Any]:
    return {id_: (f"text {id_}", id_ * 2) for id_ in rows}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    """Two runs a bucket that have pages, the second with half of the first one's keys."""
    made = Builder(str(tmp_path_factory.mktemp("reading") / "store"), NUMBERED, block_bytes=2048)
    made.put(numbers(range(0, 2 * MANY, 2)))
    made.put({id_: ("new", -id_) for id_ in range(0, MANY, 2)})
    return made


def read_all(reader: kv.Reader, **options: Any) -> list[dict[str, Any]]:
    return [row for batch in reader.scan(**options) for row in batch.to_pylist()]


@pytest.mark.slow
def test_rows_are_values_or_named_tuples(path: str, numbered: Builder) -> None:
    Builder(path).put({"a": 1, "b": None})
    with kv.open(path) as words:
        assert [words.get("a"), words.get(("b",), 7), words.get("c"), words.get("c", 7)] == [1, None, None, 7]
        assert words.multi_get(["c", "a", ("b",), "a"]) == [None, 1, None, 1]
    row = kv.open(numbered.path).get(4)
    assert row == ("new", -4)
    assert row.text == "new"
    assert row.n == -4


@pytest.mark.slow
def test_many_keys_of_several_columns_are_found_by_the_columns_of_their_buckets(path: str) -> None:
    fields = [("day", pa.date32()), ("user", pa.string()), ("ok", pa.bool_()), ("n", pa.int64())]
    store = Builder(path, define(pa.schema(fields), ["day", "user", "ok"], buckets=4, bucket_by=["user"]))
    days = [datetime.date(1969, 12, 1) + datetime.timedelta(number) for number in range(40)]
    rows = {(day, f"u{user}", bool(user % 2)): day.day * user for day in days for user in range(20)}
    store.put(rows)
    asked = [*rows, *((day, "nobody", True) for day in days)]
    assert kv.open(path).multi_get(asked) == [rows.get(key) for key in asked]


@pytest.mark.slow
def test_reads_agree(numbered: Builder) -> None:
    expected = numbers(range(0, 2 * MANY, 2)) | {id_: ("new", -id_) for id_ in range(0, MANY, 2)}
    reader = kv.open(numbered.path)
    asked = [int(id_) for id_ in np.random.default_rng(0).integers(-10, 2 * MANY + 10, 2_500)]
    rows = [expected.get(id_) for id_ in asked]
    assert reader.multi_get(asked) == rows
    assert reader.multi_get(asked[:20]) == rows[:20]
    assert [reader.get(id_) for id_ in asked[:100]] == rows[:100]
    table = reader.lookup(pa.array(asked))
    assert table.column_names == ["id", "text", "n", FOUND]
    assert table["id"].to_pylist() == asked
    assert table[FOUND].to_pylist() == [row is not None for row in rows]
    assert table["n"].to_pylist() == [None if row is None else row[1] for row in rows]
    found = read_all(reader)
    assert found == [{"id": id_, "text": text, "n": n} for id_, (text, n) in sorted(expected.items())]
    assert read_all(reader, start=7, end=12, columns=["n"]) == [{"n": -8}, {"n": -10}]
    by_bucket = [read_all(reader, columns=["id"], buckets=[bucket]) for bucket in range(2)]
    assert sorted(row["id"] for part in by_bucket for row in part) == sorted(expected)
    assert all(by_bucket)


@pytest.mark.slow
def test_lookup_takes_tables_with_nulls_and_repeated_keys(path: str) -> None:
    store = Builder(
        path, define(pa.schema([("a", pa.string()), ("b", pa.int32()), ("v", pa.int64())]), ["a", "b"], merge="v:sum")
    )
    store.put({("x", 1): 1, ("x", 2): 2})
    store.merge({("x", 1): 10, ("y", 1): 5})
    reader = kv.open(path)
    keys = pa.table({"more": [0] * 5, "b": [1, 1, None, 2, 1], "a": ["x", "x", "x", "x", "y"]})
    found = reader.lookup(keys, ["v"])
    assert found.to_pydict() == {
        "a": ["x", "x", "x", "x", "y"],
        "b": [1, 1, None, 2, 1],
        "v": [11, 11, None, 2, 5],
        FOUND: [True, True, False, True, True],
    }
    assert reader.lookup(keys.slice(0, 0)).num_rows == 0
    assert found.schema.field("b").type == pa.int32()
    for wrong, error in ((["x"], TypeError), (pa.array(["x"]), ConfigError), (pa.table({"a": ["x"]}), ConfigError)):
        with pytest.raises(error):
            reader.lookup(wrong)
    with pytest.raises(ConfigError, match="key column 'b'"):
        reader.lookup(pa.table({"a": ["x"], "b": ["no number"]}))
    with pytest.raises(ConfigError, match="columns"):
        reader.lookup(keys, ["w"])
    assert read_all(reader, start="x", end=("x", 2)) == [{"a": "x", "b": 1, "v": 11}]


@pytest.mark.slow
def test_a_reader_is_a_version(path: str) -> None:
    store = Builder(path)
    store.put({"a": 1})
    reader = kv.open(path)
    store.put({"a": 2, "b": 2})
    scan = reader.scan()
    assert reader.get("a") == 1
    assert reader.refresh() == reader.version == 1
    assert reader.get("a") == 2
    assert [row for batch in scan for row in batch.to_pylist()] == [{"word": "a", "seen": 1}]
    older = reader.at(0)
    assert (older.version, older.get("a"), older.get("b")) == (0, 1, None)
    assert kv.open(path, version=0).get("a") == 1
    store.delete("a")
    assert (reader.refresh(), reader.get("a"), older.get("a"), reader.at(1).get("a")) == (2, None, 1, 2)
    assert older.refresh() == 2
    for wrong in (-1, 3):
        with pytest.raises(ConfigError, match="the newest is 2"):
            reader.at(wrong)
    with pytest.raises(ConfigError, match="give only one of them"):
        kv.open(path, version=0, timestamp="2024-01-01")
    with pytest.raises(ConfigError, match="no version is as old"):
        kv.open(path, timestamp=datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc))
    with pytest.raises(ConfigError, match="not an ISO 8601 time"):
        kv.open(path, timestamp="yesterday")
    assert kv.open(path, timestamp="2100-01-01").version == 2


@pytest.mark.slow
def test_merges_fold_in_all_reads(path: str) -> None:
    store = Builder(path, COUNTS)
    store.put({"a": 1})
    for _ in range(3):
        store.merge({"a": 10, "b": 1})
    store.delete("b")
    store.merge({"b": 5})
    reader = kv.open(path)
    assert reader.multi_get(["a", "b"]) == [31, 5]
    store.merge({"a": 2**63 - 1})
    reader.refresh()
    for read in (lambda: reader.get("a"), lambda: reader.multi_get(["a"]), lambda: reader.lookup(pa.array(["a"]))):
        with pytest.raises(EncodingError, match="a"):
            read()
    assert reader.get("b") == 5


@pytest.mark.slow
def test_columns_that_came_later_are_null(path: str) -> None:
    old = define(pa.schema([("id", pa.int32()), ("n", pa.int32())]), ["id"], buckets=2)
    new = define(pa.schema([("id", pa.int32()), ("n", pa.int64()), ("text", pa.string())]), ["id"], buckets=2)
    Builder(path, old).put({1: 1, 2: 2})
    reader = kv.open(path)
    assert reader.get(1) == 1
    store = Builder(path, new)
    store.put({2: (2**40, "x")})
    reader.refresh()
    assert reader.multi_get([1, 2]) == [(1, None), (2**40, "x")]
    assert reader.get(1).text is None
    assert reader.lookup(pa.array([1, 2], pa.int32()))["n"].to_pylist() == [1, 2**40]
    assert read_all(reader) == [{"id": 1, "n": 1, "text": None}, {"id": 2, "n": 2**40, "text": "x"}]
    assert reader.at(0).get(1) == 1


NAIVE = datetime.datetime(1950, 1, 2, 3)  # noqa: DTZ001 - for columns without a zone
AWARE = NAIVE.replace(tzinfo=datetime.timezone.utc)
KEYS = [
    (pa.binary(), b"k", [bytearray(b"k")], ["k", 1, None]),
    (pa.string(), "k", ["k"], [b"k", 1, None]),
    (pa.int8(), 5, [np.int64(5)], ["5", 5.0, True, None]),
    (pa.bool_(), True, [True], [1, "true"]),
    (pa.date32(), datetime.date(2024, 1, 2), [], [NAIVE, 5, "2024-01-02"]),
    (pa.timestamp("us"), NAIVE, [], [AWARE, 1]),
    (pa.timestamp("us", "UTC"), AWARE, [], [NAIVE]),
    (pa.decimal128(5, 2), Decimal("-1.50"), [Decimal("-1.5")], [1.5, "1.5"]),
]


@parametrize(("kind", "key", "alike", "wrong"), KEYS, ids=[str(kind) for kind, *_ in KEYS], quick=3)
def test_keys_of_every_type(path: str, kind: pa.DataType, key: Any, alike: list[Any], wrong: list[Any]) -> None:
    Builder(path, define(pa.schema([("k", kind), ("v", pa.string())]), ["k"], buckets=2)).put({key: "found"})
    reader = kv.open(path)
    for given in (key, (key,), *alike):
        assert reader.get(given) == "found"
        for count in (1, 300):  # one by one, and together
            assert reader.multi_get([given] * count) == ["found"] * count
    assert reader.lookup(pa.array([key], kind))[FOUND].to_pylist() == [True]
    assert read_all(reader, start=key) == [{"k": key, "v": "found"}]
    assert read_all(reader, end=key) == []
    for other in wrong:
        with pytest.raises(TypeError, match="key column 'k' takes"):
            reader.get(other)


def test_keys_that_are_none(path: str) -> None:
    store = Builder(
        path, define(pa.schema([("a", pa.int8()), ("b", pa.decimal128(4, 1)), ("v", pa.int64())]), ["a", "b"])
    )
    store.put({(1, Decimal(1)): 1})
    reader = kv.open(path)
    assert reader.get((1, 1)) == 1
    for wrong in ((1,), 1, (1, 1, 1)):
        with pytest.raises(ConfigError, match="a key of this store has 2, a, b"):
            reader.get(wrong)
    for bad in ((128, Decimal(1)), (1, Decimal("0.01")), (1, Decimal(1000)), (1, Decimal("NaN"))):
        with pytest.raises(ConfigError, match="cannot have"):
            reader.multi_get([bad])
    with pytest.raises(ConfigError, match="a key of this store has 2"):
        reader.scan(start=(1, Decimal(1), 1))
    with pytest.raises(ConfigError, match="columns"):
        reader.scan(columns=["w"])
    with pytest.raises(ConfigError, match="buckets"):
        reader.scan(buckets=[16])


def test_arguments_of_other_types(path: str) -> None:
    Builder(path, NUMBERED).put({1: ("a", 1)})
    reader = kv.open(path)
    wrong: list[Any] = [None, "ab", b"ab", 1, (each for each in [1]), pa.array([1])]
    for keys in wrong:
        with pytest.raises(TypeError, match="it must be a list of keys"):
            reader.multi_get(keys)
    assert reader.multi_get((1,)) == [("a", 1)]
    for buckets in (1, [True], ["0"], (each for each in [0])):
        with pytest.raises(TypeError, match=r"buckets=.*a list of ints, such as \[0, 1\], or None"):
            reader.scan(buckets=buckets)  # type: ignore[arg-type]
    assert sum(batch.num_rows for batch in reader.scan(buckets=range(2))) == 1
    for read in (lambda: reader.lookup(pa.array([1]), "n"), lambda: reader.scan(columns="n")):
        with pytest.raises(TypeError, match="columns='n': it takes a list of texts"):
            read()


def test_buckets_by_some_of_the_key_columns(path: str) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64())])
    store = Builder(path, define(schema, ["a", "b"], bucket_by=["a"], buckets=8))
    rows = {(letter, number): number for letter in "abcdefgh" for number in range(5)}
    store.put(rows)
    reader = kv.open(path)
    assert reader.multi_get([*rows]) == [*rows.values()]
    assert reader.get(("c", 3)) == 3
    keys = pa.table({"a": [key[0] for key in rows], "b": [key[1] for key in rows]})
    assert reader.lookup(keys)["v"].to_pylist() == [*rows.values()]
    assert read_all(reader, start="c", end="d", columns=["b"]) == [{"b": number} for number in range(5)]


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no store: nothing was ever committed"):
        kv.open(tmp_path / "absent")
    MicroBatch(str(tmp_path / "files"), {"id": "long"}, {"fileFormat": "json"}).run(0, [[{"id": 1}]])
    with pytest.raises(ConfigError, match="is a directory of files, not a store"):
        kv.open(tmp_path / "files")
    with pytest.raises(ConfigError, match="cache_bytes"):
        kv.open(tmp_path / "absent", cache_bytes=0)


def test_a_version_that_is_gone(path: str, tmp_path: Path) -> None:
    store = Builder(path)
    store.put({"a": 1})
    old, late = kv.open(path), kv.open(path)
    assert old.get("a") == 1
    spool = next((tmp_path / "store").rglob("*.spool"))
    store.write([(0, "a", 2)], overwrite=True)
    spool.unlink()
    for read in (
        lambda: late.get("a"),
        lambda: late.multi_get(["a"]),
        lambda: late.lookup(pa.array(["a"])),
        lambda: [*late.scan()],
    ):
        with pytest.raises(StaleFiles, match=r"version 0 .* refresh\(\)"):
            read()
    assert old.get("a") == 1  # its file is open
    assert (late.refresh(), late.get("a")) == (1, 2)
    next((tmp_path / "store").rglob("*.spool")).unlink()
    with pytest.raises(CorruptData, match="Another program deleted it"):
        kv.open(path).get("a")


@pytest.mark.slow
def test_other_keys_of_a_damaged_run_are_read(path: str, tmp_path: Path) -> None:
    Builder(path, NUMBERED, block_bytes=2048).put(numbers(range(MANY)))
    (spool,) = (tmp_path / "store").rglob("*.spool")
    content = bytearray(spool.read_bytes())
    content[len(content) // 4] ^= 1  # in a block of the first bucket's run
    spool.write_bytes(content)
    reader = kv.open(path)
    damaged = {}
    for id_ in range(MANY):
        try:
            assert reader.get(id_) == (f"text {id_}", id_ * 2)
        except CorruptData as error:
            damaged[id_] = str(error)
    assert 0 < len(damaged) < MANY // 20
    assert {message.partition("expected")[2][:7] for message in damaged.values()} == {" block "}
    assert all("spool" in message for message in damaged.values())
    with pytest.raises(CorruptData, match="block"):
        reader.multi_get([*damaged])
    with pytest.raises(CorruptData, match="block"):
        reader.lookup(pa.array([*damaged]))
    with pytest.raises(CorruptData, match="block"):
        read_all(reader)


@pytest.mark.slow
def test_an_encrypted_store(path: str, tmp_path: Path) -> None:
    write_ring(tmp_path / "ring", first=FIRST)
    provider = f"file:{tmp_path / 'ring'}"
    keys = Keys.from_reference(provider)
    store = Builder(path, NUMBERED, encryption=AesGcm("first", keys, chunk_bytes=4096))
    store.put(numbers(range(MANY)))
    store.put(numbers(range(5)))
    reader = kv.open(path, key_provider=provider)
    assert reader.multi_get([3, MANY - 1, MANY]) == [("text 3", 6), (f"text {MANY - 1}", 2 * MANY - 2), None]
    assert len(read_all(reader)) == MANY
    assert b"text 3" not in b"".join(file.read_bytes() for file in (tmp_path / "store").rglob("*.spool"))
    first = min((tmp_path / "store").rglob("*.spool"), key=lambda file: -file.stat().st_size)
    content = bytearray(first.read_bytes())
    content[len(content) // 4] ^= 1
    first.write_bytes(content)
    with pytest.raises(CorruptData, match="a chunk of an encrypted file"):
        read_all(kv.open(path, key_provider=provider))
    write_ring(tmp_path / "ring", second=FIRST)
    with pytest.raises(ConfigError, match="first"):
        kv.open(path)


@pytest.mark.slow
def test_stats_and_the_budget_of_the_cache(numbered: Builder) -> None:
    with kv.open(numbered.path, cache_bytes=100_000) as reader:
        read_all(reader)
        reader.multi_get([*range(0, MANY, 3)])
        stats = reader.stats()
        assert (stats.version, stats.newest_version, stats.runs, stats.runs_max) == (1, 1, 4, 2)
        assert stats.rows == MANY + MANY // 2
        assert 0 < stats.cache_bytes <= stats.cache_bytes_max == 100_000
    assert kv.open(numbered.path, cache_bytes=256 << 20).stats().cache_bytes_max == 256 << 20


def one_value(reader: kv.Reader, ask: int) -> int:
    """Return the value that all keys have, read in one of several ways."""
    asked = [str(number) for number in range(50)]
    found = {
        0: lambda: set(reader.multi_get(asked)),
        1: lambda: set(reader.lookup(pa.array(asked))["n"].to_pylist()),
        2: lambda: {row["n"] for row in read_all(reader)},
        3: lambda: {reader.get("7")},
    }[ask]()
    (value,) = found
    assert isinstance(value, int)
    return value


@pytest.mark.slow
def test_threads_share_a_reader(path: str) -> None:
    """A service: some threads read, one writes and refreshes; each read is of one version."""
    store, rounds = Builder(path, COUNTS), 8
    store.put({str(number): 0 for number in range(50)})
    reader, errors, done = kv.open(path), [], threading.Event()

    def serve(ask: int) -> None:
        try:
            while not done.wait(0.001):  # or an old Python hardly lets the writer have its turn
                assert one_value(reader, ask) <= rounds
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(ask,)) for ask in range(4)]
    for thread in threads:
        thread.start()
    for number in range(rounds):
        store.merge({str(number): 1 for number in range(50)})
        if number % 4 == 3:
            store.jobs()
        reader.refresh()
    done.set()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert one_value(reader, 0) == rounds


@pytest.mark.slow
def test_history_tells_of_every_kind_of_writer(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = counting(out, badRecords="drop")
    query.run(0, [[*rows("a", "b"), {"k": None, "n": 1}]])
    query.run_batch_write("job", [rows("a")])
    with kv.KeyValueStore(out, writer="w", maintenance="none") as store:
        store.merge("a", 5)
        store.merge("c", 1)
        store.commit()
    kv.purge(out, "b", "c")
    with kv.open(out, version=0) as reader:
        found = reader.history()
    assert [each.version for each in found] == [0, 1, 2, 3, 4]
    assert [each.operation for each in found] == ["stream", "batch", "openWriter", "batch", "purge"]
    assert [each.rows for each in found] == [2, 1, 0, 2, 0]
    assert [each.bad_records for each in found] == [1, 0, 0, 0, 0]
    assert (found[0].query_id, found[0].batch_id, found[1].operation_id) == (query.query_id, 0, "job")
    assert all(each.size_bytes > 0 and each.durability for each in found if each.operation != "openWriter")
