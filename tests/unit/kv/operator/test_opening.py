"""Opening an operator's store again: omitted arguments have the store's values, and different values are refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, CorruptData, Fenced, FtfileError, SchemaError, WindowOrder
from ftfile.kv.operator import opening
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.wal import OPERATORS, Opening, list_wal
from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.unit.kv.operator.stores import open_store
from tests.unit.kv.stores import counting, rows

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.kv.operator.recording import Recorder
    from ftfile.kv.operator.store import KeyValueStore

SHAPE: dict[str, Any] = {
    "keys": {"city": "string", "day": "date"},
    "values": {"total": "decimal(10,2)", "name": "string"},
    "buckets": 4,
    "bucket_by": ["city"],
    "merge": "total:sum",
}

KEY = ("Rome", date(2024, 7, 1))


def end_window(store: KeyValueStore, number: int) -> None:
    store.begin_window(number)
    store.merge(KEY, (Decimal(1), str(number)))
    store.end_window()


@pytest.fixture
def fs() -> CrashingFileSystem:
    return CrashingFileSystem()


@pytest.mark.slow
def test_what_is_left_out_is_as_the_store_has_it(fs: CrashingFileSystem) -> None:
    with open_store(fs, **SHAPE) as store:
        definition = store.definition
    for number in range(3):
        with open_store(fs) as store:
            assert store.definition == definition
            store.merge(KEY, (Decimal("1.25"), str(number)))
            store.commit()
            assert store.get(KEY) == (Decimal("1.25") * (number + 1), str(number))
    with open_store(fs, **SHAPE) as store:
        assert store.definition == definition


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"buckets": 8}, "buckets: the store has 4, and 8 is given"),
        ({"merge": "total:max"}, "merge: the store has total:sum, and total:max is given"),
        ({"bucket_by": ["day"]}, r"bucketBy: the store has \['city'\], and \['day'\] is given"),
        ({"keys": {"city": "string"}}, r"keyColumns: the store has \['city', 'day'\], and \['city'\] is given"),
        ({"keys": {"city": "string", "day": "timestamp"}}, "types of the key columns: the store has"),
        (
            {"values": {"name": "string", "total": "decimal(10,2)"}},
            r"\['total', 'name'\], and \['name', 'total'\]",
        ),
        ({"values": {"total": "decimal(10,2)", "name": "long"}}, "name was string and is int64"),
        ({"codec": kv.Pairs(kv.Text(), kv.Text())}, "one binary key column"),
    ],
)
def test_what_differs_is_refused(fs: CrashingFileSystem, changed: dict[str, Any], told: str) -> None:
    with open_store(fs, **SHAPE) as store:
        version = store.version
    with pytest.raises((ConfigError, SchemaError), match=told):
        open_store(fs, **changed)
    with open_store(fs) as store:
        assert store.version == version + 2, "what was refused is not recorded"


@pytest.mark.parametrize(
    ("options", "error"),
    [({"buckets": 8}, ConfigError), ({"restore": 0}, WindowOrder), ({"options": {"colour": "red"}}, ConfigError)],
    ids=["definition", "restore", "option"],
)
def test_a_refused_opening_changes_nothing(
    fs: CrashingFileSystem, options: dict[str, Any], error: type[FtfileError]
) -> None:
    store = open_store(fs, **SHAPE)
    end_window(store, 1)
    store.committed(1)
    end_window(store, 2)
    before = fs.list(layout.LOG)
    with pytest.raises(error):
        open_store(fs, **options)
    assert fs.list(layout.LOG) == before
    end_window(store, 3)
    store.committed(3)
    assert store.get(KEY) == (Decimal(3), "3")


@pytest.mark.parametrize("restore", [None, 2])
def test_of_two_openings_that_overlap_the_first_is_fenced(
    fs: CrashingFileSystem, restore: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(fs, **SHAPE)
    for number in (1, 2):
        end_window(store, number)
    newer: list[KeyValueStore] = []

    def open_another(recorder: Recorder) -> None:
        """Let a newer process open the store between the two records of an older one."""
        monkeypatch.undo()
        newer.append(open_store(fs))
        end_window(newer[0], 3)
        record_take_over(recorder)

    record_take_over = opening.record_take_over
    monkeypatch.setattr(opening, "record_take_over", open_another)
    with pytest.raises(Fenced, match="epoch 3"):
        open_store(fs, restore=restore)
    assert [window.number for window in kv.read_windows("operator://store", "w")] == [1, 2, 3]
    newer[0].committed(3)
    assert newer[0].get(KEY) == (Decimal(3), "3")
    with open_store(fs) as again:
        assert (again.recorded_window, again.last_window) == (3, 3)


def openings_in_log(fs: CrashingFileSystem) -> list[Opening]:
    log = CommitLog(fs)
    records = [log.read_record(version) for version in range(log.refresh().version + 1)]
    return [Opening(*each.tables[OPERATORS]["set"]["w"]) for each in records if each and OPERATORS in each.tables]


def test_an_opening_fences_and_then_takes_over(fs: CrashingFileSystem) -> None:
    open_store(fs, **SHAPE).close()
    open_store(fs).close()
    assert [opening[:2] for opening in openings_in_log(fs)] == [(1, 1), (2, 1), (2, 2)]
    with open_store(fs) as store:
        end_window(store, 1)
    open_store(fs, restore=-1).close()
    openings = openings_in_log(fs)
    assert [opening[:2] for opening in openings[3:]] == [(3, 2), (3, 3), (4, 4)], "there is nothing to take over"
    assert len({opening.wal_id for opening in openings}) == 1, "an id is the writer's for good"


@pytest.mark.slow
def test_a_store_that_spark_made(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = counting(out)
    query.run(0, [rows("a", "b")])
    with kv.KeyValueStore(out, writer="w", maintenance="none") as store:
        store.merge("a", 5)
        store.commit()
        assert store.multi_get(["a", "b"]) == [6, 1]
    query.run(1, [rows("a")])
    with kv.open(out) as reader:
        assert reader.get("a") == 7


@pytest.mark.slow
def test_the_last_window_is_as_what_feeds_the_store_remembers_it(fs: CrashingFileSystem) -> None:
    with open_store(fs, **SHAPE) as store:
        end_window(store, 1)
        store.committed(1)
        end_window(store, 2)
    for known in (None, 0, 1, 2):
        with open_store(fs, expect_window=known) as store:
            assert store.last_window == 2
    name = list_wal(fs, "w")[-1]
    content = fs.read(layout.wal_path("w", name))
    fs.delete(layout.wal_path("w", name))
    text = r"a window with the number 2 or a later one, found 1 as the last one.*restore=1"
    for _ in range(2):
        with pytest.raises(CorruptData, match=text):
            open_store(fs, expect_window=2)
    fs.create_exclusive(layout.wal_path("w", name), content)
    with open_store(fs, expect_window=2) as store:
        assert store.last_window == 2
    with pytest.raises(ConfigError, match="give only one of them"):
        open_store(fs, expect_window=2, restore=1)
    with pytest.raises(CorruptData, match=r"a window with the number 0 or a later one, found none"):
        open_store(fs, writer="another", expect_window=0)
