"""Keyed stores on servers: what their tests do on each of them."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile import kv
from ftfile.core.errors import Fenced, OutcomeUnknown, StorageError, Unavailable
from ftfile.testing.micro_batch import StoreBatch
from ftfile.writing.options import forget_logs
from tests.crash.share import THOROUGH
from tests.kit.store_check import check_store
from tests.unit.writing.files.encrypted import ring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

__all__ = (
    "provider",
    "ring",
    "try_batches_and_upkeep",
    "try_calls_of_a_silent_server",
    "try_windows_of_a_killed_process",
)

COLUMNS = {"k": "string", "n": "long", "gone": "boolean"}
OPTIONS = {"keyColumns": "k", "buckets": "2", "merge": "n:sum", "deleteColumn": "gone", "flushIntervalCount": "2"}
KEYS = [f"key-{number:02}" for number in range(40)]
BATCHES = 5
# For a call to a silent server, which is given up after seconds on a machine of its own.
LIMIT_S = 600.0

KILLED = """\
import json, os, signal, sys
from ftfile import kv
url, storage, provider = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] or None
store = kv.KeyValueStore(
    url, writer="w", keys={"k": "string"}, values={"n": "long"}, buckets=2, merge="sum", maintenance="inline",
    options={"flushIntervalCount": "2"}, storage=storage, key_provider=provider,
)
for window in range(6):
    store.begin_window(window)
    store.merge("all", 1)
    store.put(f"window-{window}", window)
    store.delete(f"window-{window - 2}")
    store.end_window()
    if window in {1, 2, 3}:
        store.committed(window)
store.begin_window(6)
store.merge("all", 100)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=["plain", "encrypted"] if THOROUGH else ["drawn"])
def provider(request: pytest.FixtureRequest, seed: int, ring: Path) -> str | None:
    """The keys of an encrypted store, None for one that is not: both in `make long`; else what is drawn."""
    drawn = random.Random(f"{seed} {request.node.name}").choice(["plain", "encrypted"])
    return f"file:{ring}" if (drawn if request.param == "drawn" else request.param) == "encrypted" else None


def try_batches_and_upkeep(url: str, storage: Mapping[str, str], provider: str | None = None) -> None:
    """Batches, merges of runs, a repeated batch, all kinds of reads, and each call of upkeep."""
    how: dict[str, Any] = {"storage": storage, "key_provider": provider}
    query = query_of(url, storage, provider)
    expected: dict[str, int] = {}
    reader = None
    for batch in range(BATCHES):
        partitions = rows_of(batch)
        query.run(batch, partitions)
        for each in partitions[0] + partitions[1]:
            expected[each["k"]] = expected.get(each["k"], 0) + each["n"]
            if each["gone"]:
                del expected[each["k"]]
        if reader is None:
            reader, first = kv.open(url, **how), dict(expected)
    query.restart()
    assert query.run(BATCHES - 1, rows_of(BATCHES - 1)[::-1]).replayed

    assert reader is not None
    assert read(reader) == first
    assert reader.refresh() > 0
    assert read(reader) == expected
    assert reader.multi_get([*KEYS, "none"]) == [*map(expected.get, KEYS), None]
    found = reader.lookup(pa.array(KEYS))
    assert found["n"].to_pylist() == [*map(expected.get, KEYS)]
    assert next(kv.open(url, **how).scan("key-10", "key-20", ["k"]))["k"].to_pylist() == [
        key for key in KEYS[10:20] if key in expected
    ]
    assert read(reader.at(0)) == first
    assert any(run.metadata.at[0] < run.metadata.at[1] for run in reader.runs()), "no batch has merged runs"

    assert kv.compact(url, full=True, **how).runs_replaced
    assert kv.purge(url, "key-10", "key-20", **how).version is not None
    expected = {key: n for key, n in expected.items() if not "key-10" <= key < "key-20"}
    assert kv.rebucket(url, 4, **how).buckets == 4
    for one in (reader, kv.open(url, **how)):
        one.refresh()
        assert {key: one.get(key) for key in KEYS} == dict.fromkeys(KEYS) | expected
    assert read(reader) == check_rows(reader) == expected
    assert kv.verify(url, **how).damaged == ()

    time.sleep(1.1)  # servers tell time in whole seconds
    assert ftfile.vacuum(url, retention="0s", force=True, dry_run=False, **how).files
    query.options = {**query.options, "buckets": "4"}
    query.run(BATCHES, [[row("key-00", 1000)]])
    reader.refresh()
    expected["key-00"] = expected.get("key-00", 0) + 1000
    assert read(reader) == check_rows(reader) == expected
    assert kv.verify(url, **how).damaged == ()


def try_windows_of_a_killed_process(url: str, storage: Mapping[str, str], provider: str | None = None) -> None:
    """Windows of a process that is killed come back in another one; one that is left open is fenced."""
    killed = [sys.executable, "-c", KILLED, url, json.dumps(dict(storage)), provider or ""]
    done = subprocess.run(killed, env=os.environ, capture_output=True, check=False, timeout=600)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    store = operator_of(url, storage, provider)
    assert (store.recorded_window, store.last_window) == (3, 5)
    assert (store.get("all"), store.get_uncommitted("window-3"), store.read("all")) == (4, kv.DELETED, 6)
    store.committed(5)
    store.begin_window(6)
    store.merge("all", 10)
    store.end_window()
    store.begin_window(7)
    store.merge("all", 100)
    store.end_window()

    newer = operator_of(url, storage, provider, restore=6)
    with pytest.raises(Fenced):
        store.committed(7)
    store.close()
    assert newer.last_window == 6
    newer.committed(6)
    newer.purge("window-4", "window-5")
    newer.commit()
    newer.close()
    reader = kv.open(url, storage=storage, key_provider=provider)
    assert read(reader) == check_rows(reader) == {"all": 16, "window-5": 5}


def try_calls_of_a_silent_server(
    url: str, storage: Mapping[str, str], silence: Callable[[], AbstractContextManager[object]]
) -> None:
    """Each call ends in time, with an error that names the store; the same calls succeed later, each change once.

    Args:
        url: of the store, which is made.
        storage: its settings, with short time limits.
        silence: the server says nothing within such a block.
    """
    query_of(url, storage, None).run(0, rows_of(0))
    expected = {each["k"]: each["n"] for rows in rows_of(0) for each in rows if not each["gone"]}
    store = operator_of(f"{url}-windows", storage, None)
    for window in range(2):
        store.begin_window(window)
        store.merge("all", 10**window)
        store.end_window()
    store.committed(0)
    store.begin_window(2)
    store.merge("all", 100)
    calls = {**reads_of(url, storage, expected), "end_window": store.end_window}
    warm, known = kv.open(url, storage=storage), next(iter(expected))
    assert warm.get(known) == expected[known]
    with silence(), ThreadPoolExecutor(len(calls)) as pool:
        assert warm.get(known) == expected[known]
        for said in pool.map(failure_of, calls.values()):
            assert urllib.parse.urlsplit(url).path in said
            assert re.search("does not respond|was lost|no response", said)
        with pytest.raises(StorageError):
            store.committed(1)
    done = {name: call() for name, call in calls.items()}
    assert done["open"] == done["scan"] == expected
    assert done["get"] == done["multi_get"] == done["lookup"] == [*expected.values()]
    assert (store.last_window, store.recorded_window) == (2, 0)

    newer = operator_of(f"{url}-windows", storage, None)
    store.close()
    assert (newer.last_window, newer.read("all")) == (2, 111)
    newer.committed(2)
    newer.close()
    assert read(kv.open(f"{url}-windows", storage=storage)) == {"all": 111}


def reads_of(url: str, storage: Mapping[str, str], expected: Mapping[str, int]) -> dict[str, Callable[[], object]]:
    """Return all ways to read a store; each has a reader of its own, so that none waits for another."""
    readers = {name: kv.open(url, storage=storage) for name in ("refresh", "get", "multi_get", "lookup", "scan")}
    keys = [*expected]
    return {
        "open": lambda: read(kv.open(url, storage=storage)),
        "refresh": readers["refresh"].refresh,
        "get": lambda: [readers["get"].get(key) for key in keys],
        "multi_get": lambda: readers["multi_get"].multi_get(keys),
        "lookup": lambda: [*readers["lookup"].lookup(pa.array(keys))["n"].to_pylist()],
        "scan": lambda: read(readers["scan"]),
    }


def failure_of(call: Callable[[], object]) -> str:
    """Return the error of a call that ends in time because a server is silent."""
    began_s = time.monotonic()
    with pytest.raises(StorageError) as caught:
        call()
    assert time.monotonic() - began_s < LIMIT_S
    assert isinstance(caught.value, Unavailable | OutcomeUnknown)
    return str(caught.value)


def query_of(url: str, storage: Mapping[str, str], provider: str | None) -> StoreBatch:
    settings = {f"storage.{name}": text for name, text in storage.items()}
    if provider is not None:
        settings |= {"encryption": "aes-gcm", "keyProvider": provider}
    return StoreBatch(url, COLUMNS, OPTIONS | settings)


def operator_of(
    url: str, storage: Mapping[str, str], provider: str | None, restore: int | None = None
) -> kv.KeyValueStore:
    forget_logs()
    options = {"flushIntervalCount": "2"}
    return kv.KeyValueStore(
        url,
        writer="w",
        keys={"k": "string"},
        values={"n": "long"},
        buckets=2,
        merge="sum",
        restore=restore,
        maintenance="inline",
        options=options,
        storage=storage,
        key_provider=provider,
    )


def row(key: str, n: int, *, gone: bool = False) -> dict[str, Any]:
    return {"k": key, "n": n, "gone": gone}


def rows_of(batch: int) -> list[list[dict[str, Any]]]:
    """Return the rows of a batch, of two tasks, each key once."""
    drawn = random.Random(batch)
    keys = drawn.sample(KEYS, 24)
    rows = [row(key, drawn.randrange(100), gone=drawn.random() < 0.2) for key in keys]
    return [rows[:12], rows[12:]]


def read(reader: kv.Reader) -> dict[str, int]:
    return {found["k"]: found["n"] for batch in reader.scan() for found in batch.to_pylist()}


def check_rows(reader: kv.Reader) -> dict[str, int]:
    """Check all invariants, and return the rows."""
    return {key: n for (key,), (n,) in check_store(reader.log.fs).rows.items()}
