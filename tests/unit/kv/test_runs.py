"""Runs are read as they were written: by single keys, by many, by ranges; in memory that is bounded."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from ftfile.core.errors import EncodingError
from ftfile.kv.hashing import hash_rows
from ftfile.kv.run import reader as reading
from ftfile.kv.run.block_batch import COMPRESSIONS, BlockBatch
from ftfile.kv.run.pages import Cache
from ftfile.kv.run.reader import END_BYTES, RunReader
from ftfile.kv.run.writer import PAGED_ROWS_MIN, write_run
from tests.kit.parameters import parametrize
from tests.unit.kv.runs import NUMBERS, Stream, Written, block_sizes, keys_of, numbered, open_run, written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE_BYTES = 4096 * 4
SIZES = [0, 1, 2, 1000, PAGED_ROWS_MIN - 1, PAGED_ROWS_MIN, 20_000]
TYPED = pa.schema(
    [
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("time", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(18, 2)),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("a", pa.int16()),
        ("b", pa.float64()),
        ("c", pa.bool_()),
        ("d", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
        ("e", pa.binary()),
        ("f", pa.timestamp("us")),
        ("_op", pa.int8()),
    ]
)
TYPED_KEYS = TYPED.names[:7]


def table_of(batches: Any, schema: pa.Schema = NUMBERS) -> pa.Table:
    return pa.Table.from_batches(list(batches), schema)


def typed(rows: int) -> pa.RecordBatch:
    """Rows with a column of every type that a key can have, of which only the last ones differ at times."""
    lists: list[list[Any]] = [
        [f"key {row // 40:06}" for row in range(rows)],
        [bytes([row // 20 % 2]) for row in range(rows)],
        [row // 10 % 2 - 1 for row in range(rows)],
        [row // 5 % 2 * 10**15 - 1 for row in range(rows)],
        [Decimal(row % 5 - 2) for row in range(rows)],
        [True] * rows,
        [row // 1000 for row in range(rows)],
        [None if row % 3 else row for row in range(rows)],
        [row / 4 for row in range(rows)],
        [None if row % 4 == 0 else row % 2 == 0 for row in range(rows)],
        [None if row % 5 == 0 else [{"x": row, "y": str(row)}] * (row % 3) for row in range(rows)],
        [None if row % 6 == 0 else bytes(row % 9) for row in range(rows)],
        [None if row % 7 == 0 else datetime.datetime(2026, 1, 1) for row in range(rows)],  # noqa: DTZ001
        [row % 3 for row in range(rows)],
    ]
    columns = [pa.array(values, kind) for values, kind in zip(lists, TYPED.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=TYPED)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("rows", SIZES)
class TestReading:
    @pytest.mark.slow
    def test_single_keys(self, rows: int, compression: str) -> None:
        batch = numbered(rows)
        run = open_run(written([batch], NUMBERS, ["id"], compression))
        texts = batch.column(1).to_pylist()
        for (key, hashed), text in [*zip(keys_of(batch), texts, strict=True)][:: max(rows // 500, 1)]:
            assert run.get(key, hashed) == (text,)
        others = pa.array([-1, 1, 2, 3 * rows, 2**62, *range(3 * rows + 1, 3 * rows + 300)], pa.int64())
        for key, hashed in keys_of(pa.RecordBatch.from_arrays([others], ["id"])):
            assert run.get(key, hashed) is None
        assert run.rows == rows
        assert (run.first_key, run.last_key) == (((0,), (3 * rows - 3,)) if rows else (None, None))

    @pytest.mark.packages
    @pytest.mark.slow
    def test_many_keys(self, rows: int, compression: str, seed: int) -> None:
        batch = numbered(rows)
        run = open_run(written([batch], NUMBERS, ["id"], compression))
        wanted = list(range(-2, min(3 * rows, 3000)))
        random.Random(seed).shuffle(wanted)
        keys = pa.RecordBatch.from_arrays([pa.array(wanted, pa.int64())], ["id"])
        numbers, found = run.multi_get(keys, hash_rows(keys.columns))
        there = [key for key in wanted if key >= 0 and key % 3 == 0 and key < 3 * rows]
        assert sorted(numbers.tolist()) == [place for place, key in enumerate(wanted) if key in set(there)]
        assert found.column(0).to_pylist() == [wanted[number] for number in numbers.tolist()]
        assert table_of([found]).equals(table_of([batch.take(pa.array([wanted[n] // 3 for n in numbers], pa.int64()))]))

    @pytest.mark.packages
    @pytest.mark.slow
    def test_ranges(self, rows: int, compression: str) -> None:
        batch = numbered(rows)
        run = open_run(written([batch], NUMBERS, ["id"], compression))
        assert table_of(run.scan()).equals(table_of([batch]))
        ends = [None, -5, 0, 1, 3, 299, 300, 1500, 3 * rows - 3, 3 * rows]
        for start in ends:
            for end in ends:
                found = table_of(run.scan(None if start is None else (start,), None if end is None else (end,)))
                low = 0 if start is None else max(-(-start // 3), 0)
                high = rows if end is None else min(max(-(-end // 3), low), rows)
                assert found.equals(table_of([batch.slice(low, max(high - low, 0))])), (start, end)
        (texts,) = {tuple(part.schema.names) for part in run.scan(columns=["text"])} or {("text",)}
        assert texts == ("text",)

    @pytest.mark.slow
    def test_hd_21_seeks_to_an_existing_and_to_a_missing_key(self, rows: int, compression: str) -> None:
        run = open_run(written([numbered(rows)], NUMBERS, ["id"], compression))
        for key in {0, 3 * (rows // 2), 3 * rows - 3} if rows else ():
            assert next(iter(run.scan((key,)))).column(0)[0].as_py() == key
            following = [batch.column(0)[0].as_py() for batch in run.scan((key + 1,))][:1]
            assert following == ([key + 3] if key + 3 < 3 * rows else [])

    @pytest.mark.slow
    def test_it_is_whole(self, rows: int, compression: str) -> None:
        open_run(written([numbered(rows)], NUMBERS, ["id"], compression)).verify()


class TestTypes:
    @parametrize("rows", [900, 5000], quick=1)
    def test_keys_of_several_columns(self, rows: int) -> None:
        batch = typed(rows)
        run = open_run(written([batch], TYPED, TYPED_KEYS))
        expected = [tuple(row[name] for name in TYPED.names[7:]) for row in batch.to_pylist()]
        for (key, hashed), row in [*zip(keys_of(batch, 7), expected, strict=True)][::7]:
            assert run.get(key, hashed) == row
            assert run.get((*key[:-1], key[-1] + 50), hashed) is None  # as if hashes were equal
        keys = batch.select(TYPED_KEYS).slice(3, 500)
        numbers, found = run.multi_get(keys, hash_rows(keys.columns))
        assert table_of([found], TYPED).equals(table_of([batch.slice(3).take(pa.array(numbers))], TYPED))
        assert len(numbers) == 500
        run.verify()

    def test_ranges_of_prefixes(self) -> None:
        batch = typed(2000)
        run = open_run(written([batch], TYPED, TYPED_KEYS))
        found = table_of(run.scan((b"key 000002",), (b"key 000004",)), TYPED)
        assert found.equals(table_of([batch.slice(80, 80)], TYPED))
        found = table_of(run.scan((b"key 000002", b"\1"), (b"key 000003", b"\0", 0)), TYPED)
        assert found.equals(table_of([batch.slice(100, 30)], TYPED))

    def test_columns_of_keys_alone(self) -> None:
        schema = pa.schema([pa.field("k", pa.string())])
        batch = pa.RecordBatch.from_arrays([pa.array(["", "a", "b"])], schema=schema)
        run = open_run(written([batch], schema, ["k"]))
        ((key, hashed), *_) = keys_of(batch)
        assert run.get(key, hashed) == ()
        run.verify()


class TestWriting:
    @pytest.mark.slow
    def test_batches_of_any_sizes_give_one_run(self, seed: int) -> None:
        batch = numbered(40_000)
        cuts = sorted(random.Random(seed).sample(range(1, 40_000), 300))
        pieces = [batch.slice(a, b - a) for a, b in zip([0, 0, *cuts], [0, *cuts, 40_000], strict=True)]
        run = open_run(written(pieces, NUMBERS, ["id"]))
        run.verify()
        assert table_of(run.scan()).equals(table_of([batch]))

    def test_blocks_have_about_the_length_asked_for(self) -> None:
        content = written([numbered(40_000)], NUMBERS, ["id"], "none", 8192)
        sizes = block_sizes(open_run(content))
        assert max(sizes) <= 9000
        assert np.median(sizes) >= 6000

    @pytest.mark.slow
    def test_rows_may_become_longer(self) -> None:
        schema = pa.schema([("k", pa.int32()), ("v", pa.binary())])
        values = [b""] * 3000 + [bytes(20_000)] * 200 + [b""] * 3000
        columns = [pa.array(range(len(values)), pa.int32()), pa.array(values)]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        content = written([batch.slice(start, 500) for start in range(0, 6200, 500)], schema, ["k"], "none", 32_768)
        run = open_run(content)
        run.verify()
        for key, hashed in keys_of(batch)[::13]:
            assert run.get(key, hashed) == (values[key[0]],)
        assert max(block_sizes(run)) < 4_000_000

    @pytest.mark.parametrize(
        ("ids", "pieces", "message"),
        [
            ([1, 2, 2, 3], 1, r"keys do not rise: \(2,\), and then \(2,\)"),
            ([1, 5, 4], 1, r"keys do not rise: \(5,\), and then \(4,\)"),
            ([7, 7], 2, r"keys do not rise: \(7,\), and then \(7,\)"),
            ([1, None], 1, "is null"),
        ],
    )
    def test_keys_that_do_not_rise_are_refused(self, ids: list[int | None], pieces: int, message: str) -> None:
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        batch = pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), pa.nulls(len(ids), pa.string())], schema=schema)
        size = len(ids) // pieces
        with pytest.raises(EncodingError, match=message):
            written([batch.slice(n * size, size) for n in range(pieces)], schema, ["id"], block_bytes=1)

    def test_it_begins_where_the_stream_is(self) -> None:
        stream = Stream()
        stream.write(b"before")
        summary = write_run(stream, [numbered(5000)], NUMBERS, ["id"])
        assert summary == (5000, ((0,), (14997,)))
        open_run(bytes(stream.content[6:])).verify()

    @pytest.mark.slow
    def test_memory_is_that_of_some_blocks(self) -> None:
        before, most = pa.total_allocated_bytes(), 0
        schema = pa.schema([("k", pa.int64()), ("v", pa.binary())])

        def batches() -> Any:
            nonlocal most
            for start in range(0, 20_000, 1000):
                keys, values = pa.array(range(start, start + 1000)), pa.array([bytes(1000)] * 1000)
                yield pa.RecordBatch.from_arrays([keys, values], schema=schema)
                most = max(most, pa.total_allocated_bytes() - before)

        written(batches(), schema, ["k"], "none", 65_536)
        assert most < 6_000_000


class TestTouching:
    def test_a_small_run_is_read_at_once(self) -> None:
        file = Written(written([numbered(3000)], NUMBERS, ["id"]))
        run = RunReader(file.read_range, len(file.content), "a.spool", Cache(1 << 20))
        for key, hashed in keys_of(numbered(3000))[:50]:
            assert run.get(key, hashed) is not None
        assert file.reads == [(0, len(file.content))]

    def test_a_key_takes_a_page_and_a_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "END_BYTES", 100)  # enough for the trailer, and too few for the index
        file = Written(written([numbered(20_000)], NUMBERS, ["id"]))
        run = RunReader(file.read_range, len(file.content), "a.spool", Cache(1 << 20))
        assert len(file.reads) == 2
        file.reads.clear()
        key, hashed = keys_of(numbered(1))[0]
        assert run.get(key, hashed) == ("text 0 ",)
        assert run.get(key, hashed) == ("text 0 ",)
        page, block = file.reads
        assert page[1] == 16_384
        assert block[1] < 8192

    @pytest.mark.slow
    def test_what_is_missing_is_fetched_side_by_side(self) -> None:
        calls: list[int] = []

        def parallel(call: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
            calls.append(len(items))
            return [call(item) for item in items]

        batch = numbered(20_000)
        run = open_run(written([batch], NUMBERS, ["id"]), parallel=parallel)
        keys = batch.select(["id"])
        for _ in range(2):
            assert len(run.multi_get(keys, hash_rows(keys.columns))[0]) == 20_000
        assert calls == [9, len(block_sizes(run))]

    def test_answers_are_right_without_a_cache(self) -> None:
        batch = numbered(6000)
        run = open_run(written([batch], NUMBERS, ["id"]), cache_bytes=0)
        for key, hashed in keys_of(batch)[::100]:
            assert run.get(key, hashed) is not None
        keys = batch.select(["id"])
        assert len(run.multi_get(keys, hash_rows(keys.columns))[0]) == 6000

    def test_a_page_that_is_built_takes_the_memory_of_a_window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run of few rows has none; its rows may be long, and compressed to nothing."""
        monkeypatch.setattr(reading, "_WINDOW_BYTES", 20_000)
        texts = pa.RecordBatch.from_arrays([pa.array(range(64)), pa.array(["a" * 5000] * 64)], schema=NUMBERS)
        run = open_run(written([texts], NUMBERS, ["id"]), cache_bytes=20_000)
        sizes: list[int] = []
        block_batch = BlockBatch

        def counted(blocks: list[bytes], *rest: Any, **named: Any) -> Any:
            sizes.append(sum(map(len, blocks)))
            return block_batch(blocks, *rest, **named)

        monkeypatch.setattr(reading, "BlockBatch", counted)
        for key, hashed in keys_of(texts):
            assert run.get(key, hashed) == ("a" * 5000,)
        assert len(sizes) > 8
        assert max(sizes) <= 20_000

    def test_release_empties_the_cache(self) -> None:
        cache = Cache(1 << 30)
        content = written([numbered(6000)], NUMBERS, ["id"])
        runs = [RunReader(Written(content).read_range, len(content), "a.spool", cache) for _ in range(2)]
        key, hashed = keys_of(numbered(1))[0]
        assert all(run.get(key, hashed) is not None for run in runs)
        both = cache.size_bytes
        runs[0].release()
        assert cache.size_bytes == both / 2
        assert runs[0].get(key, hashed) is not None
        runs[0].release()
        runs[1].release()
        assert cache.size_bytes == 0

    @pytest.mark.slow
    def test_pages_take_as_much_of_it_as_were_needed(self) -> None:
        """One key of many needs a page, in the table for many keys and by itself, and a block."""
        batch = numbered(100_000)
        content = written([batch], NUMBERS, ["id"])
        cache = Cache(4 << 20)
        run = RunReader(Written(content).read_range, len(content), "a.spool", cache)
        assert len(content) > END_BYTES
        key_columns = batch.select(["id"])
        hashes = hash_rows(key_columns.columns)
        assert run.multi_get(key_columns[:1], hashes[:1])[1] == batch[:1]
        assert 2 * PAGE_BYTES < cache.size_bytes < 4 * PAGE_BYTES
        cache.resize(1 << 20)
        for some in (slice(1, 51), slice(1, None)):  # some pages, then more than a fourth of the cache
            numbers, rows = run.multi_get(key_columns[some], hashes[some])
            assert rows.take(pa.array(np.argsort(numbers))) == batch[some]
            assert cache.size_bytes <= cache.capacity_bytes
