"""The command ``python -m tests.soak``: rounds at drawn places until there are enough kills and rows.

`python -m tests.soak table` prints the resources of the longest life at each place. `--check PLACE` repeats the check
of the round that has not ended, or of the whole place. All data is below `.soak`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demos.files.report import Console
from tests.guarded import CannotStart, java
from tests.soak.measure import table
from tests.soak.places import PLACES
from tests.soak.progress import VARIABLE, Progress, RoundPlan, end_left_processes, lock
from tests.soak.round import Round, RoundCut, RoundFailed, check_place, check_round, draw_counts, plan_input

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from tests.soak.place import Place

__all__ = ()

HOME = Path(__file__).parents[2] / ".soak"
DONE, FAILED, CANNOT_RUN, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak and return the exit code: 0 right, 1 a check failed, 2 could not run, 130 interrupted."""
    words = _parse(arguments)
    console = Console(sys.stdout)
    if words.what == "table":
        measured = HOME / "measured.csv"
        console.line(table(measured) if measured.exists() else "nothing is measured yet")
        return DONE
    HOME.mkdir(exist_ok=True)
    if lock(HOME) is None:
        console.line(f"soak: another soak runs in {HOME}")
        return CANNOT_RUN
    # Also SIGINT: a process that a shell starts in the background ignores it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    if ended := end_left_processes(HOME):
        console.line(f"ended {ended} processes of the former run")
    os.environ[VARIABLE] = str(HOME)
    soak = _Soak(words, console)
    try:
        java()
        return soak.check(words.check) if words.check else soak.run()
    except CannotStart as error:
        console.line(f"soak: {error}")
        return CANNOT_RUN
    except KeyboardInterrupt:
        console.line("interrupted; every process has ended, and the next run continues")
        return INTERRUPTED
    finally:
        soak.stop()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=main.__doc__)
    parser.add_argument("what", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("--kills", type=int, default=1_000, help="number of kills in all (default: 1,000)")
    parser.add_argument("--rows", type=int, default=10_000_000, help="number of rows in all (default: 10,000,000)")
    parser.add_argument(
        "--seed", type=int, help="draws the places, the input and the strikes (default: of the former run, or 1)"
    )
    parser.add_argument("--places", default=",".join(PLACES), help=f"of {', '.join(PLACES)} (default: all)")
    parser.add_argument("--minutes", type=float, help="begin no round after this time, and end a round without strikes")
    parser.add_argument("--check", choices=[*PLACES], help="only check this place")
    words = parser.parse_args(arguments)
    words.places = words.places.split(",")
    if unknown := set(words.places).difference(PLACES):
        parser.error(f"no such place: {', '.join(unknown)}")
    return words


class _Soak:
    """All rounds, with their progress.

    Args:
        words: of the command line.
        console: shows the progress.
    """

    def __init__(self, words: argparse.Namespace, console: Console) -> None:
        self._words = words
        self._console = console
        self._path = HOME / "progress.json"
        self._progress = Progress.read(self._path)
        if words.seed is not None:
            self._progress.seed = words.seed
        self._end_s = time.monotonic() + 60 * words.minutes if words.minutes else float("inf")
        self._places: dict[str, Place] = {}
        self._skipped: set[str] = set()

    def run(self) -> int:
        """Run rounds until there are enough, and check each place at the end."""
        while time.monotonic() < self._end_s:
            plan = self._progress.underway or self._next_plan()
            if plan is None:
                break
            place = self._start(plan.place)
            if place is None:
                self._progress.underway = None
                continue
            if not self._play(place, plan):
                return FAILED
        return self._end()

    def check(self, name: str) -> int:
        """Repeat the check of the round that has not ended at this place, or check the whole place."""
        place = self._start(name)
        if place is None:
            return CANNOT_RUN
        plan, state = self._progress.underway, self._progress.state(name)
        if plan is not None and plan.place == name:
            return self._judge(check_round(place, state, plan)[0], name)
        return self._judge(check_place(place, state), name)

    def stop(self) -> None:
        """End the servers of all places."""
        for place in self._places.values():
            place.stop()

    def _next_plan(self) -> RoundPlan | None:
        """Return the next round; None if there are enough."""
        number = len(self._progress.rounds)
        names = [name for name in self._words.places if name not in self._skipped]
        struck = [name for name in names if PLACES[name].size.strikes[1]]
        has_enough = self._progress.kills() >= self._words.kills and self._rows() >= self._words.rows
        if struck and not has_enough:
            drawn = random.Random(f"{self._progress.seed}, place of round {number}")
            return self._plan(number, drawn.choice(struck))
        lived = {each["place"] for each in self._progress.rounds}
        quiet = [name for name in names if not PLACES[name].size.strikes[1] and name not in lived]
        return self._plan(number, quiet[0]) if quiet else None

    def _plan(self, number: int, name: str) -> RoundPlan:
        return RoundPlan(number=number, place=name, counts=draw_counts(self._progress.seed, number, PLACES[name]))

    def _start(self, name: str) -> Place | None:
        """Return the running place; None if it cannot run here."""
        if name in self._places:
            return self._places[name]
        home = HOME / name
        home.mkdir(exist_ok=True)
        place = PLACES[name](home)
        try:
            place.start()
        except CannotStart as error:
            self._console.line(f"skipped {name}: {str(error).splitlines()[0]}")
            self._skipped.add(name)
            return None
        self._places[name] = place
        return place

    def _play(self, place: Place, plan: RoundPlan) -> bool:
        """Play one round, check it, and write the progress; return True if it is right."""
        progress, state = self._progress, self._progress.state(place.name)
        if plan.tries and place.is_one_life:
            plan.counts += draw_counts(self._progress.seed, plan.number, type(place))
        plan.tries += 1
        progress.underway = plan
        self._save()
        plan_input(place, state, plan.counts)
        drawn = random.Random(f"{self._progress.seed}, strikes of round {plan.number}, try {plan.tries}")
        played = Round(place, plan, drawn, HOME / "measured.csv", self._console, self._save)
        try:
            played.run(self._end_s if place.is_one_life else float("inf"))
        except RoundCut:
            self._console.line(f"round {plan.number}, {place.name}, is cut; the next run begins it again")
            return True
        except RoundFailed as error:
            return self._judge([str(error)], place.name) == DONE
        finally:
            self._save()
        faults, after = check_round(place, state, plan)
        if self._judge(faults, place.name):
            return False
        rows = sum(plan.counts)
        ended = {"round": plan.number, "place": place.name, "strikes": plan.strikes, "batches": plan.batches}
        ended |= {"rows": rows, "seconds": round(plan.seconds, 1), "failures": played.failures}
        progress.rounds.append(ended)
        progress.places[place.name] = after
        progress.underway = None
        self._save()
        strikes = ", ".join(f"{kind} {count}" for kind, count in sorted(plan.strikes.items())) or "no strikes"
        self._console.line(
            f"round {plan.number}, {place.name}: {rows:,} rows, {plan.batches} batches, {plan.seconds:.0f} s; "
            f"{strikes}; {played.failures} failed queries; in all {progress.kills()} kills, {self._rows():,} rows"
        )
        return True

    def _rows(self) -> int:
        """Return the number of rows in all rounds with strikes."""
        return self._progress.rows([name for name, place in PLACES.items() if place.size.strikes[1]])

    def _save(self) -> None:
        self._progress.write(self._path)

    def _judge(self, faults: list[str], name: str) -> int:
        """Print the faults, and the command that repeats the check."""
        for fault in faults:
            self._console.line(f"WRONG: {name}: {fault}")
        if faults:
            self._console.line(
                f"the data is kept in {HOME / name}; repeat the check: python -m tests.soak --check {name}"
            )
        return FAILED if faults else DONE

    def _end(self) -> int:
        """Check each place as a whole, and print what was done."""
        code = DONE
        for name in self._words.places:
            state = self._progress.state(name)
            is_resting = self._progress.underway is None or self._progress.underway.place != name
            if state.rows and is_resting and (place := self._start(name)):
                self._console.progress(f"all files of {name} are checked")
                found = self._judge(check_place(place, state), name)
                if not found:
                    self._console.line(f"{name}: all {state.rows:,} rows and their words are there once, verified")
                code = code or found
        strikes = self._progress.strikes()
        for kind, count in sorted(strikes.items()):
            self._console.line(f"  {kind:24} {count:6}")
        seconds = sum(each["seconds"] for each in self._progress.rounds)
        batches = sum(each["batches"] for each in self._progress.rounds)
        self._console.line(
            f"{len(self._progress.rounds)} rounds, {self._progress.kills()} kills, {sum(strikes.values())} strikes, "
            f"{batches:,} batches, {self._rows():,} rows in {seconds:,.0f} s"
        )
        return code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
