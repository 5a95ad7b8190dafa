"""Events during a call of the product: deaths, faults, interrupts, forks, and what other processes do meanwhile.

A step of a history can draw an event for its first call. Each event acts at a drawn call of the storage, such as
the creation of a record, or at a drawn line of the product, so each ability meets each event without a step of its own.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.core.errors import (
    FtfileError,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    Unavailable,
)
from ftfile.log.format import layout
from ftfile.testing.context import SeededIds, current
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.log_check import require
from ftfile.writing.files.file_writer import forget_caches
from tests.histories.maintaining import FLUSH, note_untold
from tests.histories.plan import Step
from tests.histories.programs import close_dead, write_as, write_in_child
from tests.histories.troubles import DIRECTORY, Death, HeldThread, Meddler, Moment
from tests.histories.versions import check_refusals, create_newer_record, is_of_newer_version
from tests.histories.world import Ended
from tests.kit.failing_calls import CHANGES, Killed, lose_answer
from tests.kit.forks import Fork
from tests.kit.interrupts import Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.histories.plan import Event
    from tests.histories.world import World

__all__ = ("EVENTS", "meet")

_DAY_S = 86_400
# A child process without pauses hangs if it uses no processor for the first time. The second time is long enough for a
# thread to end its call, if no lock of another one prevents it. In seconds.
_IDLE_S, _PATIENCE_S = 5.0, 0.05
_DISKS = 8
_VACUUM = (0, 1, 0, 0, 0, 0)  # not a dry run


@dataclass
class Meeting:
    """An event and the call that meets it.

    Attributes:
        is_met: the event has acted.
        is_counted: the event counts as one that the history has met, because it had an effect.
    """

    world: World
    event: Event
    action: Callable[[], Any]
    is_met: bool = False
    is_counted: bool = True

    @property
    def draw(self) -> random.Random:
        """Return a new source of this event's choices."""
        return random.Random(f"{self.event.kind} {self.event.draws}")

    @property
    def moment(self) -> Moment:
        """Return the moment of the event; for a third of the events, at the latest that of the first record."""
        return Moment(self.event.call, at_record=self.event.draws[5] % 3 == 0)

    def at_call(self, act: Callable[[str, str, Callable[[], Any]], Any]) -> Any:
        """Run the action; `act` runs instead of the drawn call of the storage."""
        meddler = Meddler(self.moment, act)
        self.world.fs.meddler = meddler
        try:
            return self.action()
        finally:
            self.world.fs.meddler = None
            self.is_met = self.is_met or meddler.is_met


def _kill(meeting: Meeting) -> Any:
    """Kill the process before a call of the storage: no later call has an effect."""
    return _die(meeting, cuts_power=False)


def _cut_power(meeting: Meeting) -> Any:
    """Cut the power before a call of the storage: all processes end, and what is not durable may be lost."""
    return _die(meeting, cuts_power=True)


def _die(meeting: Meeting, *, cuts_power: bool) -> Any:
    world = meeting.world
    death = Death(meeting.moment)
    world.fs.meddler = death
    error: BaseException | None = None
    done = None
    try:
        try:
            done = meeting.action()
        except (Killed, FtfileError) as raised:
            error = raised
        if death.is_met:
            close_dead(world, everything=cuts_power)
            world.wait_for_threads(_PATIENCE_S)
    finally:
        world.fs.meddler = None
    meeting.is_met = death.is_met
    if not death.is_met:
        if error is not None:
            raise error
        return done
    if cuts_power:
        meeting.is_counted = _lose_power(world, meeting.draw)
    forget_caches()
    world.restart()
    return Ended("the power was cut" if cuts_power else "the process was killed", is_dead=True)


def _lose_power(world: World, draw: random.Random) -> bool:
    """Replace the storage by a disk that a power cut can leave, with all acknowledged records.

    Returns:
        True if something was lost, or if names are durable at once in this storage, and nothing could be lost.
    """
    storage = world.volume
    if not isinstance(storage, CrashingFileSystem):
        return False
    (stop,) = deque(storage.states(), maxlen=1)
    outcomes = stop.replay.sample(SeededIds(draw.getrandbits(30)))
    in_order = stop.replay.outcomes()
    disk, loss = next(in_order)  # it has lost nothing
    is_loss_possible = next(in_order, None) is not None
    for _ in range(_DISKS):
        candidate, lost = next(outcomes)
        # Records that a process has read, and nobody has acknowledged, may be lost; the oracle has followed them.
        versions = range(world.acknowledged, world.oracle.records)
        followed = (f"{DIRECTORY}/{layout.record_path(version)}" for version in versions)
        if not lost.is_empty and all(candidate.tree.find(path) is not None for path in followed):
            disk, loss = candidate, lost
            break
    left = storage.after_power_cut(disk, stop.notes)
    world.lose(left, loss)
    for played in world.queries:
        played.late.clear()  # the drivers have ended
    return not loss.is_empty or not (is_loss_possible or storage.capabilities.directory_sync)


def _fail(meeting: Meeting) -> Any:
    """Let a call of the storage fail before its effect."""
    world, draw = meeting.world, meeting.draw

    def act(operation: str, path: str, call: Callable[[], Any]) -> Any:
        del call
        world.fs.failed = True
        errors: list[type[StorageError]] = [Unavailable, PermissionDenied]
        raise draw.choice([*errors, OutOfSpace] if operation in CHANGES else errors)(operation, path, "an event")

    return meeting.at_call(act)


def _lose_answer(meeting: Meeting) -> Any:
    """Let a call of the storage fail after its effect."""
    world = meeting.world

    def act(operation: str, path: str, call: Callable[[], Any]) -> Any:
        world.fs.failed = True
        lose_answer(operation, path, call)

    return meeting.at_call(act)


def _interrupt(meeting: Meeting) -> Any:
    """Interrupt the call by Ctrl-C, or by the exception of a signal handler. Its process can end or continue."""
    draw = meeting.draw
    error = draw.choice((KeyboardInterrupt, SystemExit))
    interrupt = Interrupt(1 + draw.randrange(draw.choice((30, 300, 3_000, 10_000))), error)
    is_ended = draw.random() < 0.5
    try:
        with interrupt:
            return meeting.action()
    except error:
        if is_ended:
            forget_caches()
            close_dead(meeting.world)
        return Ended("the call was interrupted", is_dead=is_ended)
    finally:
        meeting.is_met = interrupt.is_raised


def _held(meeting: Meeting, meanwhile: Callable[[], object]) -> Any:
    """Run the action in a thread, which stops before a call of the storage until `meanwhile` has returned."""
    results: list[Any] = []
    thread = HeldThread(lambda: results.append(meeting.action()), meeting.moment)
    meeting.world.fs.held = thread
    thread.start()
    thread.wait_stopped()
    try:
        if not results and thread.error is None:
            meeting.is_met = True
            meanwhile()
    finally:
        meeting.world.fs.held = None
        thread.release()
    return results[0]


def _fork(meeting: Meeting) -> Any:
    """Fork while another thread runs the call: the child writes as a program of its own, and does not hang."""

    def meanwhile() -> None:
        child = Fork(lambda: write_in_child(meeting.world, meeting.event.draws))
        try:
            child.join(_IDLE_S)
        except AssertionError as error:
            require(False, "fork", f"a child process fails: {error}")

    return _held(meeting, meanwhile)


def _use_second_thread(meeting: Meeting) -> Any:
    """Write, read or flush in a second thread of the process while the first one runs the call."""
    world = meeting.world
    failed: list[BaseException] = []

    def work() -> None:
        try:
            meeting.is_counted = _do_something(world, meeting.draw)
        except BaseException as error:  # of any kind: it is raised in the first thread
            failed.append(error)

    second = threading.Thread(target=work, daemon=True)

    def meanwhile() -> None:
        second.start()
        second.join(_PATIENCE_S)  # it may wait for a lock of the thread that is held

    try:
        return _held(meeting, meanwhile)
    finally:
        if meeting.is_met:
            second.join()
        for error in failed:
            raise error


def _do_something(world: World, draw: random.Random) -> bool:
    """Write, flush or count rows; return False if the directory is still empty, and nothing was done."""
    choice = draw.randrange(3)
    if choice == 0 and "last" not in world.history.columns:
        write_as(world, "second", draw)
    elif choice == 1 and world.oracle.records:
        world.call("a flush by a second thread", FLUSH, world.url, of_damage=True, context=current())
    elif world.oracle.first_rows is not None:
        opened = ftfile.open(world.url, context=current())
        world.call("a count by a second thread", opened.count, of_damage=True)
    else:
        return False
    return True


def _meanwhile(meeting: Meeting, others: Callable[[], object]) -> Any:
    """Let other processes act before a call of the storage."""
    world = meeting.world

    def act(operation: str, path: str, call: Callable[[], Any]) -> Any:
        del operation, path
        world.fs.meddler = None
        meeting.is_met = True
        world.met(meeting.event)
        forget_caches()
        others()
        forget_caches()
        return call()

    return meeting.at_call(act)


def _let_others_act(world: World, draws: tuple[int, ...]) -> None:
    """Execute a step by another process, and by another query than that of the running step."""
    kinds = ["compact", "flush", "read"]
    if "last" not in world.history.columns:
        kinds.append("program_write")
    if len(world.queries) > 1:
        kinds += ["batch", "batch", "write", "transaction"]
    world.act(world, Step(kinds[draws[0] % len(kinds)], world.query + 1, draws))


def _other_process(meeting: Meeting) -> Any:
    """Let another process write, rewrite or publish meanwhile."""
    return _meanwhile(meeting, lambda: _let_others_act(meeting.world, meeting.event.draws))


def _late(meeting: Meeting) -> Any:
    """Let the process stand still until others have written, and vacuums have run for weeks."""

    def others() -> None:
        world, draws = meeting.world, meeting.event.draws
        for number in range(2):
            _let_others_act(world, (*draws[number:], *draws[:number]))
            world.clock.advance(8 * _DAY_S)
            world.act(world, Step("vacuum", 0, _VACUUM))
            note_untold(world)

    return _meanwhile(meeting, others)


def _twin(meeting: Meeting) -> Any:
    """Let another process do the same meanwhile, as a job that was started again does."""
    return _meanwhile(
        meeting, lambda: meeting.world.call("the same by another process", meeting.action, of_damage=True)
    )


def _step_clock(meeting: Meeting) -> Any:
    """Step the clock of the storage and of all processes, forward or back."""
    world, step_s = meeting.world, meeting.draw.choice((-3_600, -30, -1, 1, 30, 3_600))

    def act(operation: str, path: str, call: Callable[[], Any]) -> Any:
        del operation, path
        world.clock.advance(step_s)
        return call()

    world.oracle.is_troubled = True  # a record that is being written may have the time before the step
    return meeting.at_call(act)


def _newer_version(meeting: Meeting) -> Any:
    """Let a newer ftfile create a record meanwhile. All calls refuse it; then it is deleted, as its users would do."""
    world = meeting.world
    created: list[str] = []

    def act(operation: str, path: str, call: Callable[[], Any]) -> Any:
        del operation, path
        if (record := create_newer_record(world)) is not None:
            created.append(record)
            world.met(meeting.event)
        return call()

    try:
        return meeting.at_call(act)
    except FtfileError as error:
        if not created or not is_of_newer_version(error):
            raise
        return Ended("a newer version has written", is_dead=True)
    finally:
        meeting.is_met = bool(created)
        if created:
            world.wait_for_threads(_PATIENCE_S)
            forget_caches()
            if world.fs.trouble is None:
                check_refusals(world)
            world.raw.delete(created[0])
            world.raw.sync_directory(layout.LOG)
            close_dead(world)
            forget_caches()
            world.restart()


EVENTS: dict[str, Callable[[Meeting], Any]] = {
    "kill": _kill,
    "power cut": _cut_power,
    "fault": _fail,
    "lost answer": _lose_answer,
    "interrupt": _interrupt,
    "fork": _fork,
    "second thread": _use_second_thread,
    "other process": _other_process,
    "late process": _late,
    "twin": _twin,
    "clock step": _step_clock,
    "newer version": _newer_version,
}


def meet(world: World, event: Event, action: Callable[[], Any]) -> Any:
    """Run the action with an event, and return its result, or `Ended`."""
    meeting = Meeting(world, event, action)
    try:
        return EVENTS[event.kind](meeting)
    finally:
        if meeting.is_met:
            world.met(event, is_counted=meeting.is_counted)
