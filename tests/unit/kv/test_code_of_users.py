"""A class that merges values is imported only for callers who name it, never because a store names it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError
from ftfile.kv import KeyValueStore
from ftfile.kv.merge_functions import merge_function
from ftfile.log.opening import NO_STORE, open_log
from ftfile.testing.micro_batch import StoreBatch
from tests.kit.due_compactions import compact_due
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODULE = "sums_of_a_user"
FUNCTION = f"{MODULE}:Sum"
MERGE = f"n:{FUNCTION}"
NEEDED = (
    re.escape(f"merge='{MERGE}', and ftfile does not import code only because a directory names it")
    + ".*give "
    + re.escape(f"merge='{MERGE}'")
)
COLUMNS = {"k": "string", "n": "long", "note": "string"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A store with rows of the key `a` in two runs, whose class no process has imported yet."""
    (tmp_path / f"{MODULE}.py").write_text(
        "import pyarrow.compute as pc\n\n\nclass Sum:\n    combine = staticmethod(pc.add)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = str(tmp_path / "store")
    options = {"keyColumns": "k", "merge": MERGE, "buckets": "1", "vacuumInterval": "0s", "flushIntervalCount": "2"}
    query = StoreBatch(path, COLUMNS, options, checkpoint=str(tmp_path / "checkpoint"))
    for batch_id in range(2):
        query.run(batch_id, [[{"k": "a", "n": 1, "note": "x"}, {"k": str(batch_id), "n": 5, "note": "y"}]])
    forget()
    yield path
    forget()


def forget() -> None:
    sys.modules.pop(MODULE, None)
    merge_function.cache_clear()


def as_writer(path: str, merge: str | None) -> None:
    with KeyValueStore(path, writer="w", merge=merge, maintenance="none") as opened:
        opened.put("c", (1, "x"))
        opened.commit()


def as_batch(path: str, merge: str | None) -> None:
    options = {"keyColumns": "k", "onNewQuery": "continue"} | ({} if merge is None else {"merge": merge})
    StoreBatch(path, COLUMNS, options, query_id="another").run(0, [[{"k": "a", "n": 1, "note": "x"}] * 2])


CALLS: dict[str, Callable[[str, str | None], Any]] = {
    "get": lambda path, merge: kv.open(path, merge=merge).get("a"),
    "multi_get": lambda path, merge: kv.open(path, merge=merge).multi_get(["a"] * 1200),
    "lookup": lambda path, merge: kv.open(path, merge=merge).lookup(pa.array(["a"])),
    "scan": lambda path, merge: [*kv.open(path, merge=merge).scan()],
    "at": lambda path, merge: kv.open(path, version=1, merge=merge).get("a"),
    "changes": lambda path, merge: [*kv.changes(path, merge=merge)],
    "compact": lambda path, merge: kv.compact(path, merge=merge),
    "full compaction": lambda path, merge: kv.compact(path, full=True, merge=merge),
    "rebucket": lambda path, merge: kv.rebucket(path, 4, merge=merge),
    "a writer": as_writer,
    "a batch": as_batch,
}


@parametrize("call", CALLS, quick=1)
def test_is_not_imported_unless_the_caller_names_it(store: str, call: str) -> None:
    others = [None, "sum", "n:sum", "os:system"] if call not in {"a writer", "a batch"} else [None]
    for merge in others:
        with pytest.raises(ConfigError, match=NEEDED):
            CALLS[call](store, merge)
    assert MODULE not in sys.modules
    CALLS[call](store, MERGE)
    assert MODULE in sys.modules or call == "a writer"


@parametrize("merge", [MERGE, FUNCTION, {"n": FUNCTION}, f"note:last, {MERGE}"], quick=2)
def test_is_named_as_writers_name_it(store: str, merge: Any) -> None:
    assert kv.open(store, merge=merge).get("a") == (2, "x")


@pytest.mark.slow
def test_is_not_needed_where_nothing_is_merged(store: str) -> None:
    reader = kv.open(store)
    assert [row["note"] for batch in reader.scan(columns=["note"]) for row in batch.to_pylist()] == ["y", "y", "x"]
    assert kv.verify(store).ok
    assert reader.stats().runs == 2
    assert reader.definition.merge["n"] == FUNCTION
    assert kv.compact(store, dry_run=True).runs_replaced == 2
    assert MODULE not in sys.modules


def test_due_merges_of_a_process_need_it(store: str) -> None:
    log = open_log(store, Access(), NO_STORE)
    with pytest.raises(ConfigError, match=NEEDED):
        compact_due(log)
    assert MODULE not in sys.modules
    assert compact_due(log, frozenset({FUNCTION})).records == 1


@pytest.mark.slow
def test_the_store_is_as_before_for_those_who_name_it(store: str) -> None:
    kv.compact(store, full=True, merge=MERGE)
    kv.rebucket(store, 2, merge=MERGE)
    as_writer(store, MERGE)
    as_batch(store, MERGE)
    reader = kv.open(store, merge=MERGE)
    assert reader.multi_get(["a", "0", "c"]) == [(4, "x"), (5, "y"), (1, "x")]
