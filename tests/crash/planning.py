"""A stream of files whose state is on a file system that fails: the steps of Spark around it, and its invariants."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ftfile.storage.registry import register
from ftfile.testing.fs.memory import MemoryFileSystem, RootedFileSystem
from tests.crash.world import CLOCK, IDS
from tests.kit.files_run import FilesRun
from tests.kit.plan_check import check_batches, check_plans, read_plans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.source.stream import SourceConfig
    from ftfile.storage.api import FileSystem
    from ftfile.testing.source_run import Moment

DATA = "planning"


@dataclass
class NotedRun(FilesRun):
    """A query that reports what Spark has written to the checkpoint, so that a later process can resume from it.

    Its settings are checked once, not for every batch.
    """

    record: Callable[[str], None] = field(default=lambda _: None)

    def config(self) -> SourceConfig:
        return _config(self.path, tuple(self.columns), tuple(self.options.items()))

    def run_batch(self, *, once: bool = False) -> bool:
        done = super().run_batch(once=once)
        self.record(json.dumps({"commits": self.commits}))
        return done

    def _die(self, moment: Moment) -> None:
        if moment == "offsets written":
            self.record(json.dumps({"offset": self.offsets[-1]}))
        if moment == "rows read":
            self.record(json.dumps({"batch": max(self.batches), "rows": self.batches[max(self.batches)]}))
        super()._die(moment)


@functools.cache
def _config(path: str, columns: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> SourceConfig:
    return FilesRun(path, dict.fromkeys(columns, "string"), dict(options)).config()


@dataclass(frozen=True)
class Planning:
    """A query that reads a few files, one batch at a time.

    Attributes:
        files: the number of lines of each file, by its name, when the query begins.
        later: the number of lines that are appended to files before each later start of the query.
        options: of the reader.
    """

    name: str
    files: dict[str, int]
    later: dict[str, int]
    options: dict[str, str] = field(default_factory=dict)

    def write_files(self, runs: int) -> Counter[str]:
        """Write the files as they are at this start of the query; return all their lines."""
        MemoryFileSystem.drop(DATA)
        data = MemoryFileSystem(DATA, clock=CLOCK)
        lines: Counter[str] = Counter()
        for name in sorted(self.files | self.later):
            own = [f"{name} {number}" for number in range(self.files.get(name, 0))]
            own += [f"{name} {run}/{number}" for run in range(2, runs + 1) for number in range(self.later.get(name, 0))]
            data.put(name, "".join(f"{line}\n" for line in own).encode())
            lines.update(own)
        return lines

    def query(self, fs: FileSystem, notes: Sequence[str] = (), driver: str = "plans") -> NotedRun:
        """Return the query in a new process, with the checkpoint that its notes describe."""
        register(driver, lambda location: RootedFileSystem(fs, location.path[1:]))
        options = {"fileFormat": "text", "stateLocation": f"{driver}://fs/state", **self.options}
        run = NotedRun(f"memory://{DATA}", {"value": "string"}, options, pause_s=2)
        for note in notes:
            entry = json.loads(note)
            if "offset" in entry:
                run.offsets.append(entry["offset"])
            elif "rows" in entry:
                run.batches[entry["batch"]] = entry["rows"]
            else:
                run.commits = entry["commits"]
        return run

    def play(self, fs: FileSystem, run: int, notes: Sequence[str], record: Callable[[str], None]) -> NotedRun:
        """Restart the query and run it until all files are read.

        `record` is called after each write of Spark to the checkpoint.
        """
        IDS.start(run, len(notes))
        lines = self.write_files(run)
        query = self.query(fs, notes)
        query.record = record
        for _ in range(sum(lines.values()) + 2):
            if not query.run_batch():
                break
        return query

    def check(self, fs: FileSystem, notes: Sequence[str]) -> None:
        """Check the invariant of every moment: no offset is ahead of its plan."""
        query = self.query(fs, notes)
        query.commits = max(query.commits, len(query.offsets) - 1)
        for offset in query.offsets[-1:]:
            log_id = json.loads(offset)["id"]
            check_plans(RootedFileSystem(fs, f"state/{log_id}"), query.offsets, query.commits)

    def log_start(self, fs: FileSystem, query: NotedRun) -> int:
        """Return the number of trimmed plans."""
        return read_plans(RootedFileSystem(fs, f"state/{json.loads(query.offsets[-1])['id']}")).state.log_start

    def check_finished(self, fs: FileSystem, query: FilesRun, run: int) -> None:
        """Check that every line was read exactly once."""
        found = Counter(row["value"] for row in query.rows)
        expected = self.write_files(run)
        assert found == expected, f"read {found - expected} too often, {expected - found} not at all"
        check_batches(query)
        self.check(fs, [json.dumps({"offset": offset}) for offset in query.offsets])
