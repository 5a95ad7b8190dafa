"""What lasts: a merge that fails again and again, a damaged run among small ones, deletes until their time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from ftfile import kv
from ftfile.core.errors import CorruptData, EncodingError
from ftfile.kv.planning import plan
from ftfile.kv.planning.runs import run_of
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import StoreBatch
from tests.kit.due_compactions import compact_due
from tests.unit.kv.upkeep.stores import COLUMNS, PATH, counts, damage, rows_of, runs_of

if TYPE_CHECKING:
    from ftfile.log.format.model import Add
    from ftfile.testing.context import ManualClock

HOUR_MS = 3_600_000


def oldest_run(bucket: str) -> Add:
    adds = CommitLog(open_filesystem(PATH)).refresh().segments.values()
    return min((add for add in adds if add.directory_key == bucket), key=lambda add: run_of(add).metadata.at)


def jobs() -> tuple[int, int]:
    with kv.open(PATH, context=current()) as reader:
        stats = reader.stats()
    return stats.due_compactions, stats.held_compactions


@pytest.mark.slow
def test_a_merge_that_fails_is_held_and_shown_and_done_when_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_VERSIONS_HELD", 3)
    query = counts(buckets="1", flushIntervalCount="2")
    words = ["a", "b"]
    query.run(0, [[{"word": "a", "n": 1}]])
    damaged = oldest_run("b=00000")
    damage(PATH, damaged)
    shown = []
    for batch in range(1, 8):
        query.run(batch, [[{"word": words[batch % 2], "n": 1}]])
        shown.append(jobs())
    assert [held for _, held in shown] == [0, 0, 0, 1, 1, 1, 0], "three failures, and three versions held"
    assert all(due for due, _ in shown)
    with pytest.raises(CorruptData):
        rows_of(PATH)
    damage(PATH, damaged)  # the same bit again
    query.run(8, [[{"word": "a", "n": 1}]])
    assert rows_of(PATH) == {"a": 5, "b": 4}
    assert jobs()[1] == 0
    kv.compact(PATH, full=True, context=current())
    assert (jobs(), runs_of(PATH), rows_of(PATH)) == ((0, 0), 1, {"a": 5, "b": 4})


def test_a_damaged_run_of_a_cached_merge() -> None:
    """All keys of the cached merge raise the path of the run; other buckets are read, and all are after the repair."""
    query = counts(buckets="2", flushIntervalCount="1000")
    expected = dict.fromkeys((f"w{number}" for number in range(20)), 3)
    for batch in range(3):
        query.run(batch, [[{"word": word, "n": 1} for word in expected]])
    damaged = oldest_run("b=00000")
    damage(PATH, damaged)
    with kv.open(PATH, context=current()) as reader:
        cached_merge = reader.view.buckets[0].cached_merge
        assert cached_merge is not None
        assert len(cached_merge.runs) == 3
        bucket_of = {
            word: reader.view.bucket_of(key := reader.view.keys.to_stored(word), reader.view.hash_key(key))
            for word in expected
        }
        assert set(bucket_of.values()) == {0, 1}
        for word, bucket in bucket_of.items():
            if bucket == 1:
                assert reader.get(word) == 3
                continue
            with pytest.raises(CorruptData) as caught:
                reader.get(word)
            assert caught.value.path == damaged.path
        with pytest.raises(CorruptData):
            reader.multi_get([*expected])
    damage(PATH, damaged)  # the same bit again
    with kv.open(PATH, context=current()) as reader:
        assert reader.multi_get([*expected]) == [*expected.values()]


@pytest.mark.slow
def test_a_delete_holds_against_late_rows_until_its_time_is_over(clock: ManualClock) -> None:
    options = {
        "keyColumns": "word",
        "sequenceColumn": "n",
        "deleteColumn": "gone",
        "buckets": "1",
        "tombstoneTtl": "1h",
    }
    query = StoreBatch(PATH, {**COLUMNS, "gone": "boolean"}, options)

    def write(batch: int, word: str, n: int, *, gone: bool = False) -> dict[str, int]:
        query.run(batch, [[{"word": word, "n": n, "gone": gone}]])
        kv.compact(PATH, full=True, context=current())
        return rows_of(PATH)

    assert write(0, "a", 5) == {"a": 5}
    assert write(1, "a", 9, gone=True) == {}
    assert write(2, "a", 7) == {}, "it was deleted later"
    assert write(3, "b", 1) == {"b": 1}
    clock.advance(2 * HOUR_MS)
    assert write(4, "c", 1) == {"b": 1, "c": 1}
    (add,) = CommitLog(open_filesystem(PATH)).refresh().segments.values()
    assert add.rows == 2, "nothing is left of the delete"
    assert write(5, "a", 7) == {"a": 7, "b": 1, "c": 1}


SUMS = {"buckets": "1", "flushIntervalCount": "4", "deleteColumn": "gone"}


def add_up(query: StoreBatch, batch: int, word: str, n: int, *, gone: bool = False) -> int:
    """Write a row, and return the number of runs."""
    query.columns = {**COLUMNS, "gone": "boolean"}
    query.run(batch, [[{"word": word, "n": n, "gone": gone}]])
    return runs_of(PATH)


@pytest.mark.slow
@pytest.mark.parametrize("gone", [True, False], ids=["deleted", "overwritten"])
def test_merges_go_on_once_what_has_no_result_is_deleted(caplog: pytest.LogCaptureFixture, gone: bool) -> None:
    """Runs stay few, and the error comes no more."""
    query = counts(**SUMS)
    for batch in range(4):
        add_up(query, batch, "a", 2**62)
    assert add_up(query, 4, "b", 1) == 5
    assert caplog.text.count("will be retried") == 1
    query.overwrite = not gone
    add_up(query, 5, "a" if gone else "b", 1, gone=gone)
    query.overwrite = False
    most = max(add_up(query, batch, "b", 1) for batch in range(6, 36))
    assert caplog.text.count("will be retried") <= 2
    assert most < 16
    assert jobs()[1] == 0
    assert rows_of(PATH) == {"b": 31}


def test_a_retry_is_taken_before_a_merge_of_newer_runs() -> None:
    """Both are due at once, and have runs in common."""
    query = counts(**SUMS | {"flushIntervalCount": "2"})
    for batch in range(2):
        add_up(query, batch, "a", 2**62)
    old_ids = {*CommitLog(open_filesystem(PATH)).refresh().segments}
    row = {"word": "b", "n": 1, "gone": False}
    query.run(2, [[{"word": "a", "n": 0, "gone": True}], [row]])
    assert [job.reason for job in CommitLog(open_filesystem(PATH)).refresh().jobs] == ["retry", "level0"]
    query.run(3, [[row], [row]])
    assert old_ids.isdisjoint(CommitLog(open_filesystem(PATH)).refresh().segments)
    assert rows_of(PATH) == {"b": 3}


@pytest.mark.slow
def test_a_compaction_works_at_once_after_that(caplog: pytest.LogCaptureFixture) -> None:
    query = counts(**SUMS)
    for batch in range(4):
        add_up(query, batch, "a", 2**62)
    for batch in range(4, 8):
        add_up(query, batch, "b", 1)  # it has failed as often as that it waits
    assert jobs()[1] == 1
    with pytest.raises(EncodingError, match=r"key \('a'\)"):
        kv.compact(PATH, context=current())
    assert "will be retried" in caplog.text
    add_up(query, 8, "a", 0, gone=True)
    kv.compact(PATH, context=current())
    assert rows_of(PATH) == {"b": 4}
    assert runs_of(PATH) == 1
    assert jobs() == (0, 0)


def test_upkeep_waits_for_what_failed_too_often_and_a_call_does_not() -> None:
    query = counts(**SUMS)
    for batch in range(4):
        add_up(query, batch, "a", 2**62)
    log = CommitLog(open_filesystem(PATH))
    with pytest.raises(EncodingError, match=r"key \('a'\)"):
        compact_due(log)
    for batch in range(4, 8):
        add_up(query, batch, "b", 1)
    assert jobs()[1] == 1
    compact_due(log)  # other runs are compacted
    with pytest.raises(EncodingError, match=r"key \('a'\)"):
        kv.compact(PATH, context=current())


@pytest.mark.slow
def test_the_rest_of_a_bucket_is_merged_meanwhile() -> None:
    query = counts(**SUMS)
    for batch in range(4):
        add_up(query, batch, "a", 2**62)
    for batch in range(4, 30):
        add_up(query, batch, "b", 1)
    runs = [run_of(add) for add in CommitLog(open_filesystem(PATH)).refresh().segments.values()]
    newer = [run for run in runs if run.metadata.at[0] >= 4 << 20]
    assert len(runs) - len(newer) == 4
    assert len(newer) < 10
    with kv.open(PATH, context=current()) as reader:
        assert reader.get("b") == 26


@pytest.mark.slow
def test_a_damaged_run_holds_itself_alone() -> None:
    query = counts(buckets="1", flushIntervalCount="4")
    for batch in range(3):
        query.run(batch, [[{"word": f"w{batch}", "n": 1}]])
    damaged = oldest_run("b=00000")
    damage(PATH, damaged)
    for batch in range(3, 20):
        query.run(batch, [[{"word": f"w{batch}", "n": 1}]])
    assert runs_of(PATH) < 10
    with kv.open(PATH, context=current()) as reader:
        assert len(reader.runs()) < 10
    damage(PATH, damaged)  # the same bit again
    kv.compact(PATH, context=current())
    assert rows_of(PATH) == {f"w{batch}": 1 for batch in range(20)}
    assert runs_of(PATH) < 4


def bucket_of(word: str) -> int:
    with kv.open(PATH, context=current()) as reader:
        key = reader.view.keys.to_stored(word)
        return reader.view.bucket_of(key, reader.view.hash_key(key))


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["put", "delete"])
@pytest.mark.parametrize("upkeep", ["inline", "none"])
def test_an_operator_ends_what_has_no_sum(upkeep: Literal["inline", "none"], ending: str) -> None:
    """Until then all else is merged; after it everything is, by an operator's upkeep and by a compaction, at once."""
    query = counts(**SUMS | {"buckets": "2"})
    add_up(query, 0, "a", 2**63 - 1)
    add_up(query, 1, "a", 1)
    same, other = (next(word for word in "bcdefghij" if bucket_of(word) == bucket_of("a") ^ place) for place in (0, 1))
    for batch in range(2, 12 if upkeep == "none" else 5):
        query.run(batch, [[{"word": word, "n": 1, "gone": False} for word in (same, other)]])
    written = batch - 1
    adds = CommitLog(open_filesystem(PATH)).refresh().segments.values()
    runs = [run_of(add) for add in adds if add.directory_key == f"b={bucket_of('a'):05d}"]
    held = {run.add.id for run in sorted(runs, key=lambda run: run.metadata.at)[:4]}
    with pytest.raises(EncodingError, match=r"key \('a'\)"):
        kv.compact(PATH, context=current())
    assert runs_of(PATH) - len(held) < 6
    with kv.KeyValueStore(PATH, writer="w", maintenance=upkeep, context=current()) as store:
        assert store.multi_get([same, other]) == [written] * 2
        store.put("a", 7) if ending == "put" else store.delete("a")
        store.commit()
        for _ in range(16):
            store.merge(same, 1)
            store.commit()
    if upkeep == "none":
        kv.compact(PATH, context=current())
    assert held.isdisjoint(CommitLog(open_filesystem(PATH)).refresh().segments)
    assert jobs()[1] == 0
    assert runs_of(PATH) < 10
    expected = {same: written + 16, other: written}
    assert rows_of(PATH) == expected | ({"a": 7} if ending == "put" else {})
