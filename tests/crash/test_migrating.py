"""A migration from Spark's sink and its undo, crashed at every step: each row is read once, and no step blocks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, get_args

import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.log.places import walk
from ftfile.testing.checker import list_plainly
from ftfile.testing.context import ManualClock, SeededIds, current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem, CrashState, KillState, crash_states, kill_states
from ftfile.testing.fs.memory import mounted
from ftfile.testing.fs.volume import Storage
from tests.crash.world import prefixed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.storage.api import FileSystem

pytestmark = pytest.mark.slow

COUNTS = b'{"id":1}\n{"id":2}\n'
ENTRY = {"path": "file:///out/a.json", "size": len(COUNTS), "action": "add"}
FILES = {
    "a.json": COUNTS,
    "of-a-failed-attempt.json": b'{"id":9}\n',
    "_spark_metadata/0": b"v1",
    "_spark_metadata/1": b"v1\n" + json.dumps(ENTRY).encode(),
}
STATES_MIN = {"disk": 60, "hdfs": 40, "webhdfs": 40, "s3": 25, "memory": 30}


def begun(storage: Storage, files: dict[str, bytes]) -> CrashingFileSystem:
    """Return a durable file system with these files."""
    fs = CrashingFileSystem(clock=ManualClock(), storage=storage)
    for directory in sorted({path.rpartition("/")[0] for path in files}):
        fs.make_directories(directory)
    for path, content in files.items():
        fs.create_exclusive(path, content)
        for directory in layout.ancestors(layout.parent(path)):
            fs.sync_directory(directory)
    return list(crash_states(fs))[-1].filesystem()


def migrate(fs: FileSystem) -> None:
    with mounted(fs) as url:
        ftfile.migrate(url, schema="id long", dry_run=False, context=current(), threads=1)


def undo(fs: FileSystem) -> None:
    with mounted(fs) as url:
        ftfile.undo_migration(url, context=current())


def content(fs: FileSystem) -> dict[str, bytes]:
    return {path: fs.read(path) for path in walk(fs, "")}


def check(fs: FileSystem) -> None:
    """Check that every reader sees exactly the valid rows."""
    if fs.exists("_spark_metadata/1"):
        return  # Spark's readers use Spark's log, and ftfile's sink refuses to write
    assert list(list_plainly(fs)) == ["a.json"]
    with mounted(fs) as url:
        assert sorted(ftfile.open(url, context=current()).to_arrow()["id"].to_pylist()) == [1, 2]


def check_migrated(fs: FileSystem) -> None:
    assert not fs.exists("_spark_metadata/1")
    check(fs)
    with mounted(fs) as url:
        findings = ftfile.open(url, context=current()).verify(full=True).findings
    assert {finding.code for finding in findings} <= {"bad-hint"}, "a power cut may tear hints"


def check_undone(fs: FileSystem) -> None:
    assert content(fs) == FILES


def undo_again(fs: FileSystem) -> None:
    """Undo the executed steps of a migration."""
    if fs.exists(layout.record_path(0)):
        undo(fs)
        check_undone(fs)


def explore(whole: CrashingFileSystem, step: Callable[[FileSystem], None], done: Callable[[FileSystem], None]) -> int:
    """Run a step, then repeat it after each crash."""
    step(whole)
    done(whole)
    states: list[CrashState | KillState] = [*kill_states(whole), *crash_states(whole, seen=set(), limit_per_point=4)]
    for state in states:
        fs = state.filesystem()
        if step is migrate:
            check(fs)
            undo_again(state.filesystem())
        is_undone = step is undo and not fs.exists(layout.FORMAT_FILE) and not fs.exists(layout.record_path(1))
        with prefixed(str(state)):
            if not is_undone:
                step(fs)
            done(fs)
    return len(states)


@pytest.mark.parametrize("storage", get_args(Storage))
def test_every_crash(storage: Storage) -> None:
    with repeatable(ManualClock(), SeededIds()):
        assert explore(begun(storage, FILES), migrate, check_migrated) >= STATES_MIN[storage]
        fs = begun(storage, FILES)
        migrate(fs)
        assert explore(begun(storage, content(fs)), undo, check_undone) >= STATES_MIN[storage]
