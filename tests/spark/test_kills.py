"""Two streams into one directory, with files that stay open over batches, in an application that is killed."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import ftfile
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.demos.files.kill import Kill, Moment, hunt
from tests.demos.files.process import SparkApp, own_environment
from tests.demos.files.sinks import Target, observe
from tests.spark import two_queries_job
from tests.spark.killing import kill_driver

if TYPE_CHECKING:
    from collections.abc import Iterator

# `make kills` sets a greater number.
KILLS = int(os.environ.get("FTFILE_KILLS", "2"))
QUERIES = ("a", "b")
BATCHES_PER_KILL = 5
ROWS_PER_FILE = 30
FIRST_OF_B = 10**6
STALL_S = 600.0
OPTIONS = {
    "a": {"maxRecordsPerFile": "50", "maxBatchesPerFile": "4", "partPrefix": "a"},
    "b": {"maxBytesPerFile": "1500", "maxBatchesPerFile": "3", "fileNameColumn": "name"},
}
SHARED = {"fileFormat": "json", "rolling": "policy", "partitionBy": "k", "onNewQuery": "continue"}


class Death(NamedTuple):
    """The time of a kill, and the processes that survive it.

    Attributes:
        hunted: the query that is killed between its record and Spark's; None for a random moment.
        records: for a random moment, the number of new records before it.
        share: position of the moment within the next record's time, as a share of the last record's time.
        orphans: only the driver is killed, so its Python workers may run in parallel with the next application.
    """

    hunted: str | None
    records: int
    share: float
    orphans: bool


class World:
    """A directory, two streams into it, and the applications that run the streams."""

    def __init__(self, home: Path, kills: int, rng: random.Random) -> None:
        self.output = home / "out"
        self._log, self._argument = home / "log", home / "job.json"
        self.targets = {name: self._target(home, name) for name in QUERIES}
        firsts = zip(QUERIES, (0, FIRST_OF_B), strict=True)
        self.expected = {name: write_input(home / name, kills, rng, first) for name, first in firsts}
        (home / "scratch").mkdir()
        job = {
            "input": {name: str(home / name) for name in QUERIES},
            "checkpoints": {name: str(target.checkpoint) for name, target in self.targets.items()},
            "options": {name: SHARED | options for name, options in OPTIONS.items()},
            "output": str(self.output),
            "scratch": str(home / "scratch"),
        }
        self._argument.write_text(json.dumps(job))
        self._apps: list[SparkApp] = []

    def _target(self, home: Path, name: str) -> Target:
        return Target(
            name=name,
            sink="ftfile",
            output=self.output,
            checkpoint=home / f"{name}-checkpoint",
            file_format="json",
            partition_by="k",
            read_back=home,
        )

    def start(self) -> SparkApp:
        script = Path(two_queries_job.__file__)
        self._apps.append(SparkApp(script, self._argument, self._log, own_environment(self._log.parent)))
        return self._apps[-1]

    def end(self) -> None:
        for app in self._apps:
            app.kill()

    def records(self) -> int:
        log = self.output / "_ftfile/log"
        return sum(1 for _ in log.iterdir()) if log.exists() else 0

    def die(self, death: Death) -> bool:
        """Run the application until it is killed; return False if it ended before."""
        app, before = self.start(), self.records()
        watch = Watch(self, app)
        if death.hunted is not None:
            metadata = [target.checkpoint / "metadata" for target in self.targets.values()]
            while app.exit_code is None and not all(file.exists() for file in metadata):
                watch()
                time.sleep(0.01)
            kill = Kill(death.hunted, Moment.WINDOW, 1, 0.0)
            return hunt(app, kill, [*self.targets.values()], watch) is not None or has_ended(app)
        began_s = time.monotonic()
        while app.exit_code is None and (found := self.records() - before) < death.records:
            if not found:
                began_s = time.monotonic()
            watch()
            time.sleep(0.005)
        # At a random moment of the next record, by the time that a record takes on this machine.
        time.sleep(death.share * (time.monotonic() - began_s) / death.records)
        if app.exit_code is not None:
            return has_ended(app)
        if death.orphans and Path("/proc/self/cmdline").exists():
            kill_driver(app)
        else:
            app.kill()
        return True

    def run_to_end(self) -> None:
        app = self.start()
        watch = Watch(self, app)
        while app.exit_code is None:
            watch()
            time.sleep(0.05)
        has_ended(app)


class Watch:
    """Fails if an application makes no progress."""

    def __init__(self, world: World, app: SparkApp) -> None:
        self._world, self._app = world, app
        self._records, self._moved_s = world.records(), time.monotonic()

    def __call__(self) -> None:
        now_s = time.monotonic()
        if self._world.records() != self._records:
            self._records, self._moved_s = self._world.records(), now_s
        assert now_s - self._moved_s < STALL_S, f"no progress for {STALL_S} s\n{self._app.last_words()}"


def has_ended(app: SparkApp) -> bool:
    """Return False for an application that ended without a failure before it could be killed."""
    assert app.exit_code == 0, app.last_words()
    return False


def write_input(directory: Path, kills: int, rng: random.Random, first: int) -> Counter[str]:
    """Write files, two for each batch, and return their rows as text."""
    directory.mkdir()
    rows: Counter[str] = Counter()
    for number in range(2 * BATCHES_PER_KILL * (kills + 1)):
        ids = range(first + number * ROWS_PER_FILE, first + (number + 1) * ROWS_PER_FILE)
        found = [{"id": each, "k": rng.choice("xyz"), "name": rng.choice(["one", "sub/two"])} for each in ids]
        (directory / f"{number:05}.json").write_text("".join(json.dumps(row) + "\n" for row in found))
        rows.update(json.dumps(row) for row in found)
    return rows


def rows_in_files(output: Path) -> Iterator[tuple[str, str]]:
    """Yield query and text of each row that a plain reader sees, with the column values in its path."""
    for file in output.rglob("*.json"):
        directory, *subdirectories = file.relative_to(output).parts[:-1]
        name = "/".join([*subdirectories, file.name.partition("-")[0]])
        for line in file.read_text().splitlines():
            row: dict[str, Any] = {"id": 0, "k": directory.removeprefix("k="), "name": name} | json.loads(line)
            yield ("a" if row["id"] < FIRST_OF_B else "b"), json.dumps(row)


def plan(rng: random.Random, kills: int) -> list[Death]:
    """Draw kills: half of them between a query's record and Spark's, the rest at random moments."""
    first = rng.randrange(2)
    hunted = [Death(QUERIES[(first + number) % 2], 0, 0.0, orphans=False) for number in range(kills // 2)]
    drawn = [
        Death(None, rng.randint(2, 2 * BATCHES_PER_KILL - 2), rng.random(), orphans=(first + number) % 2 == 0)
        for number in range(kills - len(hunted))
    ]
    # The hunt for a query may fail because the query ends first, so the first kill is at a random moment.
    others = [*hunted, *drawn[1:]]
    rng.shuffle(others)
    return [drawn[0], *others]


def test_two_queries_with_open_files_are_exact_after_kills(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    world = World(tmp_path, KILLS, rng)
    try:
        killed = [world.die(death) for death in plan(rng, KILLS)]
        world.run_to_end()
    finally:
        world.end()
    assert any(killed), "the application was never killed"
    ftfile.flush(world.output)
    committed = {name: observe(target).committed for name, target in world.targets.items()}
    ids = {name: query_id(target) for name, target in world.targets.items()}
    report = check_directory(
        open_filesystem(str(world.output)),
        recorded_by_spark={ids[name]: range(last + 1) for name, last in committed.items()},
    )
    assert report.live_rows == report.visible_rows
    assert not [add for add in report.live.values() if add.kind == "segment"]
    found: dict[str, Counter[str]] = {name: Counter() for name in QUERIES}
    for name, row in rows_in_files(world.output):
        found[name][row] += 1
    assert found == world.expected


def query_id(target: Target) -> str:
    return str(json.loads((target.checkpoint / "metadata").read_text())["id"])
