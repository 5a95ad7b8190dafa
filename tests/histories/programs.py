"""Steps of programs that write by `ftfile.writer`: batches, openings by newer processes, and replaced processes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ftfile.core.errors import CallOrder, Fenced, FtfileError
from ftfile.testing.log_check import InvariantViolation, require
from tests.crash.programs import Program
from tests.histories.oracle import Claim
from tests.histories.writing import draw_rows, values_of

if TYPE_CHECKING:
    from ftfile.operate.writers.application_writer import DirectoryWriter
    from tests.histories.plan import Step
    from tests.histories.world import World

__all__ = ("PROGRAMS", "PlayedProgram")

APP_ID = "program"
_REACTIONS = 3


@dataclass
class PlayedProgram:
    """A program, its newest process, and earlier processes that it replaced."""

    program: Program
    positions: dict[int, int] = field(default_factory=dict)  # by batch, of the last try of each batch
    replaced: list[DirectoryWriter] = field(default_factory=list)


def _open(world: World) -> DirectoryWriter | None:
    """Return the writer of the newest process; None if the opening failed. Its position must be the committed one."""
    if world.program is None:
        options = {**world.history.format_options, **world.history.queries[0].options}
        options.pop("onPublish", None)
        world.program = PlayedProgram(Program(world.url, world.history.columns, options, APP_ID))
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
    tasks = draw_rows(world, random.Random(step.draws[0]), "p")
    query = world.head().queries.get(APP_ID)
    number = 0 if query is None else query.last_batch + 1
    position = next(world.numbers)
    played.positions[number] = position
    world.oracle.claims[APP_ID, number] = Claim(values_of(tasks))
    done = world.call("a batch of a program", played.program.run, position, [[row for rows in tasks for row in rows]])
    for reaction in range(_REACTIONS):
        if not isinstance(done, FtfileError):
            break
        done = _react(world, writer, position, step.pick(1 + reaction, 2))
    if isinstance(done, FtfileError):
        _kill(played)
        return
    world.oracle.follow(world.now_ms())
    _require_position(world, writer)


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
        require(world.explains(error), "L3", f"a replaced process raised {error!r}")
    else:
        raise InvariantViolation("I2", "a replaced process has committed")
    require(world.head().version == version, "I2", "a replaced process has created a record")


PROGRAMS = {
    "program_batch": _program_batch,
    "program_restart": _program_restart,
    "program_zombie": _program_zombie,
}
