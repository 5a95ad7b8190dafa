"""Steps that write rows: batches with and without failures, batch writes, overwrites."""

from __future__ import annotations

import contextlib
import random
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import (
    BatchGap,
    CommitError,
    CommitOutcomeUnknown,
    ConfigError,
    CorruptData,
    FtfileError,
    InvalidMessages,
    NameCollision,
    ReplayMismatch,
    SchemaError,
    StaleFiles,
)
from ftfile.testing.context import current
from ftfile.testing.log_check import InvariantViolation, require
from ftfile.writing.files.file_writer import forget_caches
from tests.histories.oracle import Claim
from tests.histories.world import Ended
from tests.kit.rolling import rules_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from tests.histories.plan import Step
    from tests.histories.world import PlayedQuery, Tasks, World

__all__ = (
    "WITHOUT_LINES",
    "WRITING",
    "change_settings",
    "draw_rows",
    "require_refused",
    "run_batch",
    "values_of",
    "watch",
    "write",
    "write_named",
)

WITHOUT_LINES = {"parquet", "avro"}  # formats
_OF_STREAMS = {"finalizeColumn", "eventTimeInterval", "strictFileSize"}
_OF_OPEN_FILES = {"maxSegmentsPerPart", "maxOpenSegments"}
_FIXED_NAMES = {"partFileName": "latest{ext}", "ifExists": "fail"}
_EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def draw_rows(world: World, draw: random.Random, name: str) -> Tasks:
    """Return the rows of each task of a batch. The name is a part of the rows."""
    history = world.history
    tasks: Tasks = []
    for _ in range(draw.choice((1, 1, 1, 1, 2, 3))):
        rows = []
        for _ in range(draw.randrange(history.rows_max + 1)):
            directory = draw.randrange(history.directories)
            value = f"{directory}|{name}.{next(world.numbers)}"
            row: dict[str, Any] = {"m": str(directory), "value": value}
            if "t" in history.columns:
                event = _EPOCH + timedelta(milliseconds=world.now_ms() % 10**9, minutes=draw.randrange(30))
                row["t"] = event if draw.random() < 0.9 else None
                if row["t"] is not None:
                    world.oracle.event_us[value.encode()] = (event - _UNIX_EPOCH) // timedelta(microseconds=1)
            if "last" in history.columns:
                row["last"] = draw.random() < 0.15
                if row["last"]:
                    world.final.add(value.encode())
            rows.append(row)
        tasks.append(rows)
    return tasks


def values_of(tasks: Tasks) -> frozenset[bytes]:
    """Return the rows of all tasks as an oracle knows them."""
    return frozenset(row["value"].encode() for rows in tasks for row in rows)


def _played(world: World, step: Step) -> PlayedQuery:
    return world.queries[step.query % len(world.queries)]


def _start_batch(world: World, step: Step, played: PlayedQuery, *, empty: bool = False) -> Tasks:
    """Return the rows of the next batch: new rows, or the rows of the batch that Spark did not record."""
    if played.pending is None:
        draw = random.Random(step.draws[0])
        number = played.next_batch
        tasks = [[]] if empty else draw_rows(world, draw, f"{played.query.query_id[-2:]}.{number}")
        played.pending = tasks
        world.oracle.claims[played.query.query_id, number] = Claim(values_of(tasks))
    elif step.pick(1, 2):
        # Rows are dealt to tasks differently, as by adaptive execution.
        played.pending = [[row for rows in played.pending for row in rows]]
    return played.pending


def _end_batch(world: World, played: PlayedQuery, done: Any) -> None:
    if isinstance(done, FtfileError):
        _require_accepted(world, (played.query.query_id, played.next_batch), done)
        if not isinstance(done, Ended):
            forget_caches()
        return
    assert played.pending is not None
    key = (played.query.query_id, played.next_batch)
    played.last = (played.next_batch, played.pending)
    played.pending = None
    played.next_batch += 1
    world.oracle.follow(world.now_ms())
    require(key in world.oracle.done, "I3", f"batch {key} returned, and is not in the log")
    if not done.replayed:
        watch(world, played)


def _require_accepted(world: World, key: Hashable, error: FtfileError) -> None:
    """Check that no setting refuses a batch whose rows are in the log."""
    is_refused = isinstance(error, ConfigError | SchemaError) and key in world.oracle.done
    require(not is_refused, "I3", f"{key} is in the log, and its repetition is refused: {error!r}")


def watch(world: World, played: PlayedQuery) -> None:
    """Check L1 after a batch of a query."""
    if played.rules is None:
        return
    mine = [
        segment
        for segment in world.open_segments().values()
        if segment.origin.query_id == played.query.query_id and segment.id not in world.damaged
    ]
    played.watch.after_batch(played.rules, mine, world.now_ms())


def run_batch(world: World, step: Step, *, empty: bool = False) -> None:
    """Run the next batch of a query, or repeat the batch that Spark did not record."""
    played = _played(world, step)
    tasks = _start_batch(world, step, played, empty=empty)
    _end_batch(world, played, world.call("a batch", played.query.run, played.next_batch, tasks))


def require_refused(world: World, step: Step, lost: str) -> None:
    """Run a batch in a new process while a record is lost: it must raise an error that names the record."""
    played = _played(world, step)
    tasks = _start_batch(world, step, played)
    played.query.restart()
    try:
        played.query.run(played.next_batch, tasks)
    except CorruptData as error:
        require(lost in str(error), "I1", f"{lost!r} is lost, and a batch raises {error!r}")
    else:
        raise InvariantViolation("I1", f"{lost!r} is lost, but a batch is committed")
    finally:
        forget_caches()


def _empty_batch(world: World, step: Step) -> None:
    run_batch(world, step, empty=True)


def _troubled_batch(world: World, step: Step) -> None:
    """One attempt loses, one fails, and both leave files."""
    played = _played(world, step)
    tasks = _start_batch(world, step, played)
    query, writer = played.query, played.query.identity(played.next_batch)

    def attempts() -> None:
        planned = query.pickled_plan()
        query.run_task(planned, writer, 0, tasks[0], attempt=1)
        with contextlib.suppress(ConnectionError):
            query.run_task(planned, writer, len(tasks) - 1, tasks[-1], 2, ConnectionError("executor lost"))

    world.call("attempts of a batch", attempts)
    done = world.call("a batch", query.run, played.next_batch, tasks)
    _end_batch(world, played, done)
    if not isinstance(done, FtfileError):
        world.call("an abort", query.abort, played.next_batch - 1, [None])


def _forgotten_batch(world: World, step: Step) -> None:
    """The commit returns, and Spark dies before it has recorded the batch, so the batch is repeated."""
    played = _played(world, step)
    tasks = _start_batch(world, step, played)
    done = world.call("a batch", played.query.run, played.next_batch, tasks)
    if not isinstance(done, FtfileError):
        world.oracle.follow(world.now_ms())
        require((played.query.query_id, played.next_batch) in world.oracle.done, "I3", "a batch is not in the log")
    played.query.restart()


def _late_batch(world: World, step: Step) -> None:
    """A driver is killed before it commits. It commits the output of its tasks much later, see `zombie`."""
    played = _played(world, step)
    tasks = _start_batch(world, step, played)
    messages = world.call("the tasks of a batch", played.query.run_tasks, played.next_batch, tasks)
    if not isinstance(messages, FtfileError):
        played.late.append((played.next_batch, messages))
    played.query.restart()


def _zombie(world: World, step: Step) -> None:
    """Commit with a driver that was considered dead: its batch counts at most once."""
    played = _played(world, step)
    if not played.late:
        return
    batch, messages = played.late.pop(step.pick(0, len(played.late)))
    try:
        played.query.commit(batch, messages)
    except (ReplayMismatch, StaleFiles, BatchGap, InvalidMessages, CommitOutcomeUnknown):
        pass
    except FtfileError as error:
        expected = isinstance(error, CommitError) and "another" in str(error)
        # Vacuum may have deleted its files.
        expected |= isinstance(error, CorruptData) and not world.raw.exists(error.path)
        require(expected or world.explains(error), "L3", f"a late commit raised {error!r}")
    else:
        world.oracle.follow(world.now_ms())
        done = (played.query.query_id, batch) in world.oracle.done
        require(done, "I3", f"the late batch {batch} returned, and is not in the log")


def _replay(world: World, step: Step) -> None:
    """Spark repeats the last batch, with its rows dealt to tasks differently."""
    played = _played(world, step)
    if played.last is None or played.pending is not None:
        return
    played.query.restart()
    batch, tasks = played.last
    rows = [row for task in tasks for row in task]
    done = world.call("a replay", played.query.run, batch, [rows[::2], rows[1::2]])
    if not isinstance(done, FtfileError):
        require(done.replayed, "I2", f"batch {batch} is committed a second time")


def _restart(world: World, step: Step) -> None:
    _played(world, step).query.restart()


def _reconfigure(world: World, step: Step) -> None:
    """Start the query with other options."""
    played = _played(world, step)
    options = played.plan.other_options if step.pick(0, 2) else played.plan.options
    played.query.options = {**world.history.format_options, **options, **world.settings}
    played.rules = rules_of(dict(played.query.options))
    played.watch.waited.clear()
    played.query.restart()


def _job_options(played: PlayedQuery) -> dict[str, str]:
    """Return the options of a query without the options for open files."""
    kept = {name: value for name, value in played.query.options.items() if name not in _OF_STREAMS}
    return kept if rules_of(kept) else {name: value for name, value in kept.items() if name not in _OF_OPEN_FILES}


def write(world: World, step: Step) -> None:
    """Run a batch write with the options of a query."""
    played = _played(world, step)
    if "last" in world.history.columns:
        return
    tasks, operation_id = draw_rows(world, random.Random(step.draws[0]), "w"), current().ids.unique()
    world.oracle.claims[operation_id] = Claim(values_of(tasks))
    with _other_options(played, _job_options(played)):
        done = world.call("a batch write", played.query.run_batch_write, operation_id, tasks)
    if not isinstance(done, FtfileError):
        world.oracle.follow(world.now_ms())
        require(operation_id in world.oracle.done, "I3", "a batch write returned, and is not in the log")


def write_named(world: World, step: Step) -> None:
    """Run a batch write with fixed file names: it is refused if a live or removed part has the name."""
    played = _played(world, step)
    if "last" in world.history.columns:
        return
    rows = [row for task in draw_rows(world, random.Random(step.draws[0]), "n") for row in task]
    operation_id = current().ids.unique()
    world.oracle.claims[operation_id] = Claim(values_of([rows]))
    with _other_options(played, {**world.history.format_options, **_FIXED_NAMES, **world.settings}):
        try:
            world.call("a batch write of fixed names", played.query.run_batch_write, operation_id, [rows])
        except InvariantViolation as violation:
            names = {add.final_path for add in world.live_parts()} | world.oracle.removed.keys()
            is_taken = any(repr(name) in str(violation.__cause__) for name in names)
            if not isinstance(violation.__cause__, NameCollision) or not is_taken:
                raise


def _transaction(world: World, step: Step) -> None:
    """Run a batch write with an application's number, or repeat an earlier one."""
    played = _played(world, step)
    if "last" in world.history.columns:
        return
    known = world.transactions
    if known and step.pick(1, 3) == 0:
        app, version, tasks = known[step.pick(2, len(known))]
    else:
        app, version = f"app{step.pick(3, 2)}", len(known)
        tasks = draw_rows(world, random.Random(step.draws[0]), f"t{version}")
        known.append((app, version, tasks))
        world.oracle.claims[app, version] = Claim(values_of(tasks))
    with _other_options(played, {**_job_options(played), "txnAppId": app, "txnVersion": str(version)}):
        try:
            done = world.call("a transaction", played.query.run_batch_write, current().ids.unique(), tasks)
        except InvariantViolation as violation:
            if not isinstance(violation.__cause__, ReplayMismatch) or _is_provable(world, app, version):
                raise
            return
    if isinstance(done, FtfileError):
        _require_accepted(world, (app, version), done)
        return
    world.oracle.follow(world.now_ms())
    require((app, version) in world.oracle.done, "I3", "a transaction returned, and is not in the log")


def _is_provable(world: World, app: str, version: int) -> bool:
    """Return True if a transaction can be identified: its record is kept, or it is its application's last, or new.

    A skipped transaction, or one whose record is deleted, is refused.
    """
    recorded = world.oracle.done.get((app, version))
    if recorded is not None and recorded >= world.head().log_start:
        return True
    last = world.head().transactions.get(app)
    return last is None or version > last.last or (recorded is not None and version == last.last)


def _overwrite(world: World, step: Step) -> None:
    """Replace all rows by a batch write. It is skipped if a column of final rows would leave files open."""
    _overwrite_with(world, step, world.settings)


def _replace(world: World, step: Step) -> None:
    """Replace the rows of the directories of new rows, or of one directory by a condition."""
    played = _played(world, step)
    if "last" in world.history.columns:
        return
    tasks, operation_id = draw_rows(world, random.Random(step.draws[0]), "r"), current().ids.unique()
    directories = {value.partition(b"|")[0] for value in values_of(tasks)}
    options = {"partitionOverwriteMode": "dynamic"}
    if step.pick(1, 2):
        directory = str(step.pick(2, world.history.directories))
        tasks = [[row for row in rows if row["m"] == directory] for rows in tasks]
        directories, options = {directory.encode()}, {"replaceWhere": f"m = '{directory}'"}
    world.oracle.claims[operation_id] = Claim(values_of(tasks), replaced=frozenset(directories))
    played.query.overwrite = True
    try:
        with _other_options(played, {**world.history.format_options, **options, **world.settings}):
            world.call("a replacement", played.query.run_batch_write, operation_id, tasks)
    finally:
        played.query.overwrite = False


def change_settings(world: World, step: Step) -> None:
    """Another program replaces all rows, and ends lines in another way: queries and programs must not mix both."""
    if world.history.format_options["fileFormat"] in WITHOUT_LINES:
        return
    ends = {"\n", "\r\n"} - {world.settings.get("lineSep", "\n")}
    _overwrite_with(world, step, {"lineSep": ends.pop()})


def _changed_repetition(world: World, step: Step) -> None:
    """Another program changes the settings between a commit and the repetition of its batch."""
    _forgotten_batch(world, step)
    change_settings(world, step)
    run_batch(world, step)


def _overwrite_with(world: World, step: Step, settings: Mapping[str, str]) -> None:
    played = _played(world, step)
    if "last" in world.history.columns:
        return
    tasks, operation_id = draw_rows(world, random.Random(step.draws[0]), "o"), current().ids.unique()
    world.oracle.claims[operation_id] = Claim(values_of(tasks), overwrite=True)
    played.query.overwrite = True
    try:
        with _other_options(played, {**world.history.format_options, **settings}):
            world.call("an overwrite", played.query.run_batch_write, operation_id, tasks)
    finally:
        played.query.overwrite = False


@contextlib.contextmanager
def _other_options(played: PlayedQuery, options: Mapping[str, str]) -> Iterator[None]:
    before, played.query.options = played.query.options, options
    try:
        yield
    finally:
        played.query.options = before


WRITING = {
    "batch": run_batch,
    "empty_batch": _empty_batch,
    "troubled_batch": _troubled_batch,
    "forgotten_batch": _forgotten_batch,
    "late_batch": _late_batch,
    "zombie": _zombie,
    "replay": _replay,
    "restart": _restart,
    "reconfigure": _reconfigure,
    "write": write,
    "write_named": write_named,
    "transaction": _transaction,
    "overwrite": _overwrite,
    "replace": _replace,
    "change_settings": change_settings,
    "changed_repetition": _changed_repetition,
}
