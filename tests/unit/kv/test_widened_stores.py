"""Columns that come, and types that become wider, while narrow runs live and merges of them are due or under way."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, SchemaError
from ftfile.kv.feed import FeedStream
from ftfile.kv.feed_rows import as_requested, changed_rows, feed_schema
from ftfile.kv.hashing import by_bucket
from ftfile.kv.planning.plan import list_due
from ftfile.kv.run import writer
from ftfile.kv.run_files import OpenFiles
from ftfile.log.commit_log import CommitLog
from ftfile.read.log_planner import FollowConfig, FollowSettings
from ftfile.read.log_positions import START
from ftfile.rows.spark_types import spark_schema_json
from ftfile.testing.context import ManualClock, SeededIds, current, open_filesystem, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import StoreBatch
from ftfile.writing.batch import commit_batch
from ftfile.writing.options import forget_logs
from tests.kit.due_compactions import compact_due
from tests.kit.parameters import parametrize
from tests.kit.store_check import check_store
from tests.unit.kv.stores import FIRST, SECOND, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.kv.planning.picker import PlanSettings

PATH = "memory://widened/store"
NARROW = {"k": "string", "n": "integer", "text": "string", "gone": "boolean"}
WIDE = {"more": "string", **NARROW, "n": "long"}
# Before and after.
MERGES = [("last", "last"), ("n:max", "n:max"), ("n:sum,text:append", "n:sum,text:append,more:append")]
KEYS = [f"k{number:02}" for number in range(30)]
Values = tuple[Any, ...]


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with repeatable(ManualClock(tick_ms=1), SeededIds(0)):
        yield
    MemoryFileSystem.drop("widened")
    forget_logs()


class History:
    """Batches of two queries, purges and merges at random; at some step both queries get another column."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.merges = rng.choice(MERGES)
        options = {
            "keyColumns": "k",
            "deleteColumn": "gone",
            "onNewQuery": "continue",
            "buckets": str(rng.choice((1, 2))),
            "flushIntervalCount": str(rng.choice((2, 3))),
            "maxFileSize": str(rng.choice((4096, 1 << 27))),
            "compression": "none",
            "vacuumInterval": "0s",
            "merge": self.merges[0],
        }
        self.queries = [StoreBatch(PATH, NARROW, options, query_id) for query_id in (FIRST, SECOND)]
        self.batches = [0, 0]
        self.rows: dict[str, Values] = {}
        self.versions: list[dict[str, Values]] = []
        self.widened_at = 1 << 30
        self.counts: Counter[str] = Counter()

    @property
    def is_wide(self) -> bool:
        return "more" in self.queries[0].columns

    @mock.patch.object(writer, "BLOCK_BYTES", 4096)
    def play(self, steps: int) -> None:
        self.batch()
        widens_at = self.rng.randrange(2, steps - 2)
        for step in range(steps):
            if step == widens_at:
                self.widen()
            self.rng.choices([self.batch, self.late, self.purge, self.compact], [8, 3, 1, 1])[0]()
            if self.rng.random() < 0.3:
                self.look()
        kv.compact(PATH, full=self.rng.random() < 0.5, context=current())
        self.note()

    def batch(self) -> None:
        place = self.rng.randrange(2)
        self.run(place, [self.draw(), self.draw()])

    def late(self) -> None:
        """Run a batch whose plan is older than batches of the other query, and whose jobs may be theirs."""
        place = self.rng.randrange(2)
        query, own = self.queries[place], self.draw()
        planned = query.pickled_plan()
        for _ in range(self.rng.choice((1, 2, 3))):
            self.run(1 - place, [self.draw()])
        message = query.run_task(planned, query.identity(self.batches[place]), 0, own)
        query.commit(self.batches[place], [message])
        self.counts["late jobs"] += len(message.rewritten)
        self.applied(place, own)

    def purge(self) -> None:
        start, end = sorted(self.rng.sample(KEYS, 2))
        kv.purge(PATH, start, end, context=current())
        self.rows = {key: values for key, values in self.rows.items() if not start <= key < end}
        self.note()

    def compact(self) -> None:
        kv.compact(PATH, context=current()) if self.rng.random() < 0.5 else compact_due(
            CommitLog(open_filesystem(PATH))
        )
        self.note()

    def widen(self) -> None:
        """Give both queries a column; a narrow batch is under way, and has to be written again."""
        narrow, late = self.queries[0].plan(), self.queries[0].run_tasks(self.batches[0], [self.draw()])
        for query in self.queries:
            query.columns = WIDE
            query.options = {**query.options, "merge": self.merges[1], "onSchemaChange": "widen"}
        self.widened_at = len(self.versions)
        self.run(1, [self.draw()])
        with pytest.raises(SchemaError, match="more is missing"):
            commit_batch(narrow.sink, narrow.config, late, self.batches[0], current())
        self.late()

    def run(self, place: int, tasks: list[list[dict[str, Any]]]) -> None:
        self.queries[place].run(self.batches[place], tasks)
        self.applied(place, [row for task in tasks for row in task])

    def draw(self) -> list[dict[str, Any]]:
        rng = self.rng
        more = {"more": rng.choice((None, rng.choice("xyz")))} if self.is_wide else {}
        high = 1 << 40 if self.is_wide else 1000
        return [
            {"k": rng.choice(KEYS), "n": rng.randrange(high), "text": rng.randbytes(60).hex(), **more,
             "gone": rng.random() < 0.1}
            for _ in range(rng.choice((0, 3, 20)))
        ]  # fmt: skip

    def applied(self, place: int, own: list[dict[str, Any]]) -> None:
        self.batches[place] += 1
        for row in own:
            key, old = row["k"], self.rows.get(row["k"])
            new = (row.get("more"), row["n"], row["text"])
            if row["gone"]:
                self.rows.pop(key, None)
            elif old is None or self.merges[0] == "last":
                self.rows[key] = new
            elif self.merges[0] == "n:max":
                self.rows[key] = (new[0], max(old[1], new[1]), new[2])
            else:
                more = old[0] if new[0] is None else (old[0] or "") + new[0]
                self.rows[key] = (more, old[1] + new[1], old[2] + new[2])
        self.note()

    def note(self) -> None:
        head = CommitLog(open_filesystem(PATH)).refresh()
        self.versions += [dict(self.rows)] * (head.version + 1 - len(self.versions))
        narrow = [add for add in head.segments.values() if self.is_wide and "more" not in _columns(head, add.encoding)]
        self.counts["narrow beside wide"] += bool(0 < len(narrow) < len(head.segments))
        self.counts["narrow, due"] += bool({add.id for add in narrow} & _due(head, self.queries[0].config().plan))

    def look(self) -> None:
        with kv.open(PATH, context=current()) as reader:
            self.compare(reader, len(self.versions) - 1)

    def compare(self, reader: kv.Reader, version: int) -> None:
        """Compare all kinds of reads with the dict."""
        # In Spark's JSON the new column came first; in the store it is the last.
        names = ["n", "text"] if version < self.widened_at else ["n", "text", "more"]
        assert reader.definition.values == names
        expected = {key: (n, text, more)[: len(names)] for key, (more, n, text) in self.versions[version].items()}
        found = {row.pop("k"): tuple(row.values()) for batch in reader.scan() for row in batch.to_pylist()}
        assert found == expected
        assert {key: row for key, row in zip(KEYS, reader.multi_get(KEYS), strict=True) if row is not None} == expected
        assert {key: row for key in KEYS if (row := reader.get(key)) is not None} == expected
        table = reader.lookup(pa.array(KEYS))
        for place, name in enumerate(names):
            values = {key: row[place] for key, row in expected.items()}
            assert table[name].to_pylist() == [*map(values.get, KEYS)]
            scanned = [row for batch in reader.scan(columns=["k", name]) for row in batch.to_pylist()]
            assert {row["k"]: row[name] for row in scanned} == values


def _columns(head: Any, encoding: str) -> str:
    return str(head.definitions[encoding]["schema"])


def _due(head: Any, rules: PlanSettings) -> set[str]:
    names = {job.id for job in head.jobs}
    due_now = (compaction for compaction, _ in list_due(head.segments.values(), (), rules))
    return {run.add.id for compaction in due_now if compaction.name in names for run in compaction.runs}


def shown(batches: list[pa.RecordBatch]) -> dict[str, tuple[Any, Any]]:
    found = [row for batch in batches for row in batch.to_pylist()]
    assert len(found) == len({row["k"] for row in found})
    return {row["k"]: (_values(row["old"]), _values(row["new"])) for row in found}


def _values(row: dict[str, Any] | None) -> Values | None:
    return None if row is None else (row["more"], row["n"], row["text"])


def first_batch() -> list[pa.RecordBatch]:
    """Return the rows with which a new stream of changes begins: the rows of the newest version."""
    schema = feed_schema(kv.open(PATH, context=current()).definition)
    stream = FeedStream(FollowConfig(PATH, None, {}, spark_schema_json(schema), FollowSettings()), current())
    shares = stream.shares(dict(START), stream.latest_offset(dict(START)))
    files = OpenFiles(open_filesystem(PATH))
    return [as_requested(batch, schema) for share in shares for batch in changed_rows(files, share)]


def check_versions(history: History) -> None:
    """Compare reads of all versions, their changes, and the rows with which a new stream of these begins."""
    with kv.open(PATH, context=current()) as reader:
        for version in range(len(history.versions)):
            history.compare(reader.at(version), version)
    assert shown(first_batch()) == {key: (None, values) for key, values in history.versions[-1].items()}
    before: dict[str, Values] = {}
    for version, after in enumerate(history.versions):
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        found = shown([*kv.changes(PATH, version, version, context=current())])
        assert found == {key: (before.get(key), after.get(key)) for key in changed}
        before = after
    report = check_store(open_filesystem(PATH))
    assert {key: (more, n, text) for (key,), (n, text, more) in report.rows.items()} == history.versions[-1]


@pytest.mark.slow
@pytest.mark.packages
def test_rows_of_histories_are_those_of_a_dict() -> None:
    counts: Counter[str] = Counter()
    for seed in range(5):
        history = History(seed)
        try:
            history.play(8)
            check_versions(history)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        counts.update(history.counts)
        MemoryFileSystem.drop("widened")
        forget_logs()
    assert min(counts[name] for name in ("narrow beside wide", "narrow, due", "late jobs")) > 0, counts


def query(query_id: str = FIRST, **options: str) -> StoreBatch:
    given = {"keyColumns": "k", "flushIntervalCount": "2", "onNewQuery": "continue", "vacuumInterval": "0s"}
    return StoreBatch(PATH, {"k": "string", "n": "long"}, given | options, query_id)


def widened(*queries: StoreBatch) -> None:
    for each in queries:
        each.columns = {"k": "string", "n": "long", "more": "string"}
        each.options = {**each.options, "onSchemaChange": "widen"}


def key_of_each_bucket(one: StoreBatch) -> list[str]:
    definition = one.config().definition
    found = by_bucket(pa.table({"k": KEYS}), definition)
    return [table["k"][0].as_py() for _, table in found]


@pytest.mark.slow
def test_the_newest_columns_are_read_whichever_run_begins_last() -> None:
    """A merge of old runs with a new one begins before a narrow run of another bucket, and has the new column."""
    one = query(buckets="2")
    other_key, key = key_of_each_bucket(one)
    one.run(0, [rows(key)])
    one.run(1, [rows(other_key)])
    widened(one)
    one.run(2, [rows(key, more="x")])
    one.run(3, [[]])
    live = CommitLog(open_filesystem(PATH)).refresh().segments.values()
    assert {add.rolling_stats["at"][0] >> 20 for add in live} == {0, 1}
    with kv.open(PATH, context=current()) as reader:
        for each in (reader, reader.at(3)):
            assert each.multi_get([key, other_key]) == [(1, "x"), (1, None)]
    assert {row["k"]: row["new"]["more"] for batch in first_batch() for row in batch.to_pylist()} == {
        key: "x",
        other_key: None,
    }


@pytest.mark.slow
def test_a_task_merges_what_came_after_its_plan_with_all_columns() -> None:
    one, other = query(buckets="1"), query(SECOND, buckets="1")
    one.run(0, [rows("a")])
    one.run(1, [rows("a")])
    widened(one, other)
    planned = one.pickled_plan()
    other.run(0, [rows("b", more="x")])
    other.run(1, [rows("c", more="y")])
    message = one.run_task(planned, one.identity(2), 0, rows("d", more="z"))
    assert message.rewritten, "the runs with the new column are due"
    one.commit(2, [message])
    with kv.open(PATH, context=current()) as reader:
        assert reader.multi_get([*"abcd"]) == [(1, None), (1, "x"), (1, "y"), (1, "z")]
    check_store(open_filesystem(PATH))


def test_a_column_without_rows_yet() -> None:
    one = query(buckets="1")
    one.run(0, [rows("a")])
    widened(one)
    one.run(1, [[]])
    with kv.open(PATH, context=current()) as reader:
        assert reader.get("a") == reader.at(1).get("a") == (1, None)
        assert reader.at(0).get("a") == 1
        assert reader.lookup(pa.array(["a"]), ["more"])["more"].to_pylist() == [None]
        assert [batch["more"].to_pylist() for batch in reader.at(1).scan(columns=["more"])] == [[None]]


def test_windows_that_came_back_have_a_new_column() -> None:
    shape: dict[str, Any] = {"writer": "w", "keys": {"k": "string"}, "buckets": 1, "maintenance": "none"}
    with kv.KeyValueStore(PATH, values={"n": "integer"}, **shape, context=current()) as store:
        store.put("a", 1)
        store.commit(0)
        store.begin_window(1)
        store.put("b", 2)
        store.end_window()
    wide: dict[str, Any] = {"values": {"n": "bigint", "more": "string"}, "options": {"onSchemaChange": "widen"}}
    with kv.KeyValueStore(PATH, **shape, **wide, context=current()) as store:
        assert (store.get("a"), store.get_uncommitted("b"), store.read("b")) == ((1, None), (2, None), (2, None))
        store.begin_window(2)
        store.put("c", (1 << 40, "x"))
        store.end_window()
        store.committed(2)
        assert store.multi_get([*"abc"]) == [(1, None), (2, None), (1 << 40, "x")]
    with pytest.raises(SchemaError, match="more is missing"):
        kv.KeyValueStore(PATH, values={"n": "integer"}, **shape, context=current())
    check_store(open_filesystem(PATH))


@parametrize(("merge", "folded"), [("last", (3, None)), ("n:sum", (10, None))], quick=1)
def test_an_operator_reads_what_another_writer_has_widened(merge: str, folded: Values) -> None:
    shape: dict[str, Any] = {"keys": {"k": "string"}, "buckets": 1, "merge": merge, "maintenance": "none"}
    with kv.KeyValueStore(PATH, writer="narrow", values={"n": "integer"}, **shape, context=current()) as store:
        store.put("x", 1)
        store.commit(0)
        reader = kv.open(PATH, context=current())
        store.begin_window(1)
        store.put("y", 2)
        store.merge("z", 3)
        store.end_window()
        wide: dict[str, Any] = {"values": {"n": "bigint", "more": "string"}, "options": {"onSchemaChange": "widen"}}
        with kv.KeyValueStore(PATH, writer="wide", **wide, context=current()) as other:
            other.put("x", (1 << 40, "m"))
            other.put("z", (7, "q"))
            other.commit()
        assert (store.get("x"), store.read("z"), store.get_uncommitted("y")) == (1, 3, 2)
        store.refresh()
        assert (store.get("x"), store.read("x")) == ((1 << 40, "m"), (1 << 40, "m"))
        assert (store.read("y"), store.get_uncommitted("y"), store.get_uncommitted("z")) == ((2, None),) * 2 + (
            (3, None),
        )
        assert store.read("z") == folded
        with pytest.raises(SchemaError, match="open it again; this restores windows that have ended"):
            store.committed(1)
    with kv.KeyValueStore(PATH, writer="narrow", maintenance="none", context=current()) as store:
        assert store.read("z") == folded
        store.committed(1)
        assert store.multi_get([*"xyz"]) == [(1 << 40, "m"), (2, None), folded]
    before = reader.version
    reader.refresh()
    assert reader.multi_get([*"xyz"]) == [reader.get(key) for key in "xyz"] == [(1 << 40, "m"), (2, None), folded]
    assert reader.lookup(pa.array([*"xyz"])).select(["n", "more"]).to_pylist() == [
        {"n": n, "more": more} for n, more in [(1 << 40, "m"), (2, None), folded]
    ]
    assert [(n, more) for batch in reader.scan() for _, n, more in zip(*batch.to_pydict().values(), strict=True)] == [
        (1 << 40, "m"),
        (2, None),
        folded,
    ]
    assert reader.at(before).get("x") == 1


def test_a_codec_of_a_store_that_another_writer_has_widened() -> None:
    shape: dict[str, Any] = {"writer": "codec", "codec": kv.Pairs(kv.Text(), kv.Text()), "maintenance": "none"}
    with kv.KeyValueStore(PATH, **shape, context=current()) as store:
        store.put("a", "1")
        store.commit()
        store.put("b", "2")
        wide: dict[str, Any] = {"values": {"value": "binary", "more": "long"}, "options": {"onSchemaChange": "widen"}}
        kv.KeyValueStore(PATH, writer="wide", maintenance="none", **wide, context=current()).close()
        store.refresh()
        assert (store.get("a"), store.multi_get(["a"]), store.read("a"), store.read("b")) == ("1", ["1"], "1", "2")


def test_an_operator_of_a_store_that_an_overwrite_gave_other_columns() -> None:
    with kv.KeyValueStore(PATH, writer="w", keys={"k": "string"}, values={"n": "long"}, context=current()) as store:
        store.put("a", 1)
        query = StoreBatch(PATH, {"k": "string", "other": "long"}, {"keyColumns": "k", "onNewQuery": "continue"}, FIRST)
        query.overwrite = True
        query.run(0, [[{"k": "a", "other": 2}]])
        store.refresh()
        with pytest.raises(
            ConfigError, match=r"changed from \['n'\] to \['other'\]: close the store and open it again"
        ):
            store.read("a")
