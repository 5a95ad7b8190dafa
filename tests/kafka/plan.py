"""The kills, drawn from a seed: each victim, the moment of a batch, and the time."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.demos.files.kill import LONGEST_DELAY_S, Moment, Victim

__all__ = ("Blow", "plan_blows")

BLOWS = (
    (Victim.PYTHON, Moment.WRITING),
    (Victim.DRIVER, Moment.WINDOW),
    (Victim.BROKER, Moment.WRITING),
    (Victim.WORKER, Moment.WRITING),
    (Victim.BROKER_AND_DRIVER, Moment.WRITING),
    (Victim.EXECUTOR, Moment.WRITING),
    (Victim.DRIVER, Moment.WRITING),
)
# In addition to one kill of an executor.
QUICK = ((Victim.BROKER, Moment.WRITING), (Victim.DRIVER, Moment.WINDOW))
QUICK_EXECUTORS = (Victim.PYTHON, Victim.EXECUTOR, Victim.WORKER)


@dataclass(frozen=True, slots=True)
class Blow:
    """One planned kill: in this moment of a batch, after this number of sent rows and an extra delay."""

    victim: Victim
    moment: Moment
    after_rows: int
    delay_s: float


def plan_blows(seed: int, rows: int, *, quick: bool) -> tuple[Blow, ...]:
    """Draw the order of the kills and spread them over the rows."""
    drawn = random.Random(seed)
    blows = [*QUICK, (drawn.choice(QUICK_EXECUTORS), Moment.WRITING)] if quick else [*BLOWS]
    drawn.shuffle(blows)
    step = rows / (len(blows) + 1)
    return tuple(
        Blow(
            victim,
            moment,
            round(step * (index + 0.6 + drawn.uniform(-0.2, 0.2))),
            drawn.uniform(0.0, LONGEST_DELAY_S) if moment is Moment.WRITING else 0.0,
        )
        for index, (victim, moment) in enumerate(blows)
    )
