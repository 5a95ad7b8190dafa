"""The progress of the soak in one file, so that an interrupted run continues; and the processes that it left behind."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ("VARIABLE", "Progress", "RoundPlan", "State", "end_left_processes", "lock")

# In the environment of every process that a soak starts: the directory of the soak.
VARIABLE = "FTFILE_SOAK"


@dataclass(kw_only=True)
class RoundPlan:
    """The round that has begun and not ended: its place, its input, and the strikes and batches so far."""

    number: int
    place: str
    counts: list[int]
    tries: int = 0
    strikes: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    batches: int = 0


@dataclass(kw_only=True)
class State:
    """The checked state of a place: its input, its rows, and the published files of each directory."""

    files: int = 0
    rows: int = 0
    published: dict[str, list[str]] = field(default_factory=lambda: {"rows": [], "followed": []})


@dataclass(kw_only=True)
class Progress:
    """The progress: rounds that have ended, the round that has not, the state of each place, and the seed."""

    rounds: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, State] = field(default_factory=dict)
    underway: RoundPlan | None = None
    seed: int = 1

    @classmethod
    def read(cls, path: Path) -> Progress:
        """Return the progress of the former run; empty if there is none."""
        try:
            read = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        underway = RoundPlan(**read["underway"]) if read["underway"] else None
        places = {name: State(**state) for name, state in read["places"].items()}
        return cls(rounds=read["rounds"], places=places, underway=underway, seed=read.get("seed", 1))

    def write(self, path: Path) -> None:
        """Replace the file, by a rename. It has one line for each round."""
        places = {name: asdict(state) for name, state in self.places.items()}
        underway = asdict(self.underway) if self.underway else None
        rounds = ",\n".join(json.dumps(each) for each in self.rounds)
        text = (
            f'{{"seed": {self.seed}, "underway": {json.dumps(underway)},\n'
            f'"places": {json.dumps(places)},\n"rounds": [\n{rounds}\n]}}\n'
        )
        written = path.with_suffix(".new")
        with written.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        written.rename(path)

    def state(self, place: str) -> State:
        """Return the state of a place."""
        return self.places.setdefault(place, State())

    def strikes(self) -> Counter[str]:
        """Return the number of strikes by kind, in all rounds."""
        counts: Counter[str] = Counter()
        for each in self.rounds:
            counts.update(each["strikes"])
        return counts

    def kills(self) -> int:
        """Return the number of kills in all rounds."""
        return sum(count for kind, count in self.strikes().items() if kind.startswith("kill "))

    def rows(self, places: Collection[str]) -> int:
        """Return the number of rows in all rounds at these places."""
        return sum(each["rows"] for each in self.rounds if each["place"] in places)


def lock(home: Path) -> int | None:
    """Return the descriptor of the lock of a soak's directory; None if another soak has it."""
    descriptor = os.open(home / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def end_left_processes(home: Path) -> int:
    """SIGKILL the processes that a former soak in this directory has started, and return their number.

    They have the directory in their environment. Call it with the lock.
    """
    mark = f"{VARIABLE}={home}".encode()
    ended: set[int] = set()
    while found := [number for number in _own_processes() if _has(number, mark)]:
        for number in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        ended.update(found)
    return len(ended)


def _own_processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and int(each.name) != os.getpid()]


def _has(number: int, mark: bytes) -> bool:
    """Return True if a living process has a variable in its environment. A zombie has no environment."""
    try:
        return mark in Path("/proc", str(number), "environ").read_bytes().split(b"\0")
    except OSError:
        return False
