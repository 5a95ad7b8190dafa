"""Plays a history to its end, and finds the shortest history that fails."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unittest import mock

from ftfile.core.checksum import matches
from ftfile.core.errors import FtfileError
from ftfile.log import publish
from ftfile.log.commit_log import CommitLog
from ftfile.log.vacuum import vacuum
from ftfile.operate.verify.log_scan import look_at_head
from ftfile.operate.verify.verify_directory import verify
from ftfile.testing.checker import check_directory, list_plainly
from ftfile.testing.context import ManualClock, SeededIds, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.log_check import InvariantViolation, require
from ftfile.writing.files.file_writer import forget_caches
from tests.histories.decoding import decoded_once
from tests.histories.events import meet
from tests.histories.harm import HARMING
from tests.histories.hook import HEARD
from tests.histories.maintaining import MAINTAINING, flush_all, take_horizon_back
from tests.histories.operating import OPERATING
from tests.histories.pairs import Met
from tests.histories.plan import KEYS, Step
from tests.histories.programs import PROGRAMS, end_processes
from tests.histories.reading import READING
from tests.histories.small_limits import small_limits
from tests.histories.streams import STREAMS, end_streams
from tests.histories.world import World
from tests.histories.writing import WRITING, run_batch
from tests.kit.liveness import check_published, check_state_size, check_vacuumed
from tests.settings import settled_once
from tests.wrappers import InContext

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.histories.plan import History


_ACTIONS = {**WRITING, **MAINTAINING, **READING, **HARMING, **PROGRAMS, **OPERATING, **STREAMS}
_RING = f"first {base64.b64encode(bytes(32)).decode()}\n"
_OF_THE_PROGRAM = {"program_batch", "program_restart", "program_zombie", "program_interrupted"}
_LOOK_EVERY = 50
_DAY_S = 86_400
_SETTLE = Step("batch", 0, (0,) * 6)


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a history."""

    steps: int
    records: int
    parts: int  # all parts that were ever finished
    rows: int  # at the end
    harmed: int  # adds that were damaged or deleted


class HistoryFailed(AssertionError):
    """An invariant was violated after a step, counted from 0."""

    def __init__(self, history: History, step: int, cause: BaseException) -> None:
        kind = history.steps[step].kind if step < len(history.steps) else "the end"
        super().__init__(f"seed {history.seed}, step {step} ({kind}): {cause!r}")
        self.history, self.step, self.cause = history, step, cause

    @property
    def kind(self) -> str:
        """Return the violated invariant, or the name of the error."""
        return self.cause.invariant if isinstance(self.cause, InvariantViolation) else type(self.cause).__name__


def play(history: History, pairs: Met | None = None) -> Played:
    """Play a history and check it. `pairs` notes what it meets.

    Raises:
        HistoryFailed: an invariant is violated.
    """
    clock = ManualClock(tick_ms=1)
    storage = World.storage(history, clock)
    number = 0
    pairs = Met() if pairs is None else pairs
    pairs.begin(history)
    with (
        repeatable(clock, SeededIds(history.seed)),
        small_limits(use=history.small_limits),
        decoded_once(),
        settled_once(),
        mounted(storage) as url,
        mock.patch.object(publish, "PUBLISH_TIMEOUT_S", 1.0),
        mock.patch.dict(os.environ, {KEYS.partition(":")[2]: _RING, "FTFILE_KEY_PROVIDER": KEYS}),
    ):
        forget_caches()
        HEARD.clear()
        world = World(history, clock, url, storage, meet=meet, act=_act, pairs=pairs)
        try:
            for number, step in enumerate(history.steps):
                _play_step(world, number, step)
            number = len(history.steps)
            _end(world)
        except Exception as error:
            raise HistoryFailed(history, number, error) from error
        finally:
            forget_caches()
        parts = len(world.oracle.published_by_queries)
        return Played(number, world.oracle.records, parts, len(world.oracle.expected), len(world.damaged))


def _play_step(world: World, number: int, step: Step) -> None:
    world.step = number
    world.clock.advance(1)
    if world.is_troubled and number >= world.trouble_ends:
        world.fs.trouble = None
    if world.named and step.pick(5, 3) == 0:
        world.remove_named()
    world.met_events.clear()
    world.fs.failed = False
    world.oracle.is_troubled = world.is_troubled or step.event is not None
    world.query = step.query
    world.event, world.is_program = step.event, step.kind in _OF_THE_PROGRAM
    _act(world, step)
    world.event = None
    if step.kind in HARMING and isinstance(world.volume, CrashingFileSystem):
        world.volume.sync_all()  # what persons and other programs did
    _adjust_horizon(world)
    world.pairs.end_step()
    if number % _LOOK_EVERY == _LOOK_EVERY - 1:
        _look(world)


def _act(world: World, step: Step) -> None:
    is_of_query = step.kind in WRITING or step.kind in {"write_blocked", "lose_record"}
    with world.process(step.query % len(world.queries) if is_of_query else -1):
        _ACTIONS[step.kind](world, step)
        world.oracle.follow(world.now_ms())


def _adjust_horizon(world: World) -> None:
    """Take the horizon back after the clock was stepped back, as after `set_back`."""
    if any(event.kind == "clock step" for event in world.met_events):
        world.met_events.clear()
        with world.process(-1):
            take_horizon_back(world)
            world.oracle.follow(world.now_ms())


def _look(world: World) -> None:
    """Check the visible files, the foreign files, and the size of the state."""
    for path, content in world.foreign.items():
        require(world.raw.exists(path) and world.raw.read(path) == content, "foreign", f"{path!r} was touched")
    known = {add.final_path for add in world.live_parts()} | world.foreign.keys() | world.oracle.removed.keys()
    strange = [path for path in list_plainly(world.raw) if path not in known]
    require(not strange, "I9", f"{strange} are visible without a record")
    if world.oracle.records:
        check_state_size(world.head(), world.open_segments().keys())
        _check_horizon(world)


def _check_horizon(world: World) -> None:
    """Check that a future horizon is detected by the storage's clock, even if the clock of the reader is wrong."""
    is_ahead = world.head().horizon_ms > world.clock.now_ms()
    for skew_s in (-3_600, -1, 0, 3_600):
        log = CommitLog(InContext(world.keyed, clock=ManualClock(world.clock.now_ms() + 1000 * skew_s)))
        codes = {finding.code for finding in look_at_head(log, log.refresh())}
        is_found = "horizon-ahead" in codes
        require(is_found == is_ahead, "horizon", f"a reader whose clock is {skew_s} s ahead finds {codes}")


def _end(world: World) -> None:
    """Remove every cause of failures, run each query and a flush again, and check all invariants."""
    world.fs.trouble = None
    world.met_events.clear()
    world.fs.failed = False
    world.oracle.is_troubled = False
    end_processes(world)
    for _ in range(3):
        for number in range(len(world.queries)):
            with world.process(number):
                run_batch(world, Step("batch", number, _SETTLE.draws), empty=True)
        _ask_verify(world)
        world.remove_named()
    end_streams(world)
    if not world.oracle.records:
        return
    flush_all(world)
    _take_damaged_for_foreign(world)
    _look(world)
    stuck = [played.query.query_id for played in world.queries if played.pending is not None]
    require(not stuck, "L3", f"{stuck} cannot continue although every cause was removed")
    removed = {path: add for path, add in world.oracle.removed.items() if path not in world.foreign}
    check_published(world.raw, world.oracle.live.values(), removed, world.damaged, world.old_names)
    _check_heard(world)
    _check_all(world, world.old_names)
    since = -1
    for _ in range(2):
        since = world.head().version
        world.clock.advance(8 * _DAY_S)
        world.call("a vacuum", vacuum, world.url, dry_run=False)
        world.oracle.follow(world.now_ms())
    check_vacuumed(CommitLog(world.keyed), since)
    _check_all(world)


def _ask_verify(world: World) -> None:
    """Record the foreign files that block the names of parts: for batch writes, no query reports them again."""
    for finding in verify(world.keyed).findings if world.foreign and world.oracle.records else ():
        if finding.code == "taken-name":
            world.named |= {path for path in world.foreign if path == finding.path}


def _take_damaged_for_foreign(world: World) -> None:
    """Record removed parts that stay visible because they were damaged before they were retired."""
    finals = {add.final_path for add in world.live_parts()}
    for path, add in world.oracle.removed.items():
        if add.id in world.damaged and path not in finals and path not in world.foreign and world.raw.exists(path):
            content = world.raw.read(path)
            require(not matches(content, add.checksum), "L3", f"{path!r} is removed and visible, but not damaged")
            world.foreign[path] = content


def _check_all(world: World, old_names: Collection[str] = ()) -> None:
    for path in world.damaged_ranges:
        if world.raw.exists(path):
            world.raw.delete(path)  # the check would rightly report the damaged range
    report = check_directory(
        world.keyed,
        rows_of=world.oracle.rows_in,
        damaged=world.damaged,
        foreign=world.foreign.keys(),
        old_names=old_names,
    )
    lost = {row for add_id in world.damaged & world.oracle.live.keys() for row in world.oracle.rows[add_id]}
    expected = world.oracle.expected - lost
    require(report.live_rows.keys() == expected, "rows", "readers see other rows than were committed")
    require(max(report.live_rows.values(), default=1) == 1, "rows", "readers see rows twice")
    segments = {row for add_id in world.open_segments() for row in world.oracle.rows[add_id]}
    require(report.visible_rows.keys() == expected - segments, "rows", "a lister sees other rows than were committed")


def _check_heard(world: World) -> None:
    """Check that `onPublish` was called at least once for every part of a query with that option."""
    listening = {
        played.query.query_id
        for played in world.queries
        if "onPublish" in played.plan.options and "onPublish" in played.plan.other_options
    }
    parts = [add for add in world.oracle.published_by_queries if add.origin.query_id in listening]
    missed = [add.final_path for add in parts if add.final_path not in HEARD and add.final_path not in world.untold]
    require(not missed, "onPublish", f"not called for {missed[:3]}, {len(missed)} parts in all")


def shrink(failed: HistoryFailed, tries: int = 200) -> HistoryFailed:
    """Return the failure of the shortest history with the same kind of failure, found by leaving steps out."""
    best = failed
    steps = best.history.steps[: best.step + 1]
    size = max(1, len(steps) // 2)
    while tries > 0:
        place, shorter = 0, False
        while place < len(steps) and tries > 0:
            fewer = (*steps[:place], *steps[place + size :])
            tries -= 1
            try:
                play(best.history.with_steps(fewer))
            except HistoryFailed as again:
                if again.kind == failed.kind:
                    best, steps, shorter = again, again.history.steps[: again.step + 1], True
                    continue
            except FtfileError:
                raise
            place += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return best
