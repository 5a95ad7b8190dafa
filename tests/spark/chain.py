"""A chain of sink, source and sink, whose applications are killed and whose rows are counted without ftfile."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import ftfile
from ftfile.errors import FtfileError
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH
from tests.demos.files.process import SparkApp, own_environment
from tests.spark import chain_job
from tests.spark.killing import kill_driver, kill_workers
from tests.spark.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ("Chain", "Places", "lines_in", "run_chain")

COLUMNS = {"id": "long", "k": "string"}
ROUNDS = 12 if THOROUGH else 1
FILES_PER_RELEASE = 6
ROWS_PER_FILE = 10
OTHERS_FROM = 10**6
STAYS = {"fileFormat": "json", "onNewQuery": "continue"}
WRITERS: tuple[dict[str, str], ...] = (
    {"maxBatchesPerFile": "3"},
    {"rolling": "policy", "maxRecordsPerFile": "50", "partitionBy": "k"},
    {"maxBatchesPerFile": "4", "maxSegmentsPerPart": "3"},
)
READERS: tuple[dict[str, str], ...] = ({}, {"maxFilesPerTrigger": "3"}, {"maxRowsPerTrigger": "25"})
REWRITES: tuple[Callable[..., object], ...] = (ftfile.flush, ftfile.compact)
OUR_ERRORS = "ftfile.core.errors."
# Overwrites leave no file open, so they cannot have these options.
NAMES_OF_ROLLING = {"maxBatchesPerFile", "maxRecordsPerFile", "maxSegmentsPerPart", "rolling"}
# The second query skips overwrites and drops.
FOLLOWING = {"startingVersion": "0", "skipChangeCommits": "true"}


@dataclass(frozen=True)
class Places:
    """The locations of a chain.

    Attributes:
        root: URL of a directory that does not exist yet.
        checkpoints: the same directory in the form for Spark's client.
        read_lines: returns all lines of the last directory, read by a client without ftfile.
        storage: settings of the driver.
        environment: more environment variables of the application.
    """

    root: str
    checkpoints: str
    read_lines: Callable[[], Iterable[str]]
    storage: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Counts(NamedTuple):
    """The extent of a run."""

    rows: int
    batches: int
    drivers: int
    workers: int
    changes: int
    vacuums: int


class Chain:
    """The two directories, the applications, and the operations on them.

    Attributes:
        released: number of rows that the first query can read.
    """

    def __init__(self, home: Path, places: Places, rng: random.Random) -> None:
        self._home, self._places, self._rng = home, places, rng
        self.middle, self.end = f"{places.root}/middle", f"{places.root}/end"
        self._input, self._log = home / "input", home / "log"
        for directory in (self._input, home / "scratch"):
            directory.mkdir(parents=True)
        storage = {f"storage.{name}": value for name, value in places.storage.items()}
        self._checkpoints = {name: f"{places.checkpoints}/{name}" for name in ("first", "second")}
        self._options = {
            "first": STAYS | rng.choice(WRITERS) | storage,
            "reader": FOLLOWING | rng.choice(READERS) | storage,
            "second": STAYS | rng.choice(WRITERS) | storage,
        }
        job = {
            "input": str(self._input),
            "middle": self.middle,
            "end": self.end,
            "checkpoints": self._checkpoints,
            "options": self._options,
            "scratch": str(home / "scratch"),
        }
        (home / "job.json").write_text(json.dumps(job))
        self._apps: list[SparkApp] = []
        self._files = self._drivers = self._workers = self._changes = self._vacuums = 0

    @property
    def released(self) -> int:
        return self._files * ROWS_PER_FILE

    @property
    def _app(self) -> SparkApp:
        return self._apps[-1]

    def start(self) -> None:
        environment = {**own_environment(self._home), **self._places.environment}
        self._apps.append(SparkApp(Path(chain_job.__file__), self._home / "job.json", self._log, environment))

    def stop(self) -> None:
        for app in self._apps:
            app.kill()

    def advance(self) -> None:
        """Let the first query read more files, and wait until some of their rows are in the last directory."""
        self._release()
        before, aim = self._rows(), self._version(self.end) + self._rng.choice((1, 2))

        def has_advanced() -> bool:
            rows = self._rows()
            # The second query's first batch is empty if it runs before the first batch of the first query.
            return rows >= self.released or (rows > before and self._version(self.end) >= aim)

        self._wait(has_advanced, f"more than {before} rows, and version {aim}")
        time.sleep(self._rng.uniform(0, 0.5))

    def drain(self) -> None:
        """Wait until all rows that the first query can read are in the last directory."""
        self._wait(lambda: self._rows() >= self.released, f"{self.released} rows")

    def kill_workers(self) -> None:
        """SIGKILL all Python processes of the application except its driver."""
        kill_workers(self._app)
        self._workers += 1

    def kill_application(self) -> None:
        """SIGKILL the whole application, or only the driver, whose workers may outlive the next start."""
        if self._rng.random() < 0.5 and Path("/proc/self/cmdline").exists():
            kill_driver(self._app)
        else:
            self._app.kill()
        self._drivers += 1

    def maintain(self) -> None:
        """Rewrite files of both directories."""
        for directory in (self.middle, self.end):
            for action in self._rng.sample(REWRITES, 2):
                action(directory, storage=self._places.storage)

    def vacuum(self) -> None:
        """Delete all unneeded files after all rows were read and no process writes."""
        self.drain()
        self._wait(lambda: self._followed() == self._version(self.middle), "what follows to be idle")
        for directory in (self.middle, self.end):
            report = ftfile.vacuum(directory, dry_run=False, retention="0s", force=True, storage=self._places.storage)
            self._vacuums += bool(report.files)

    def change(self) -> None:
        """Replace all rows of the first directory, or drop some of them. Followers skip these versions."""
        self._changes += 1
        if "partitionBy" in self._options["first"] and self._rng.random() < 0.5:
            ftfile.drop(self.middle, {"k": "x"}, storage=self._places.storage)
            return
        kept = {name: value for name, value in self._options["first"].items() if name not in NAMES_OF_ROLLING}
        job = MicroBatch(self.middle, COLUMNS, kept, overwrite=True)
        job.run_batch_write(f"overwrite-{self._changes}", [[{"id": OTHERS_FROM + self._changes, "k": "y"}]])

    def check(self) -> Counts:
        """Count the rows of the last directory.

        Raises:
            AssertionError: a row is missing, duplicated, or of a skipped version.
            InvariantViolation: a directory differs from its log.
        """
        ftfile.flush(self.end, storage=self._places.storage)
        found = Counter(json.loads(line)["id"] for line in self._places.read_lines())
        assert found == Counter(range(self.released))
        recorded = {}
        for name, directory in (("first", self.middle), ("second", self.end)):
            query_id = json.loads(open_filesystem(self._checkpoints[name]).read("metadata"))["id"]
            recorded[name] = range(self._newest(name, "commits") + 1)
            fs = open_filesystem(directory, settings=self._places.storage)
            report = check_directory(fs, recorded_by_spark={query_id: recorded[name]})
        assert report.live_rows == report.visible_rows
        # If its workers are killed, a query may fail, but only with errors of Spark.
        told = [line for line in self._log.read_text(errors="replace").splitlines() if OUR_ERRORS in line]
        assert not told, f"queries failed by errors of ftfile: {told}"
        batches_of_both = sum(map(len, recorded.values()))
        return Counts(self.released, batches_of_both, self._drivers, self._workers, self._changes, self._vacuums)

    def _release(self) -> None:
        for _ in range(FILES_PER_RELEASE):
            ids = range(self.released, self.released + ROWS_PER_FILE)
            lines = [json.dumps({"id": number, "k": self._rng.choice("xy")}) for number in ids]
            (self._home / "new").write_text("\n".join(lines))
            (self._home / "new").rename(self._input / f"{self._files:06}.json")
            self._files += 1

    def _rows(self) -> int:
        """Return the number of rows in the last directory by its log."""
        try:
            snapshot = ftfile.open(self.end, storage=self._places.storage).snapshot()
        except FtfileError:
            return 0
        return sum(add.rows for add in snapshot.adds.values())

    def _newest(self, query: str, log: str) -> int:
        """Return the newest batch in one of Spark's logs."""
        names = (info.path.rpartition("/")[2] for info in open_filesystem(self._checkpoints[query]).list(log))
        return max(int(name) for name in names if name.isdigit())

    def _followed(self) -> int:
        """Return the version of the first directory up to which the second query has committed; -1 if there is none."""
        batch = self._newest("second", "commits")
        if batch != self._newest("second", "offsets"):
            return -1
        offset = open_filesystem(self._checkpoints["second"]).read(f"offsets/{batch}").splitlines()[-1]
        return int(json.loads(offset).get("version", -1))

    def _version(self, directory: str) -> int:
        try:
            return ftfile.open(directory, storage=self._places.storage).version()
        except FtfileError:
            return -1

    def _wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert self._app.exit_code is None, self._app.last_words()
            assert time.monotonic() < deadline_s, f"waited in vain for {what}\n{self._app.last_words()}"
            # Each check slows down the stream on both processors.
            time.sleep(0.3)


def run_chain(home: Path, places: Places, seed: int) -> Counts:
    """Run a chain with kills, maintenance and overwrites. Check that it is exact; return the counts of its events."""
    chain = Chain(home, places, random.Random(seed))
    try:
        for number in range(ROUNDS):
            chain.start()
            chain.advance()
            chain.kill_workers()
            chain.maintain()
            chain.advance()
            if number % 3 == 1:
                chain.vacuum()
                chain.advance()
            chain.kill_application()
            chain.change()
            chain.maintain()
        chain.start()
        chain.advance()
        chain.vacuum()
        chain.change()
        chain.advance()
        chain.drain()
    finally:
        chain.stop()
    return chain.check()


def lines_in(directory: Path) -> Iterator[str]:
    """Yield the lines of all JSON files that a plain lister finds below a directory."""
    for file in directory.rglob("*.json"):
        if not any(part.startswith(("_", ".")) for part in file.relative_to(directory).parts):
            yield from file.read_text().splitlines()
