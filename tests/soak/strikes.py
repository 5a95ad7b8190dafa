"""The strikes of a round: which process is killed or stopped, and the moment, all drawn from the seed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.demos.files.sinks import NOTHING, batches_in
from tests.soak.place import DIRECTORIES, After
from tests.soak.records import Records

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.demos.files.hdfs_path import HdfsPath
    from tests.soak.place import Place

__all__ = ("Approach", "Strike", "draw_strikes", "victims_of")

MOMENTS = ("any", "batch", "commit")
LONGEST_PAUSE_S = 10.0
LONGEST_IN_BATCH_S = 1.5
LONGEST_AFTER_RECORD_S = 0.03
LONGEST_STOP_S = 8.0
LONGEST_OUTAGE_S = 12.0


@dataclass(frozen=True, slots=True)
class Strike:
    """One planned strike.

    Attributes:
        victim: a role in the application, or a server.
        is_kill: SIGKILL; otherwise SIGSTOP.
        moment: `any`, `batch` (after a batch has begun) or `commit` (after the sink has recorded a batch).
        query: whose batch is awaited.
        delay: of the moment, as a fraction.
        seconds: until a stopped process resumes, a killed server starts, or the remaining processes of a killed driver
            are killed.
        pick: draws one of several processes.
        after: what the application does after the victim was killed.
    """

    victim: str
    is_kill: bool
    moment: str
    query: str
    delay: float
    seconds: float
    pick: float
    after: After

    @property
    def ends_application(self) -> bool:
        """True if the application must be started again."""
        return self.is_kill and self.after is not After.CONTINUES

    @property
    def title(self) -> str:
        """The kind, by which strikes are counted."""
        return f"{'kill' if self.is_kill else 'stop'} {self.victim.rstrip('0123456789')}"


def draw_strikes(drawn: random.Random, count: int, place: Place) -> list[Strike]:
    """Draw the strikes of a round.

    Args:
        drawn: draws them.
        count: number of strikes.
        place: with its servers and victims.
    """
    strikes = []
    for _ in range(count):
        is_server = bool(place.servers) and drawn.random() < place.server_share
        victim = drawn.choice([*place.servers]) if is_server else drawn.choice([*place.victims])
        is_kill = drawn.random() < 0.75
        longest_s = LONGEST_OUTAGE_S if is_server and is_kill else LONGEST_STOP_S if not is_kill else 2.0
        strikes.append(
            Strike(
                victim=victim,
                is_kill=is_kill,
                moment=drawn.choices(MOMENTS, (1, 4, 4))[0],
                query=drawn.choice(DIRECTORIES),
                delay=drawn.random(),
                seconds=drawn.uniform(0.0, longest_s),
                pick=drawn.random(),
                after=place.victims.get(victim, After.CONTINUES),
            )
        )
    return strikes


def victims_of(roles: Mapping[str, Sequence[int]], strike: Strike) -> list[int]:
    """Return the processes of an application that a strike hits.

    Args:
        roles: the processes of the application by role.
        strike: with a role, `all` and a role in the plural, or `application` as the victim.
    """
    if strike.victim == "application":
        return [number for numbers in roles.values() for number in numbers]
    if strike.victim.startswith("all "):
        return [*roles[strike.victim.removeprefix("all ").removesuffix("s")]]
    found = sorted(roles[strike.victim])
    return [found[int(strike.pick * len(found))]] if found else []


class Approach:
    """Detects the moment of a strike by the directories of the awaited query, without calls that can block for long.

    Args:
        strike: the next strike.
        checkpoint: of its query.
        log: of its sink.
        patience_s: after this time without the moment, it has come.
    """

    def __init__(self, strike: Strike, checkpoint: Path, log: Path | HdfsPath, patience_s: float) -> None:
        self._strike = strike
        self._checkpoint = checkpoint
        self._records = Records(log)
        self._began_s = time.monotonic()
        self._patience_s = patience_s
        self._due_s: float | None = None
        self._batch = self._newest_batch()
        self._record: str | None = None
        self._seen = False
        if strike.moment == "any":
            self._due_s = self._began_s + strike.delay * LONGEST_PAUSE_S

    def has_come(self) -> bool:
        """Return True if it is time to strike."""
        now_s = time.monotonic()
        if now_s > self._began_s + self._patience_s:
            return True
        if self._due_s is None:
            self._look(now_s)
        return self._due_s is not None and now_s >= self._due_s

    def _look(self, now_s: float) -> None:
        delay = self._strike.delay
        if not self._seen:
            self._seen = self._newest_batch() != self._batch
            if self._seen and self._strike.moment == "batch":
                self._due_s = now_s + delay * LONGEST_IN_BATCH_S
            return
        newest = self._records.newest()
        if self._record is None:
            self._record = newest
        elif newest != self._record and newest is not None:
            self._due_s = now_s + delay * LONGEST_AFTER_RECORD_S

    def _newest_batch(self) -> int:
        return max(batches_in(self._checkpoint / "offsets"), default=NOTHING)
