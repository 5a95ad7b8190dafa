"""Files of other programs on any storage: lines of a log are read once, a directory of Spark's sink is migrated."""

from __future__ import annotations

import datetime
import gzip
import io
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ftfile
from ftfile.log.format import layout
from ftfile.log.places import walk
from ftfile.testing.context import open_filesystem
from ftfile.testing.source_run import Killed
from tests.kit.files_run import FilesRun
from tests.kit.plan_check import check_plans
from tests.spark.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.storage.api import FileSystem

__all__ = ("check_a_migration", "check_lines_are_read_once")

OPTIONS = {
    "fileFormat": "text",
    "fileIdentity": "content",
    "ignoreFilePattern": r".*\.new",
    "minFileAge": "0s",
    "scanInterval": "0s",
}


def check_lines_are_read_once(url: str, settings: Mapping[str, str]) -> None:
    """Read such a log in processes that die, with the state of the stream on the same storage.

    Args:
        url: of a directory that is not there yet.
        settings: of the file system.
    """
    logs = Logs(url, settings)
    grows(logs)
    is_rotated(logs)
    logs.check_state()


def check_a_migration(url: str, settings: Mapping[str, str]) -> None:
    """Migrate what Spark's sink has left beside hidden directories, read it, and undo that.

    Args:
        url: of a directory that is not there yet.
        settings: of the file system.
    """
    fs = open_filesystem(url, settings=settings)
    count = [f"day=2024-07-0{day}/part-{day}.parquet" for day in (1, 2)]
    others = ["day=2024-07-02/part-8.parquet", "_temporary/0/part-9.parquet", "day=2024-07-02/.staging/part-9.parquet"]
    for path in (*count, *others):
        with io.BytesIO() as file:
            pq.write_table(pa.table({"id": [int(path[-len("1.parquet")])]}), file)
            put(fs, path, file.getvalue())
    entries = [{"path": f"{url}/{path}", "size": fs.stat(path).size_bytes, "action": "add"} for path in count]
    put(fs, "_spark_metadata/0", "\n".join(["v1", *map(json.dumps, entries)]).encode())
    before = content(fs)
    plan = ftfile.migrate(url, partition_by={"day": "date"}, storage=settings)
    assert (plan.files, plan.rows, [each.path for each in plan.left_out]) == (2, 2, others[:1])
    assert content(fs) == before, "a dry run changes nothing"
    ftfile.migrate(url, partition_by={"day": "date"}, dry_run=False, storage=settings)
    found = ftfile.open(url, storage=settings).to_arrow().sort_by("id")
    assert found.to_pylist() == [{"id": day, "day": datetime.date(2024, 7, day)} for day in (1, 2)]
    assert ftfile.migrate(url, dry_run=False, storage=settings).already_migrated
    assert ftfile.undo_migration(url, storage=settings).put_back == ("_spark_metadata/0", *others[:1])
    assert content(fs) == before


def put(fs: FileSystem, path: str, written: bytes) -> None:
    fs.make_directories(layout.parent(path))
    fs.create_exclusive(path, written)


def content(fs: FileSystem) -> dict[str, bytes]:
    return {path: fs.read(path) for path in walk(fs, "")}


def lines(first: int, last: int) -> list[str]:
    """Return the lines from `first` up to `last`, without it; five of them are enough for a fingerprint."""
    return [f"{number} {'x' * 60}" for number in range(first, last)]


class Logs:
    """A directory of logs, and the stream that reads them."""

    def __init__(self, url: str, settings: Mapping[str, str]) -> None:
        self._url, self._settings = url, settings
        self.fs = open_filesystem(url, settings=settings)
        self.fs.make_directories("logs")
        storage = {f"storage.{name}": text for name, text in settings.items()}
        self._options = OPTIONS | storage | {"stateLocation": f"{url}/state"}
        self.run = FilesRun(f"{url}/logs", {"value": "string"}, self._options)

    def write(self, name: str, written: list[str]) -> None:
        """Put a whole file there, as those do whose storage cannot append."""
        path = f"logs/{name}"
        self.fs.create_exclusive(f"{path}.new", "".join(f"{line}\n" for line in written).encode())
        if self.fs.exists(path):
            self.fs.delete(path)
        self.fs.rename(f"{path}.new", path)

    def expect(self, expected: list[str]) -> None:
        """Read until all these lines have come, and no others; a listing may be seconds after the one before."""

        def have_come() -> bool:
            self.run.run()
            return len(self.run.rows) >= len(expected)

        wait_until(have_come, f"{len(expected)} lines")
        found = sorted((row["value"] for row in self.run.rows), key=lambda line: int(line.split()[0]))
        assert found == expected

    def check_state(self) -> None:
        (status,) = ftfile.source_status(f"{self._url}/logs", **self._options)
        assert (status.files_behind, status.parked, status.refused, status.late) == (0, (), (), 0)
        state = open_filesystem(f"{self._url}/state/{status.id}", settings=self._settings)
        check_plans(state, self.run.offsets, self.run.commits)


def grows(logs: Logs) -> None:
    """Up to 15 lines, in three batches; the process dies when Spark has noted the second one."""
    logs.expect([])
    logs.write("app.log", lines(0, 5))
    logs.expect(lines(0, 5))
    logs.write("app.log", lines(0, 10))
    logs.run.kill_at = "offsets written"
    with pytest.raises(Killed):
        wait_until(logs.run.run, "a batch")
    # The plan stands: what comes now is of the next one.
    logs.write("app.log", lines(0, 15))
    logs.expect(lines(0, 15))
    assert [row["value"] for row in logs.run.batches[1]] == lines(5, 10)


def is_rotated(logs: Logs) -> None:
    """By a rename with unread lines, while no process runs; and by packing, while one does."""
    logs.write("app.log", lines(0, 20))
    logs.run.restart()
    logs.fs.rename("logs/app.log", "logs/app.log.1")
    logs.write("app.log", lines(20, 25))
    logs.expect(lines(0, 25))

    logs.fs.rename("logs/app.log.1", "logs/app.log.2")
    packed = gzip.compress(logs.fs.read("logs/app.log.2"))
    logs.fs.delete("logs/app.log.2")
    logs.fs.create_exclusive("logs/app.log.2.gz", packed)
    logs.write("app.log", lines(20, 30))
    logs.expect(lines(0, 30))

    logs.fs.delete("logs/app.log.2.gz")
    logs.write("other.log", lines(30, 35))
    logs.expect(lines(0, 35))
