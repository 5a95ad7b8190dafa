"""A store that is redefined while a writer has unrecorded windows, or while it continues."""

from __future__ import annotations

import base64
import itertools
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.errors import ConfigError, CorruptData, SchemaError
from ftfile.kv.operator import opening
from ftfile.kv.operator.wal import read_wal
from ftfile.log.format import layout
from ftfile.log.wal import list_wal
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import StoreBatch
from ftfile.writing.options import forget_logs
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ftfile.kv.operator.wal import WalFile
    from ftfile.log.wal import WalFiles

COLUMNS = {"k": "string", "n": "integer", "text": "string"}
OPTIONS = {"keyColumns": "k", "merge": "n:sum", "buckets": "4", "onNewQuery": "continue"}
QUERIES = itertools.count(1)


def query_id() -> str:
    return f"00000000-0000-0000-0000-{next(QUERIES):012}"


def opened(path: str, **options: Any) -> kv.KeyValueStore:
    """Open the store as a process that has just begun, with the columns that it has."""
    forget_logs()
    return kv.KeyValueStore(path, writer="w", maintenance="none", **options)


def end_window(store: kv.KeyValueStore, number: int) -> None:
    store.begin_window(number)
    store.merge("a", (1, str(number)))
    store.end_window()


def define(path: str, columns: dict[str, str], **options: str) -> None:
    """Let a new query of Spark overwrite the store, with other columns and options."""
    StoreBatch(path, columns, OPTIONS | options, query_id(), overwrite=True).run(0, [[]])


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A store with window 3 recorded, and windows 4 to 7 ended."""
    path = str(tmp_path / "store")
    define(path, COLUMNS)
    with opened(path) as store:
        for number in range(3, 8):
            end_window(store, number)
        store.committed(3)
    return path


def numbers(path: str, **options: Any) -> list[int]:
    return [window.number for window in kv.read_windows(path, "w", **options)]


@parametrize(
    ("columns", "options", "clause"),
    [
        ({"k": "string", "n": "integer"}, {}, "text was removed"),
        (COLUMNS | {"k": "long"}, {}, r"types of the key columns was \['string'\] and is \['int64'\]"),
        (COLUMNS | {"id": "string"}, {"keyColumns": "id"}, r"keyColumns was \['k'\] and is \['id'\]"),
        (COLUMNS, {"merge": "n:max"}, "merge was n:sum and is n:max"),
        (COLUMNS | {"n": "string"}, {"merge": "last"}, "n was int64 and is string"),
    ],
    ids=["a column was removed", "type of the key", "key", "merge function", "type of a value"],
    quick=1,
)
def test_windows_that_do_not_fit_are_an_error_with_two_ways_out(
    path: str, columns: dict[str, str], options: dict[str, str], clause: str
) -> None:
    define(path, columns, **options)
    ways = r"kv\.read_windows\('.*/store', 'w'\), and discard them by opening the store with restore=3$"
    for _ in range(2):
        with pytest.raises(SchemaError, match=rf"windows 4 to 7 of writer 'w' have ended.*{clause}.*{ways}"):
            opened(path)
    assert numbers(path) == [4, 5, 6, 7]
    with opened(path, restore=3) as store:
        assert (store.recorded_window, store.last_window) == (3, 3)
    assert numbers(path) == []
    with opened(path) as store:
        assert store.last_window == 3


@pytest.mark.slow
def test_the_windows_come_back_with_the_old_definition(path: str) -> None:
    define(path, COLUMNS, merge="n:max")
    with pytest.raises(SchemaError, match="merge was"):
        opened(path)
    define(path, COLUMNS)
    with opened(path) as store:
        assert store.read("a") == (4, "7")
        store.committed(7)
        assert store.get("a") == (4, "7")


@pytest.mark.slow
def test_windows_have_the_columns_and_buckets_that_the_store_has_now(path: str) -> None:
    wide = StoreBatch(path, COLUMNS | {"more": "double"}, OPTIONS | {"onSchemaChange": "widen"}, query_id())
    wide.run(0, [[{"k": "b", "n": 1, "text": "b", "more": 0.5}]])
    kv.rebucket(path, 8)
    with opened(path) as store:
        assert store.definition.buckets == 8
        assert store.read("a") == (5, "7", None)
        store.committed(7)
        assert store.multi_get(["a", "b"]) == [(5, "7", None), (1, "b", 0.5)]


@pytest.mark.slow
def test_values_of_a_wider_type_take_the_windows(path: str) -> None:
    define(path, {"k": "string", "n": "integer", "text": "string"}, merge="last")
    with opened(path, restore=3) as store:
        store.begin_window(4)
        store.put("a", (4, "x"))
        store.end_window()
    define(path, {"k": "string", "n": "long", "text": "string", "more": "string"}, merge="last")
    with opened(path) as store:
        assert store.read("a") == (4, "x", None)
        store.committed(4)
        assert store.get("a") == (4, "x", None)


@pytest.mark.slow
def test_without_windows_any_definition_opens(path: str) -> None:
    with opened(path) as store:
        store.committed(7)
    define(path, {"id": "long", "x": "string"}, keyColumns="id", merge="last")
    with opened(path) as store:
        store.put(1, "one")
        store.commit()
        assert store.get(1) == "one"


@parametrize("change", ["rebucket", "overwrite", "merge"], quick=1)
def test_a_store_that_is_open_is_to_be_opened_again(path: str, change: str) -> None:
    store = opened(path)
    end_window(store, 8)
    if change == "rebucket":
        kv.rebucket(path, 8)
    else:
        define(path, COLUMNS | {"more": "string"}, merge="n:sum" if change == "overwrite" else "n:max")
    for call in (store.committed, store.commit):
        with pytest.raises(SchemaError, match=r"since it was opened.*open it again.*(the store has|is missing)"):
            call(8)
    assert store.read("a")[0] >= 5
    store.close()
    if change == "merge":
        with pytest.raises(SchemaError, match="windows 4 to 8"):
            opened(path)
        return
    with opened(path) as again:
        assert again.last_window == 8
        again.committed(8)
        assert again.get("a")[0] == (6 if change == "rebucket" else 5)


@pytest.mark.parametrize("encrypted", [False, True])
def test_windows_are_read_whole(tmp_path: Path, *, encrypted: bool) -> None:
    path, ring = f"{tmp_path}/store", tmp_path / "keys"
    ring.write_text("k " + base64.b64encode(bytes(32)).decode())
    ring.chmod(0o600)
    keyed: dict[str, Any] = {"key_provider": f"file:{ring}"} if encrypted else {}
    shape: dict[str, Any] = {"keys": {"city": "string", "day": "date"}, "values": {"n": "long"}, "merge": "sum"}
    day = date(2024, 2, 29)
    with opened(path, **shape, **keyed) as store:
        store.begin_window(1)
        store.put(("Rome", day), 1)
        store.merge(("Rome", day), 2)
        store.delete(("Paris", day))
        store.end_window()
        store.begin_window(5)
        store.purge(("Rome", day), ("Rome", date(2024, 3, 1)))
        store.purge("Uppsala")
        store.purge(prefix=("Oslo", date.max))
        store.end_window()
        before = [*list_wal(store.log.fs, "w")]
        first, second = kv.read_windows(path, "w", **keyed)
        assert list_wal(store.log.fs, "w") == before
        store.merge(("Oslo", day), 1)
        store.commit()
    assert (first.number, second.number) == (1, 5)
    assert [tuple(row.values()) for row in first.rows.to_pylist()] == [
        ("Rome", day, 1, 0),
        ("Rome", day, 2, 1),
        ("Paris", day, None, 2),
    ]
    assert first.rows.schema.names == ["city", "day", "n", "_op"]
    assert first.purges == []
    assert second.rows.num_rows == 0
    behind_all_days = pa.scalar((date.max - date(1970, 1, 1)).days + 1, pa.int32()).cast(pa.date32())
    assert second.purges == [
        (("Oslo", date.max), ("Oslo", behind_all_days)),
        (("Rome", day), ("Rome", date(2024, 3, 1))),
        (("Uppsala",), None),
    ]


def test_a_purge_of_keys_that_are_no_text_is_read(path: str) -> None:
    """Who can write there can put such a file there; their bytes are given, which can be printed."""
    store = opened(path)
    store.begin_window(8)
    store._pending.buffer.purge((b"\xae,",), None)  # noqa: SLF001 - no key of Python is such a string
    store.end_window()
    [*_, last] = kv.read_windows(path, "w")
    assert last.purges == [((b"\xae,",), None)]
    assert "xae" in repr(last)


@parametrize("event", ["commit", "opening"], quick=1)
def test_windows_are_read_beside_a_writer_that_goes_on(path: str, event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(path)
    end_window(store, 8)
    end_window(store, 9)

    def read_late(files: WalFiles, epoch: int, recorded: int) -> Sequence[WalFile]:
        """Read after the earlier files are deleted."""
        monkeypatch.setattr(opening, "read_wal", read_wal)
        if event == "commit":
            store.committed(8)
        else:
            opened(path)
        return read_wal(files, epoch, recorded)

    monkeypatch.setattr(opening, "read_wal", read_late)
    assert numbers(path) == ([9] if event == "commit" else [4, 5, 6, 7, 8, 9])


def test_damage_is_an_error_of_reading_windows(path: str) -> None:
    fs = open_filesystem(path)
    name = layout.wal_path("w", list_wal(fs, "w")[0])
    fs.put(name, fs.read(name)[:-1])
    with pytest.raises(CorruptData, match="restore=3"):
        kv.read_windows(path, "w")


def test_a_writer_that_never_was_has_no_windows(path: str) -> None:
    with pytest.raises(ConfigError, match="writer='v': no KeyValueStore has opened the store as this writer"):
        kv.read_windows(path, "v")
    with pytest.raises(ConfigError, match="is no store: nothing was ever committed there"):
        kv.read_windows(path + "/none", "w")
