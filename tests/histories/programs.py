"""Steps of programs that write by `ftfile.writer`: batches, openings by newer processes, and replaced processes."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import traceback
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile
from ftfile.core.errors import CallOrder, Fenced, FtfileError, NotFound
from ftfile.log.format import layout
from ftfile.operate.writers import application_writer, row_threads
from ftfile.testing.context import current
from ftfile.testing.log_check import InvariantViolation, require
from tests.crash.programs import Program
from tests.histories.oracle import Claim
from tests.histories.troubles import HeldThread, Moment
from tests.histories.world import Ended
from tests.histories.writing import WITHOUT_LINES, change_settings, draw_rows, run_batch, values_of
from tests.kit.failing_calls import Killed
from tests.kit.forks import Fork
from tests.kit.interrupts import Interrupt, LibraryInterrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ftfile.operate.writers.application_writer import DirectoryWriter
    from tests.histories.plan import Step
    from tests.histories.world import World

__all__ = ("PROGRAMS", "PlayedProgram", "close_dead", "end_processes", "write_as", "write_in_child")

APP_ID, _LOADS = "program", "loads"
_REACTIONS = 3
# Calls of the storage by a batch. A child process without pauses hangs if it uses no processor for `_IDLE_S`: a short
# time, because the search for the shortest history repeats it.
_CALLS, _IDLE_S = 40, 5.0
# A batch of some rows runs fewer lines; the last ones are seldom interrupted.
_LINES, _LINES_OF_WRITER, _LINES_OF_END, _CALLS_OF_LIBRARY = 6_000, 300, 9, 60
_WRITERS = str(Path(application_writer.__file__).parent)


@dataclass
class PlayedProgram:
    """A program, its newest process, and earlier processes that it replaced."""

    program: Program
    positions: dict[int, int] = field(default_factory=dict)  # by batch, of the last try of each batch
    replaced: list[DirectoryWriter] = field(default_factory=list)


def _open(world: World) -> DirectoryWriter | None:
    """Return the writer of the newest process; None if the opening failed. Its position must be the committed one."""
    if world.program is None:
        options = {**world.history.format_options, **world.history.program_options}
        program = Program(world.url, world.history.columns, options, APP_ID, threads=world.history.threads)
        world.program = PlayedProgram(program)
    played = world.program
    if played.program.writer is not None:
        return played.program.writer
    writer = world.call("an opening", played.program.open)
    if isinstance(writer, FtfileError):
        return None
    world.oracle.follow(world.now_ms())
    _require_position(world, writer)
    return played.program.writer


def _require_position(world: World, writer: DirectoryWriter) -> None:
    assert world.program is not None
    done = [batch for batch in world.program.positions if (APP_ID, batch) in world.oracle.done]
    expected = world.program.positions[max(done)] if done else None
    found = f"the position is {writer.position} instead of {expected}"
    require(writer.position == expected, "I3", found)


def _program_batch(world: World, step: Step) -> None:
    """Write and commit a batch. After an error, the process commits again, aborts, or is killed."""
    writer = _open(world)
    if writer is None or world.program is None:
        return
    played = world.program
    rows, _, position = _claim(world, played, step)
    done = world.call("a batch of a program", played.program.run, position, [rows])
    if isinstance(done, Ended):
        return
    for reaction in range(_REACTIONS):
        if not isinstance(done, FtfileError):
            break
        done = _react(world, writer, position, step.pick(1 + reaction, 2))
    if isinstance(done, FtfileError):
        _kill(played)
        return
    world.oracle.follow(world.now_ms())
    _require_position(world, writer)


def _claim(world: World, played: PlayedProgram, step: Step) -> tuple[list[dict[str, Any]], int, int]:
    """Return the rows, the number and the position of the next batch, which the oracle expects from now on."""
    tasks = draw_rows(world, random.Random(step.draws[0]), "p")
    query = world.head().queries.get(APP_ID)
    number = 0 if query is None else query.last_batch + 1
    position = next(world.numbers)
    played.positions[number] = position
    world.oracle.claims[APP_ID, number] = Claim(values_of(tasks))
    return [row for rows in tasks for row in rows], number, position


def _program_interrupted(world: World, step: Step) -> None:
    """Interrupt a batch by Ctrl-C, or by the exception of a signal handler, before any line of the product.

    The program reacts as the documentation describes: it commits again, aborts, closes the writer, or ends.
    """
    writer = _open(world)
    if writer is None or world.program is None:
        return
    played = world.program
    rows, number, position = _claim(world, played, step)
    interrupt = _interrupt(step)
    is_written, done = False, None
    try:
        # The oracle, which follows after each call, is not interrupted.
        done = world.call("a write of a program", _within, interrupt, writer.write, played.program.batches_of(rows))
        is_written = not isinstance(done, FtfileError)
        if is_written:
            done = world.call("an interrupted commit", _within, interrupt, writer.commit, position)
    except (KeyboardInterrupt, SystemExit):
        done = None
    reaction = step.pick(4, 4)
    if reaction == 0 and is_written:
        # If the interrupted commit had ended, this one has no rows. It is recorded if files are due.
        played.positions[number + 1] = position
        world.oracle.claims[APP_ID, number + 1] = Claim(frozenset())
        done = _react(world, writer, position, 1)
    elif reaction in {0, 1}:
        done = world.call("an abort of a program", writer.abort)
    elif reaction == 2:
        done = world.call("a close of a program", writer.close)
    if reaction > 1 or isinstance(done, FtfileError):
        _kill(played)
        _open(world)
        return
    world.oracle.follow(world.now_ms())
    _require_position(world, writer)


def _within(interrupt: Interrupt | LibraryInterrupt, action: Callable[[Any], Any], argument: Any) -> Any:
    with interrupt:
        return action(argument)


def _interrupt(step: Step) -> Interrupt | LibraryInterrupt:
    """Return an interrupt of the product, of the modules of Python, of the writer, or of the end of its threads."""
    error = (KeyboardInterrupt, SystemExit)[step.pick(3, 2)]
    place = step.pick(5, 5)
    if place == 4:
        return LibraryInterrupt(1 + step.pick(2, _CALLS_OF_LIBRARY), error)
    if place == 0:
        return Interrupt(1 + step.pick(2, _LINES), error)
    if place == 1:
        return Interrupt(1 + step.pick(2, _LINES_OF_WRITER), error, below=(_WRITERS,))
    return Interrupt(1 + step.pick(2, _LINES_OF_END), error, below=(row_threads.__file__,), function="finish")


def _program_forks(world: World, step: Step) -> None:
    """Fork while another thread commits a batch: the child writes as a program of its own, and does not hang.

    The child has a copy of the storage, so the directory does not change.
    """
    thread = HeldThread(partial(run_batch, world, step), Moment(1 + step.pick(4, _CALLS)))
    world.fs.held = thread
    thread.start()
    thread.wait_stopped()
    child = Fork(partial(write_in_child, world, step.draws))
    try:
        child.join(_IDLE_S)
    except AssertionError as error:
        raise InvariantViolation("fork", f"a child process fails: {error}") from None
    finally:
        world.fs.held = None
        thread.release()


def _program_write(world: World, step: Step) -> None:
    """Write rows by `ftfile.write` with an option for the format of the directory, and repeat the write.

    Another program can change the settings in between.
    """
    head = world.head()
    if head.encoding is None or "last" in world.history.columns:
        return
    rows = [row for rows in draw_rows(world, random.Random(step.draws[1]), "y") for row in rows]
    version = next(world.numbers)
    world.oracle.claims[_LOADS, version] = Claim(values_of([rows]))
    batches = Program(world.url, world.history.columns, {}, _LOADS).batches_of(rows)
    settings: dict[str, Any] = {}
    if world.history.format_options["fileFormat"] not in WITHOUT_LINES:
        settings["line_sep"] = head.definitions[head.encoding]["format"].get("lineSep", "\n")
    write = partial(
        ftfile.write,
        world.url,
        [*batches],
        app_id=_LOADS,
        version=version,
        threads=1,
        **settings,
        context=current(),
    )
    if isinstance(world.call("a write", write), FtfileError):
        return
    if step.pick(2, 2):
        change_settings(world, step)
    world.call("a repeated write", write)
    world.oracle.follow(world.now_ms())
    require((_LOADS, version) in world.oracle.done, "I3", "a write returned, and is not in the log")


def write_in_child(world: World, draws: Sequence[int]) -> None:
    """Write a batch in a child process. A storage system that fails there, or a foreign file, is no fault."""
    world.fs.held, world.fs.trouble, world.fs.meddler = None, None, None
    rows = [row for rows in draw_rows(world, random.Random(draws[1]), "f") for row in rows]
    options = {**world.history.format_options, **world.settings}
    with contextlib.suppress(FtfileError):
        Program(world.url, world.history.columns, options, "child").run(0, [rows])


def _react(world: World, writer: DirectoryWriter, position: int, choice: int) -> object:
    """Commit again or abort. A write that failed allows only an abort."""
    if choice == 0:
        return world.call("an abort of a program", writer.abort)
    try:
        return world.call("a repeated commit of a program", writer.commit, position)
    except InvariantViolation as violation:
        if not isinstance(violation.__cause__, CallOrder):
            raise
        return violation.__cause__


def _kill(played: PlayedProgram) -> None:
    """End the newest process for the program, which may continue later."""
    if played.program.writer is not None:
        played.replaced.append(played.program.writer)
    played.program.restart()


def close_dead(world: World, *, everything: bool = False) -> None:
    """End the threads of a dead process: of the program's if the step is one of it, of all processes for `everything`.

    The storage lets no call of them pass.
    """
    played = world.program
    if played is None or not (everything or world.is_program):
        return
    dead = [] if played.program.writer is None else [played.program.writer]
    played.program.restart()
    if everything:
        dead += played.replaced
        played.replaced.clear()
    for writer in dead:
        with contextlib.suppress(FtfileError, Killed):
            writer.close()


def write_as(world: World, app_id: str, draw: random.Random) -> None:
    """Write and commit rows by a writer of another program."""
    rows = [row for rows in draw_rows(world, draw, "s") for row in rows]
    query = world.head().queries.get(app_id)
    world.oracle.claims[app_id, 0 if query is None else query.last_batch + 1] = Claim(values_of([rows]))
    options = {**world.history.format_options, **world.settings}
    program = Program(world.url, world.history.columns, options, app_id)
    world.call("a batch of another program", program.run, next(world.numbers), [rows])


def end_processes(world: World) -> None:
    """End the newest process and all replaced ones, which drop their rows. Wait until none of their threads runs."""
    played = world.program
    if played is None:
        return
    _kill(played)
    for writer in played.replaced:
        writer.close()
    played.replaced.clear()
    running = world.wait_for_threads()
    require(not running, "threads", f"{running} calls of ended processes run: {_stacks()}")


def _stacks() -> str:
    """Return the stacks of all other threads."""
    here = threading.get_ident()
    frames = (frame for thread, frame in sys._current_frames().items() if thread != here)  # noqa: SLF001 - documented
    return "\n".join("".join(traceback.format_stack(frame)) for frame in frames)


def _program_restart(world: World, step: Step) -> None:
    """Open the directory by a new process of the program."""
    del step
    if world.program is not None:
        _kill(world.program)
    _open(world)


def _program_zombie(world: World, step: Step) -> None:
    """Let a process continue that a newer one has replaced: it commits nothing."""
    writer = _open(world)
    if writer is None or world.program is None or not world.program.replaced:
        return
    replaced = world.program.replaced
    zombie = replaced.pop(step.pick(0, len(replaced)))
    tasks = draw_rows(world, random.Random(step.draws[1]), "z")
    rows = [row for rows in tasks for row in rows]
    version = world.head().version
    try:
        zombie.write(world.program.program.batches_of(rows))
        zombie.commit(-1)
    except (Fenced, CallOrder):
        pass
    except FtfileError as error:
        # A vacuum deletes an unfinished file after the retention.
        is_vacuumed = isinstance(error, NotFound) and error.path.startswith(f"{layout.STAGED}/{APP_ID}/")
        require(is_vacuumed or world.explains(error), "L3", f"a replaced process raised {error!r}")
    else:
        raise InvariantViolation("I2", "a replaced process has committed")
    zombie.close()
    require(world.head().version == version, "I2", "a replaced process has created a record")


PROGRAMS = {
    "program_batch": _program_batch,
    "program_restart": _program_restart,
    "program_zombie": _program_zombie,
    "program_interrupted": _program_interrupted,
    "program_forks": _program_forks,
    "program_write": _program_write,
}
