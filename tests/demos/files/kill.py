"""When the application is killed: a plan drawn from a seed, and the hunt for each moment of the plan.

Spark and the sink know nothing of it. The hunter looks at the directories about a thousand times a second,
freezes the whole application (SIGSTOP) when the moment seems to be there, looks again, and then either kills
it where it stands or lets it go on and waits for the next batch.
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

    from tests.demos.files.process import SparkApp

__all__ = ("LONGEST_DELAY_S", "Hit", "Kill", "Moment", "Victim", "hunt", "plan_kills")

POLL_S = 0.0005
POLL_BEFORE_S = 0.02
SETTLE_S = 0.002
LONGEST_DELAY_S = 0.1


class Moment(Enum):
    """A moment worth dying in."""

    WINDOW = "between the sink's record and Spark's commit"
    WRITING = "writing the files of a batch"


class Victim(Enum):
    """The victims; all but the application, or the driver of one on a cluster, are servers around it."""

    APPLICATION = "the application"
    NAMENODE = "the NameNode"
    DATANODE = "a DataNode"
    EVERYTHING = "HDFS and the application"
    DRIVER = "the driver"
    PYTHON = "the Python workers of an executor"
    EXECUTOR = "an executor"
    WORKER = "a Spark worker with its executor"
    BROKER = "the Kafka broker"
    BROKER_AND_DRIVER = "the Kafka broker and the driver"

    @property
    def is_application(self) -> bool:
        """True if no server dies."""
        return self in {Victim.APPLICATION, Victim.DRIVER}

    @property
    def ends_application(self) -> bool:
        """True if the application dies, too."""
        return self.is_application or self in {Victim.EVERYTHING, Victim.BROKER_AND_DRIVER}


@dataclass(frozen=True, slots=True)
class Kill:
    """One planned kill: of which stream, in which moment, not before which batch, after which extra wait."""

    target: str
    moment: Moment
    not_before: int
    delay_s: float
    victim: Victim = Victim.APPLICATION


@dataclass(frozen=True, slots=True)
class Hit:
    """One kill as it happened.

    ``states`` is what the directories showed when every process was gone, or stood still while servers died;
    ``unpublished`` how many files of the newest recorded batch of the stream in question were not yet in place.
    """

    kill: Kill
    states: Mapping[str, State]
    unpublished: int
    processes: int
    thawed: int
    killed_at_s: float

    @property
    def counts(self) -> bool:
        """True if the stream really died in the planned moment."""
        state = self.states[self.kill.target]
        return state.in_window if self.kill.moment is Moment.WINDOW else state.in_flight


def plan_kills(seed: int, targets: Sequence[str], batches: int) -> tuple[Kill, ...]:
    """Draw one kill of each stream in each moment, in any order, spread over the batches."""
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
    app: SparkApp,
    kill: Kill,
    targets: Sequence[Stream],
    on_poll: Callable[[], None],
    strike: Callable[[], None] | None = None,
) -> Hit | None:
    """Wait for the planned moment and kill the application in it, or something else.

    Args:
        app: The running application.
        kill: What to wait for.
        targets: Every stream of the application.
        on_poll: Called after every look; it may raise to give up.
        strike: Kills something else while the application stands still, which then goes on.

    Returns:
        What happened; None if the application ended before the moment came.
    """
    victim = next(target for target in targets if target.name == kill.target)
    lure = _Lure(kill, victim)
    thawed = 0
    while app.exit_code is None:
        if lure.is_near():
            processes = app.freeze()
            # A stop signal reaches a thread that is running at its next entry to the kernel.
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
    """Tells from the directories of one stream whether the planned moment is near and, once frozen, there.

    ``pause_s`` is how long to wait before the next look.
    """

    def __init__(self, kill: Kill, target: Stream) -> None:
        self.pause_s = POLL_BEFORE_S
        self._kill = kill
        self._delay_s = kill.delay_s
        self._target = target
        # What an earlier kill left behind is not a new moment.
        self._recorded_at_start = observe(target).recorded
        self._begun = NOTHING
        self._files_at_begin = 0

    def is_near(self) -> bool:
        """Look at the running application; may sleep for the planned wait."""
        state = observe(self._target)
        if state.begun < self._kill.not_before:
            return False
        self.pause_s = POLL_S
        if self._kill.moment is Moment.WINDOW:
            return self._is_window(state)
        if state.begun != self._begun:
            # The count at the first sight of a batch is the one before its first file: tasks start later.
            self._begun, self._files_at_begin = state.begun, _count_files(self._target)
            return False
        return self._is_writing(state) and self._outlasts_delay()

    def _outlasts_delay(self) -> bool:
        """Wait as planned; return False if the batch was written sooner, and plan to wait half as long as that took."""
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < self._delay_s:
            time.sleep(POLL_S)
            if not self._is_writing(observe(self._target)):
                self._delay_s = waited_s / 2
                return False
        return True

    def come_sooner(self) -> None:
        """Halve the planned wait: the moment was over when it ended, and may be as short in every batch."""
        self._delay_s /= 2

    def is_there(self) -> bool:
        """Look at the frozen application."""
        state = observe(self._target)
        return self._is_window(state) if self._kill.moment is Moment.WINDOW else self._is_writing(state)

    def _is_window(self, state: State) -> bool:
        return state.in_window and state.recorded > self._recorded_at_start

    def _is_writing(self, state: State) -> bool:
        same_batch = state.in_flight and state.begun == self._begun
        return same_batch and _count_files(self._target) > self._files_at_begin


def _count_files(target: Stream) -> int:
    """Count the files below the target outside the sink's log, hidden ones too; on HDFS also those in the log."""
    if not isinstance(target.output, Path):
        return target.output.count_files()
    log = str(target.log)
    return sum(len(names) for where, _, names in os.walk(target.output) if not where.startswith(log))
