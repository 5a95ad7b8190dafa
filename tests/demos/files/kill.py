"""When the application is killed: a plan drawn from a seed, and the search for each moment of the plan.

Spark and the sink do not take part. The search lists the directories about a thousand times a second. When the moment
seems to have come, it freezes the whole application (SIGSTOP) and lists them again. Then it either kills the
application, or resumes it and waits for the next batch.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from enum import Enum
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demos.files.sinks import NOTHING, State, Stream, observe, unpublished_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.demos.files.process import Application

__all__ = ("LONGEST_DELAY_S", "Hit", "Kill", "Moment", "Victim", "hunt", "plan_kills")

POLL_S = 0.0005
POLL_BEFORE_S = 0.02
SETTLE_S = 0.002
LONGEST_DELAY_S = 0.1


class Moment(Enum):
    """A moment in which the application is killed."""

    WINDOW = "between the sink's record and Spark's commit"
    WRITING = "writing the files of a batch"


class Victim(Enum):
    """The victims: the application, the driver of an application on a cluster, or servers that it uses."""

    APPLICATION = "the application"
    NAMENODE = "the NameNode"
    DATANODE = "a DataNode"
    EVERYTHING = "HDFS and the application"
    DRIVER = "the driver"
    PYTHON = "the Python workers of an executor"
    EXECUTOR = "an executor"
    WORKER = "a Spark worker with its executor"
    MASTER = "the application master"
    RESOURCE_MANAGER = "the ResourceManager"
    NODE_MANAGER = "the NodeManager of the application master"
    BROKER = "the Kafka broker"
    BROKER_AND_DRIVER = "the Kafka broker and the driver"

    @property
    def is_application(self) -> bool:
        """True if no server is killed."""
        return self in {Victim.APPLICATION, Victim.DRIVER}

    @property
    def ends_application(self) -> bool:
        """True if the application is killed, too."""
        return self.is_application or self in {Victim.EVERYTHING, Victim.BROKER_AND_DRIVER}


@dataclass(frozen=True, slots=True)
class Kill:
    """One planned kill: the stream, the moment, the earliest batch, and an extra delay."""

    target: str
    moment: Moment
    not_before: int
    delay_s: float
    victim: Victim = Victim.APPLICATION


@dataclass(frozen=True, slots=True)
class Hit:
    """One kill as it happened.

    ``states`` is the state of the directories after every process had ended, or stood still while servers were killed.
    ``unpublished`` is the number of files of the stream's newest recorded batch that were not yet published.
    """

    kill: Kill
    states: Mapping[str, State]
    unpublished: int
    processes: int
    thawed: int
    killed_at_s: float

    @property
    def counts(self) -> bool:
        """True if the stream was killed in the planned moment."""
        state = self.states[self.kill.target]
        return state.in_window if self.kill.moment is Moment.WINDOW else state.in_flight


def plan_kills(seed: int, targets: Sequence[str], batches: int) -> tuple[Kill, ...]:
    """Draw one kill of each stream in each moment, in random order, spread over the batches."""
    drawn = random.Random(seed)
    deaths = list(product(targets, Moment))
    drawn.shuffle(deaths)
    step = batches / (len(deaths) + 1)
    kills = []
    for index, (target, moment) in enumerate(deaths):
        not_before = round(step * (index + 0.75 + drawn.uniform(-0.2, 0.2)))
        delay_s = drawn.uniform(0.0, LONGEST_DELAY_S) if moment is Moment.WRITING else 0.0
        kills.append(Kill(target, moment, max(not_before, 1), delay_s))
    return tuple(kills)


def hunt(
    app: Application,
    kill: Kill,
    targets: Sequence[Stream],
    on_poll: Callable[[], None],
    strike: Callable[[], None] | None = None,
) -> Hit | None:
    """Wait for the planned moment and kill the application or another victim.

    Args:
        app: the running application.
        kill: the planned kill.
        targets: every stream of the application.
        on_poll: is called after every check; it may raise to stop the search.
        strike: kills another victim while the application is frozen; the application resumes afterwards.

    Returns:
        The hit, or None if the application ended before the moment.
    """
    victim = next(target for target in targets if target.name == kill.target)
    lure = _Lure(kill, victim)
    thawed = 0
    while app.exit_code is None:
        if lure.is_near():
            processes = app.freeze()
            # A stop signal reaches a running thread at its next entry to the kernel.
            time.sleep(SETTLE_S)
            if lure.is_there():
                if strike is None:
                    app.kill()
                states = {target.name: observe(target) for target in targets}
                recorded = states[victim.name].recorded
                unpublished = unpublished_parts(victim, recorded) if recorded != NOTHING else 0
                hit = Hit(kill, states, unpublished, processes, thawed, time.monotonic())
                if strike is not None:
                    strike()
                    app.thaw()
                return hit
            app.thaw()
            thawed += 1
            lure.come_sooner()
        on_poll()
        time.sleep(lure.pause_s)
    return None


class _Lure:
    """Detects the planned moment of one stream from its directories: first that it is near, then that it has come.

    ``pause_s`` is the time until the next check.
    """

    def __init__(self, kill: Kill, target: Stream) -> None:
        self.pause_s = POLL_BEFORE_S
        self._kill = kill
        self._delay_s = kill.delay_s
        self._target = target
        # A moment that an earlier kill left behind is not a new moment.
        self._recorded_at_start = observe(target).recorded
        self._begun = NOTHING
        self._files_at_begin = 0

    def is_near(self) -> bool:
        """Check the running application. May sleep for the planned delay."""
        state = observe(self._target)
        if state.begun < self._kill.not_before:
            return False
        self.pause_s = POLL_S
        if self._kill.moment is Moment.WINDOW:
            return self._is_window(state)
        if state.begun != self._begun:
            # Tasks start later, so the count at the first sight of a batch is the count before its first file.
            self._begun, self._files_at_begin = state.begun, _count_files(self._target)
            return False
        return self._is_writing(state) and self._outlasts_delay()

    def _outlasts_delay(self) -> bool:
        """Wait for the planned delay. If the batch ended sooner, return False; the next delay is half that time."""
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < self._delay_s:
            time.sleep(POLL_S)
            if not self._is_writing(observe(self._target)):
                self._delay_s = waited_s / 2
                return False
        return True

    def come_sooner(self) -> None:
        """Halve the planned delay: the moment was over after it, and may be as short in every batch."""
        self._delay_s /= 2

    def is_there(self) -> bool:
        """Check the frozen application."""
        state = observe(self._target)
        return self._is_window(state) if self._kill.moment is Moment.WINDOW else self._is_writing(state)

    def _is_window(self, state: State) -> bool:
        return state.in_window and state.recorded > self._recorded_at_start

    def _is_writing(self, state: State) -> bool:
        same_batch = state.in_flight and state.begun == self._begun
        return same_batch and _count_files(self._target) > self._files_at_begin


def _count_files(target: Stream) -> int:
    """Count the files below the target outside the sink's log, including hidden files; on HDFS also in the log."""
    if not isinstance(target.output, Path):
        return target.output.count_files()
    log = str(target.log)
    return sum(len(names) for where, _, names in os.walk(target.output) if not where.startswith(log))
