"""What a vacuum, a verification and a stranger see of windows; encrypted stores; words counted through kills."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ftfile import kv, vacuum
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, StorageError
from ftfile.kv.operator import opening
from ftfile.kv.operator.wal import Wal
from ftfile.log.format import layout
from ftfile.log.wal import list_wal
from ftfile.storage.registry import open_filesystem

if TYPE_CHECKING:
    from pathlib import Path

COUNTS: dict[str, Any] = {"keys": {"word": "string"}, "values": {"n": "long"}, "merge": "sum", "maintenance": "none"}
WORDS = [f"w{number * number % 37}" for number in range(400)]
PER_WINDOW = 10
CHILD = """
import os, sys
from ftfile import kv
path, die_at = sys.argv[1], int(sys.argv[2])
words = [f"w{number * number % 37}" for number in range(400)]
from ftfile.log.commit_log import CommitLog
from ftfile.kv.operator.wal import Wal
calls = 0
def counted(original):
    def call(*args, **options):
        global calls
        calls += 1
        if calls == die_at:
            os.kill(os.getpid(), 9)
        found = original(*args, **options)
        calls += 1
        if calls == die_at:
            os.kill(os.getpid(), 9)
        return found
    return call
for owner, name in ((Wal, "append"), (Wal, "trim"), (CommitLog, "create")):
    setattr(owner, name, counted(getattr(owner, name)))
store = kv.KeyValueStore(path, writer="counter", keys={"word": "string"}, values={"n": "long"}, merge="sum")
for window in range(store.last_window + 1, 40):
    store.begin_window(window)
    for word in words[10 * window : 10 * window + 10]:
        store.merge(word, 1)
    store.end_window()
    if window % 7 == 6:
        store.committed(window - 2)
store.committed(39)
store.close()
"""


def window(store: kv.KeyValueStore, number: int) -> None:
    store.begin_window(number)
    store.merge("a", 1)
    store.end_window()


@pytest.mark.slow
def test_words_are_counted_once_however_often_the_process_is_killed(tmp_path: Path) -> None:
    path, done = f"{tmp_path}/store", False
    for die_at in (3, 8, 21, 40, 5, 1_000_000):
        process = subprocess.run([sys.executable, "-c", CHILD, path, str(die_at)], capture_output=True, check=False)
        done = process.returncode == 0
        assert done or process.returncode == -signal.SIGKILL, process.stderr.decode()
        with kv.open(path) as reader:
            shown = Counter(dict(zip(WORDS, reader.multi_get(WORDS), strict=True)))
        assert all((count or 0) <= Counter(WORDS)[word] for word, count in shown.items())
    assert done
    assert shown == Counter(WORDS)


def vacuumed(path: str) -> list[str]:
    """Delete what nothing needs, and return the files of windows among it."""
    report = vacuum(path, dry_run=False, retention="0s", force=True)
    return sorted(file.path.rpartition("/")[2] for file in report.files if file.kind == "windows")


def test_vacuum_deletes_windows_of_processes_that_are_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{tmp_path}/store"
    monkeypatch.setattr(Wal, "trim", lambda *_: None)
    monkeypatch.setattr(Wal, "trim_older", lambda _: None)
    with kv.KeyValueStore(path, writer="w", **COUNTS) as store:
        for number in range(4):
            window(store, number)
        store.committed(1)
    assert vacuumed(path) == []

    def fail(_: object) -> None:
        raise StorageError("create", "_ftfile/log", "the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr(opening, "record_take_over", fail)
        with pytest.raises(StorageError):
            kv.KeyValueStore(path, writer="w", **COUNTS)
    assert vacuumed(path) == [], "no process has taken over"
    with kv.KeyValueStore(path, writer="w", **COUNTS) as again:
        assert (again.recorded_window, again.last_window, again.read("a")) == (1, 3, 4)
        window(again, 4)
    assert vacuumed(path) == [f"_{1:010}-{number:010}.wal" for number in range(1, 5)] + [f"_{2:010}-{0:010}.wal"]
    assert list_wal(open_filesystem(path, SYSTEM), "w") == [(3, 0), (3, 1)]
    assert vacuumed(path) == []
    with kv.KeyValueStore(path, writer="w", **COUNTS) as again:
        assert (again.recorded_window, again.last_window, again.read("a")) == (1, 4, 5)
    assert not kv.verify(path).damaged


def test_windows_of_an_encrypted_store_are_encrypted(tmp_path: Path) -> None:
    path, ring = f"{tmp_path}/store", tmp_path / "keys"
    ring.write_text("k " + base64.b64encode(bytes(32)).decode())
    ring.chmod(0o600)
    options = {**COUNTS, "key_provider": f"file:{ring}"}
    store = kv.KeyValueStore(path, writer="w", **options)
    store.begin_window(1)
    store.merge("secret-word", 1)
    store.purge("hidden-start", "hidden-top")
    store.end_window()
    fs = open_filesystem(path, SYSTEM)
    content = fs.read(layout.wal_path("w", list_wal(fs, "w")[0]))
    assert not any(word in content for word in (b"secret", b"hidden", b"aGlkZGVu", b"word"))
    with kv.KeyValueStore(path, writer="w", **options) as again:
        assert again.read("secret-word") == 1
        store.close()
        again.committed(1)
        assert again.get("secret-word") == 1
    with pytest.raises((ConfigError, CorruptData)):
        kv.KeyValueStore(path, writer="w", **COUNTS)
