"""Steps of streams: files of another program into the directory, and the new rows of the directory into a keyed store.

The files, the log of plans and the store are in directories of the history's store, so each event can happen at a call
on any of them, and a power cut ends all processes. Spark's checkpoints are elsewhere.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any

from ftfile import kv
from ftfile.core.errors import ChangedRows, ConfigError, FtfileError, HistoryGone
from ftfile.log.vacuum import vacuum
from ftfile.testing.context import current
from ftfile.testing.fs.memory import RootedFileSystem
from ftfile.testing.log_check import require
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.testing.source_run import SourceRun, check_followed
from tests.histories.oracle import Claim
from tests.histories.world import Ended, PlayedQuery
from tests.histories.writing import draw_rows, watch
from tests.kit.files_run import FilesRun
from tests.kit.liveness import DueWatch
from tests.kit.plan_check import check_batches, check_plans
from tests.kit.rolling import rules_of
from tests.kit.store_check import check_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.histories.plan import Step
    from tests.histories.world import World

__all__ = ("STREAMS", "PlayedFollower", "PlayedLoader", "end_streams")

Rows = list[dict[str, Any]]

_LOADER_ID, _FOLLOWER_ID = (f"00000000-0000-0000-0000-00000000010{number}" for number in (1, 2))
_FILES, _PLANS, _STORE = "files", "plans", "store"
_LOADER_LIMITS: tuple[dict[str, str], ...] = ({}, {"maxFilesPerTrigger": "1"}, {"maxBytesPerTrigger": "30"})
_FOLLOWER_LIMITS: tuple[dict[str, str], ...] = (
    {},
    {"maxFilesPerTrigger": "1"},
    {"maxRowsPerTrigger": "4"},
    {"maxBytesPerTrigger": "30"},
    {"startingVersion": "latest"},
)
_STORE_OPTIONS: tuple[dict[str, str], ...] = ({}, {"flushIntervalCount": "2"}, {"maxFileSize": "4096"})
# Its threads would outlive the process in which a power cut ends them.
_NO_VACUUMS = {"vacuumInterval": "0s"}
_STORE_COLUMNS = {"k": "string", "n": "long"}
_FAILURES, _BATCHES = 3, 1000
# After the last step, for files that wait because the clock was set back.
_PAUSES_S = (2, 12, 301, 4000)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass
class PlayedLoader:
    """A stream of files of another program, and its query, which writes the lines into the directory."""

    run: FilesRun
    played: PlayedQuery
    lines: Counter[str] = field(default_factory=Counter)  # of all files
    files: int = 0

    def restart(self) -> None:
        """Start a new process, which has only the checkpoint."""
        self.run.restart()
        self.played.query.restart()


@dataclass
class PlayedFollower:
    """A stream of the new rows of the directory, and its query, which counts them in a keyed store."""

    run: SourceRun
    query: StoreBatch
    name: str  # of the store
    failures: int = 0  # in a row

    def restart(self) -> None:
        """Start a new process, which has only the checkpoint."""
        self.run.restart()
        self.query.restart()

    @property
    def expected(self) -> dict[str, int]:
        """Return the content of the store after the last batch."""
        counts: Counter[str] = Counter()
        for rows in self.run.batches.values():
            for row in _counted(rows):
                counts[row["k"]] += row["n"]
        return dict(counts)


def _counted(rows: Rows) -> Rows:
    """Return a row for each directory and for each value: equal keys are added."""
    return [{"k": key, "n": 1} for row in rows for key in (row["m"], row["value"])]


# --------------------------------------------------------------------------------------------------------------- loader
def _load(world: World, step: Step) -> None:
    """Let another program write a file, or run the next batch of the stream of its files."""
    if "last" in world.history.columns:
        return  # a file of text has one column
    loader = world.loader
    if loader is None:
        loader = world.loader = _new_loader(world, random.Random(step.draws[1]))
    if step.pick(2, 2) or not loader.files:
        _put_file(world, loader, random.Random(step.draws[0]))
    _load_batch(world, loader)


def _new_loader(world: World, draw: random.Random) -> PlayedLoader:
    history, plan = world.history, world.history.queries[0]
    options = {**history.format_options, **world.settings, **plan.options}
    query = MicroBatch(world.url, history.columns, options, _LOADER_ID)
    played = PlayedQuery(query, plan, DueWatch(world.facts_of), rules_of(options))
    of_files = {"fileFormat": "text", "stateLocation": f"{world.storage_url}/{_PLANS}", **draw.choice(_LOADER_LIMITS)}
    run = FilesRun(
        f"{world.storage_url}/{_FILES}", {"value": "string"}, of_files, draw.choice(("4.0", "4.2")), pause_s=2
    )
    run.foreach_batch = partial(_write, world, played)
    return PlayedLoader(run, played)


def _put_file(world: World, loader: PlayedLoader, draw: random.Random) -> None:
    """Write a file as another program: it is durable, and never changes."""
    lines = [row["value"] for rows in draw_rows(world, draw, "f") for row in rows]
    world.volume.make_directories(_FILES)
    world.volume.create_exclusive(f"{_FILES}/{loader.files:05d}.log", "".join(f"{line}\n" for line in lines).encode())
    for directory in ("", _FILES):
        world.volume.sync_directory(directory)
    loader.lines.update(lines)
    loader.files += 1


def _write(world: World, played: PlayedQuery, lines: Rows, number: int) -> None:
    """Write the lines of a batch into the directory."""
    rows = []
    for line in lines:
        value = line["value"]
        row = {"m": value.partition("|")[0], "value": value}
        if "t" in world.history.columns:
            event_us = world.oracle.event_us.get(value.encode())
            row["t"] = None if event_us is None else _UNIX_EPOCH + timedelta(microseconds=event_us)
        rows.append(row)
    world.oracle.claims[_LOADER_ID, number] = Claim(frozenset(row["value"].encode() for row in rows))
    played.query.run(number, [rows[::2], rows[1::2]])


def _load_batch(world: World, loader: PlayedLoader) -> bool:
    """Run a batch; return True if there may be more."""
    world.pairs.call("a batch", loader.played.query.run, None)
    done = world.call("a batch of files", loader.run.run_batch)
    if isinstance(done, FtfileError):
        loader.restart()
        return not isinstance(done, Ended)
    for number in range(loader.run.commits):
        require((_LOADER_ID, number) in world.oracle.done, "I3", f"batch {number} of files is not in the log")
    if done:
        watch(world, loader.played)
    return bool(done)


# ------------------------------------------------------------------------------------------------------------- follower
def _follow(world: World, step: Step) -> None:
    """Run the next batches of the stream of the directory, and compare the store with what it has read."""
    if world.oracle.first_rows is None:
        return
    follower = world.follower
    if follower is None:
        follower = world.follower = _new_follower(world, random.Random(step.draws[1]))
    for _ in range(1 + step.pick(2, 3)):
        if not _follow_batch(world, follower):
            break
    if world.follower is follower and step.pick(3, 3) == 0:
        _compare_store(world, follower)


def _new_follower(world: World, draw: random.Random) -> PlayedFollower:
    name = f"{_STORE}-{next(world.numbers)}"
    options = {
        "keyColumns": "k",
        "merge": "n:sum",
        "onNewQuery": "continue",
        "buckets": draw.choice("124"),
        **_NO_VACUUMS,
    }
    query = StoreBatch(
        f"{world.storage_url}/{name}",
        _STORE_COLUMNS,
        {**options, **_NO_VACUUMS, **draw.choice(_STORE_OPTIONS)},
        _FOLLOWER_ID,
    )
    run = SourceRun(
        world.url, {"m": "string", "value": "string"}, dict(draw.choice(_FOLLOWER_LIMITS)), draw.choice(("4.0", "4.2"))
    )

    def count(rows: Rows, number: int) -> None:
        query.run(number, [_counted(rows)])

    run.foreach_batch = count
    return PlayedFollower(run, query, name)


def _check_rows(world: World, run: SourceRun) -> None:
    """Check that the last batch has the rows of the adds that it has read, by the records."""
    number = run.commits - 1
    adds, rows = run.adds.get(number, []), run.batches.get(number, [])
    if world.damaged.isdisjoint(adds):
        expected = sorted(row for add_id in adds for row in world.oracle.rows[add_id])
        found = sorted(row["value"].encode() for row in rows)
        require(found == expected, "S6", f"batch {number} reads {found} instead of {expected}")


def _follow_batch(world: World, follower: PlayedFollower) -> bool:
    """Run a batch; return True if there may be more. After an error, Spark starts the query again."""
    world.pairs.call("a batch of a store", follower.query.run, None)
    done = world.call("a stream of the directory", _following(world, follower), of_damage=True)
    if isinstance(done, FtfileError):
        follower.restart()
        follower.failures += not isinstance(done, Ended)
        if follower.failures >= _FAILURES:
            world.follower = None  # it cannot pass a damaged file
        return False
    follower.failures = 0
    _check_rows(world, follower.run)
    if done == "gone":
        world.follower = None
        return False
    return bool(done)


def _following(world: World, follower: PlayedFollower) -> Callable[[], bool | str]:
    run = follower.run

    def follow() -> bool | str:
        try:
            return run.run_batch()
        except ChangedRows:
            require("skipChangeCommits" not in run.options, "S6", "a stream that skips changes refuses one")
            require(any(removed for _, removed in world.oracle.changes), "S6", "a stream refuses a change without one")
            run.options = {**run.options, "skipChangeCommits": "true"}
            run.restart()
            return "changed"
        except (ConfigError, HistoryGone):
            if not world.oracle.vacuums:
                raise
            return "gone"

    return follow


def _compare_store(world: World, follower: PlayedFollower) -> None:
    """Compare the rows of the store with the batches, if no batch waits for its repetition."""
    run = follower.run
    if run.commits < len(run.offsets) or not run.batches:
        return
    found = world.call("a read of a store", _rows_of, f"{world.storage_url}/{follower.name}")
    if not isinstance(found, FtfileError):
        require(found == follower.expected, "store", f"it has {found} instead of {follower.expected}")


def _rows_of(url: str) -> dict[str, int]:
    with kv.open(url, context=current()) as reader:
        rows = [row for batch in reader.scan() for row in batch.to_pylist()]
    require(len({row["k"] for row in rows}) == len(rows), "store", "a scan has a key twice")
    return {row["k"]: row["n"] for row in rows}


def _tend_store(world: World, step: Step) -> None:
    """Merge the files of the store, read it, or delete what it does not need."""
    follower = world.follower
    if follower is None or not follower.run.commits:
        return
    url, choice = f"{world.storage_url}/{follower.name}", step.pick(0, 3)
    if choice == 0:
        world.call("a compaction of a store", kv.compact, url, full=step.pick(1, 2) == 0, threads=1, context=current())
    elif choice == 1:
        world.call("a vacuum of a store", vacuum, url, dry_run=False, context=current())
    else:
        _compare_store(world, follower)


# -------------------------------------------------------------------------------------------------------------- the end
def end_streams(world: World) -> None:
    """Run the streams to their ends after every cause of failures was removed, and check what they have written."""
    if world.loader is not None:
        _end_loader(world, world.loader)
    if world.follower is not None:
        _end_follower(world, world.follower)


def _end_loader(world: World, loader: PlayedLoader) -> None:
    for pause_s in _PAUSES_S:
        world.clock.advance(pause_s)
        for number in itertools.count():
            require(number < _BATCHES, "L1", "the stream of files does not end")
            if not _load_batch(world, loader):
                break
    run = loader.run
    found = Counter(row["value"] for row in run.rows)
    require(found == loader.lines, "S6", f"{found - loader.lines} are read too often, {loader.lines - found} not")
    check_batches(run)
    offsets = [offset for offset in map(json.loads, run.offsets) if offset["kind"] == "plans"]
    if offsets:
        plans = RootedFileSystem(world.volume, f"{_PLANS}/{offsets[0]['id']}")
        check_plans(plans, run.offsets, run.commits)


def _end_follower(world: World, follower: PlayedFollower) -> None:
    follower.failures = 0
    for number in itertools.count():
        require(number < _BATCHES, "L1", "the stream of the directory does not end")
        if not _follow_batch(world, follower) and (world.follower is None or not follower.failures):
            break
    if world.follower is None:
        return
    run = follower.run
    require(max(Counter(row["value"] for row in run.rows).values(), default=1) == 1, "S6", "rows are read twice")
    check_followed(world.keyed, run)
    _compare_store(world, follower)
    if run.batches:
        check_store(RootedFileSystem(world.volume, follower.name))


STREAMS: dict[str, Callable[[World, Step], None]] = {"load": _load, "follow": _follow, "tend_store": _tend_store}
