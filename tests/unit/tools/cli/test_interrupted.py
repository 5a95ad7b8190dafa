"""Ctrl-C at any file system call of each command that changes a directory: the directory stays valid."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pytest

import ftfile
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.log.format import layout
from ftfile.log.format.record import UNDONE_RECORD
from ftfile.storage.registry import WrapperFile, WrapperFileSystem, WrapperStream
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.files.file_writer import forget_caches
from tests.unit.tools.cli.running import invoke, run

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ftfile.storage.api import FileSystem, InputFile, OutputStream

pytestmark = pytest.mark.slow

FOREIGN = {"month=7/a.json": b'{"id":1}\n{"id":2}\n', "month=8/b.json": b'{"id":3}\n'}
COLUMNS = {"id": "long", "month": "string"}
BATCHES = 4
# The number of calls at which each command is interrupted.
DRAWN = 4

_Result = TypeVar("_Result")
Rows = Counter["Hashable"]


def rows_of(url: str) -> Rows:
    return Counter(ftfile.open(url).to_arrow()["id"].to_pylist())


def rows_of_migrated(url: str) -> Rows:
    """Return the rows of the directory, or the rows of its files if it is not an ftfile directory."""
    if is_directory(url):
        return rows_of(url)
    fs = open_filesystem(url)
    return Counter(json.loads(line)["id"] for path in FOREIGN for line in fs.read(path).splitlines())


def is_directory(url: str) -> bool:
    try:
        return ftfile.open(url).version() >= 0
    except FtfileError:
        return False


def is_undone(url: str) -> bool:
    """Return True for a migration that is being undone: its log is not read or repaired any more."""
    fs, last = open_filesystem(url), layout.record_path(1)
    return fs.exists(last) and fs.read(last) == UNDONE_RECORD


class Case(NamedTuple):
    """A command, and the state of the directory on which it runs."""

    write: Callable[[str], object]
    command: tuple[str, ...]
    options: tuple[str, ...] = ()
    read: Callable[[str], Rows] = rows_of


class Interrupted(WrapperFileSystem):
    """Raises KeyboardInterrupt at a call, before or after the call has its effect."""

    def __init__(self, inner: FileSystem, at: int, *, after: bool) -> None:
        super().__init__(inner)
        self.calls = 0
        self._at = at
        self._after = after

    def around(self, operation: str, path: str, call: Callable[[], _Result]) -> _Result:
        del operation, path
        # Python raises KeyboardInterrupt only in the main thread.
        if threading.current_thread() is not threading.main_thread():
            return call()
        self.calls += 1
        number = self.calls
        if number == self._at and not self._after:
            raise KeyboardInterrupt
        try:
            return call()
        finally:
            if number == self._at:
                raise KeyboardInterrupt

    def create(self, path: str) -> OutputStream:
        return WrapperStream(super().create(path), self)

    def open(self, path: str) -> InputFile:
        return WrapperFile(super().open(path), self)


def rows_of_store(url: str) -> Rows:
    with ftfile.kv.open(url) as reader:
        return Counter((row["word"], row["n"]) for batch in reader.scan() for row in batch.to_pylist())


def write(url: str, **options: str) -> MicroBatch:
    query = MicroBatch(url, COLUMNS, {"fileFormat": "json", "partitionBy": "month"} | options)
    for batch in range(BATCHES):
        query.run(batch, [[{"id": 2 * batch + number, "month": str(7 + number)} for number in range(2)]])
    return query


def write_parquet(url: str) -> None:
    write(url, fileFormat="parquet")


def write_and_export(url: str) -> None:
    query = write(url, fileFormat="parquet")
    ftfile.export(url)
    query.run(BATCHES, [[{"id": 8, "month": "7"}]])


def write_open(url: str) -> None:
    write(url, rolling="policy", maxBatchesPerFile="100")


def write_and_merge(url: str) -> None:
    write(url)
    ftfile.compact(url)


def write_foreign(url: str) -> None:
    fs = open_filesystem(url)
    for path, content in FOREIGN.items():
        fs.make_directories(path.rpartition("/")[0])
        fs.put(path, content)


def write_and_migrate(url: str) -> None:
    write_foreign(url)
    run("migrate", url, *MIGRATION)


def write_and_drop(url: str) -> None:
    write(url)
    ftfile.drop(url, "month = '7'")


def write_and_harm(url: str) -> None:
    """Write a directory, delete a part, and restore the old file of a part that a compaction replaced."""
    write(url)
    ftfile.compact(url)
    fs = ftfile.open(url).file_system
    (lost, _) = ftfile.open(url).files()
    fs.delete(lost.path)
    old = ftfile.open(url).files(0)[1]
    (hidden,) = (
        info.path for info in fs.list(layout.RETIRED) if info.path.endswith(f"{_id_of(url, old.path)}.retired")
    )
    fs.rename(hidden, old.path)


def _id_of(url: str, path: str) -> str:
    return next(add.id for add in ftfile.open(url).snapshot(0).adds.values() if add.final_path == path)


def write_store(url: str) -> None:
    query = StoreBatch(url, {"word": "string", "n": "long"}, {"keyColumns": "word", "merge": "n:sum", "buckets": "2"})
    for _ in range(BATCHES):
        query.run(_, [[{"word": word, "n": 1} for word in ("a", "b", "c")]])


AT_ONCE = ("--force", "--yes")
MIGRATION = ("--from", "files", "--schema", "id long", "--partition-by", "month=string", "--yes")
LOADED = str(Path(__file__).with_name("rows.jsonl"))
CASES = {
    "write": Case(write, ("write",), (LOADED, "--app-id", "loads", "--version", "1")),
    "flush": Case(write_open, ("flush",)),
    "compact": Case(write, ("compact",)),
    "drop": Case(write, ("drop",), ("--where", "month = '7'", "--yes")),
    "delete": Case(write, ("delete",), ("--where", "id < 3", "--yes")),
    "restore": Case(write_and_drop, ("restore",), ("--version", "3", "--yes")),
    "repair": Case(write_and_harm, ("repair",), ("--give-up", "month=7/*", "--yes")),
    "vacuum": Case(write_and_merge, ("vacuum",), ("--retention", "0s", *AT_ONCE)),
    "expire": Case(write_and_merge, ("expire",), ("--older-than", "0s", *AT_ONCE)),
    "export": Case(write_parquet, ("export",), ("--to", "delta")),
    "export again": Case(write_and_export, ("export",)),
    "migrate": Case(write_foreign, ("migrate",), MIGRATION, rows_of_migrated),
    "migrate --undo": Case(write_and_migrate, ("migrate",), ("--undo", "--yes"), rows_of_migrated),
    "kv compact": Case(write_store, ("kv", "compact"), ("--full",), rows_of_store),
}


INTERRUPTED = (
    "interrupted. Recorded changes are kept",
    "interrupted. Nothing was written",
    "interrupted. All rows were written, or none",
)


def worst_of(url: str) -> set[str]:
    """Return the codes of the errors of a directory or store, or an empty result if there is no log."""
    if is_undone(url):
        return set()
    try:
        report = ftfile.repair(url, full=True)
    except ConfigError:
        return set()
    return {finding.code for finding in report.findings if finding.severity == "error"} | {
        step.code for step in report.steps if step.code not in {"not-published", "not-hidden"}
    }


def is_back(name: str, url: str) -> bool:
    """Return True if a migration was completely undone, so that no migration remains to undo."""
    try:
        return name == "migrate --undo" and not ftfile.undo_migration(url, dry_run=True).dry_run
    except ConfigError:
        return True


@pytest.mark.parametrize("name", CASES)
def test_ctrl_c_harms_nothing(name: str, request: pytest.FixtureRequest) -> None:
    case = CASES[name]

    def done_at(at: int, *, after: bool) -> tuple[int, Rows]:
        """Interrupt the command, check the directory, and run it again. Return the calls of the first run, and the last
        rows.
        """
        MemoryFileSystem.drop("interrupted")
        fs = MemoryFileSystem("interrupted")
        with mounted(fs) as url:
            case.write(url)
            known, before = worst_of(url), None if name == "repair" else case.read(url)
        forget_caches()
        with mounted(watched := Interrupted(fs, at, after=after)) as url:
            result = invoke([*case.command, url, *case.options])
        # Runs may differ in calls that depend on the order of random names.
        is_interrupted = 0 < at <= watched.calls
        assert result.exit_code == (130 if is_interrupted else 0), f"{name} at call {at}: {result.output}"
        assert not is_interrupted or any(text in result.stderr for text in INTERRUPTED), result.stderr
        forget_caches()
        with mounted(fs) as url:
            assert worst_of(url) <= known, f"{name} at call {at}"
            assert "Nothing was written" not in result.stderr or case.read(url) == before
            found = case.read(url) if not worst_of(url) & {"missing-part"} else None
            is_given_up = name == "repair" and "missing-part" not in worst_of(url)
            options = ("--yes",) if is_given_up else case.options
            run(*case.command, url, *options, code=2 if is_back(name, url) else 0)
            assert worst_of(url) == set(), f"{name} at call {at}"
            at_last = case.read(url)
        assert not at or found is None or found in (before, at_last), f"{name} at call {at}"
        return watched.calls, at_last

    calls, expected = done_at(0, after=False)
    draw = random.Random(request.config.option.seed)
    for at in draw.sample(range(1, calls + 1), min(DRAWN, calls)):
        assert done_at(at, after=draw.random() < 0.5)[1] == expected, f"{name} at call {at}"
    MemoryFileSystem.drop("interrupted")
