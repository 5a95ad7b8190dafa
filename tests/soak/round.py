"""One round: an application that processes new input while its processes and servers are struck, and the check."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import ftfile
from ftfile import kv
from tests import quick_python
from tests.demos.files.process import own_environment
from tests.demos.files.restarts import STALL_TIMEOUT_S
from tests.soak.bugs import find_bugs
from tests.soak.check import check_rows, check_words, fetch, list_published
from tests.soak.measure import Sampler
from tests.soak.place import DIRECTORIES, After
from tests.soak.processes import send
from tests.soak.rows import write_input
from tests.soak.strikes import Approach, Strike, draw_strikes, victims_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.demos.files.process import SessionApp
    from tests.demos.files.report import Console
    from tests.soak.place import Place
    from tests.soak.progress import RoundPlan, State

__all__ = (
    "Round",
    "RoundCut",
    "RoundFailed",
    "check_place",
    "check_round",
    "draw_counts",
    "find_inexcusable",
    "plan_input",
)

POLL_S = 0.004
WATCH_S = 1.0
# Share of the rounds that end with a vacuum. The other rounds leave segments and records for longer.
VACUUMED = 0.5
ROWS, FOLLOWED = "rows", "followed"
APPLICATION_LOG = "application.log"
# Errors of ftfile that no kill excuses: the directory, the log or the checkpoint is wrong.
NEVER_EXCUSED = (
    *("AnotherLog", "BatchGap", "ChangedRows", "ConfigError", "CorruptData", "EncodingError", "FileChanged"),
    *("HistoryGone", "InvalidMessages", "InvariantViolation", "MissingPart", "NameCollision", "ReplayMismatch"),
    *("RolledBack", "SchemaError", "StateLost", "UnknownQuery", "WindowOrder"),
)


class RoundCut(Exception):
    """The time of the run is over, and the round has not ended."""


class RoundFailed(Exception):
    """A check failed, or the application failed for another reason than a strike. The text contains the reason."""


def draw_counts(seed: int, number: int, place: type[Place]) -> list[int]:
    """Draw the number of rows of each input file of a round."""
    drawn = random.Random(f"{seed}, round {number}")
    return [drawn.randint(*place.size.rows) for _ in range(drawn.randint(*place.size.files))]


def plan_input(place: Place, state: State, counts: list[int]) -> None:
    """Write the input of a round; idempotent."""
    write_input(place.home / "input", state.files, state.rows, counts)
    place.feed()


class Round:
    """One round at a started place.

    Args:
        place: where.
        plan: of the round; the strikes and the seconds are added.
        drawn: draws the strikes.
        measured: CSV file of resources.
        console: shows the progress.
        save: writes the plan, after each strike.
    """

    def __init__(
        self,
        place: Place,
        plan: RoundPlan,
        drawn: random.Random,
        measured: Path,
        console: Console,
        save: Callable[[], None],
    ) -> None:
        self._place = place
        self._plan = plan
        self._drawn = drawn
        self._measured = measured
        self._console = console
        self._save = save
        self._due: list[tuple[float, Callable[[], object]]] = []
        self._strikes = draw_strikes(drawn, drawn.randint(*place.size.strikes), place)
        self._counts = Counter(plan.strikes)
        self._options = {
            "maxBatchesPerFile": drawn.randint(3, 40),
            "maxRecordsPerFile": drawn.randint(20_000, 200_000),
        }
        self._vacuums_at_end = drawn.random() < VACUUMED
        self._moved_s = time.monotonic()
        self._state: object = None
        self._life = 0
        self._end_s = float("inf")
        self._failures_before = len(self._failure_lines())
        log = place.home / APPLICATION_LOG
        self._judged_bytes = log.stat().st_size if log.exists() else 0

    def run(self, end_s: float) -> None:
        """Run the application until all input is processed, and restart it after each end.

        Args:
            end_s: monotonic time after which the round is cut.

        Raises:
            RoundCut: it has not ended before that time.
            RoundFailed: it failed for another reason than a strike, or stopped making progress.
        """
        began_s = time.monotonic()
        self._end_s = end_s
        try:
            while not self._live():
                pass
            self._place.settle()
        finally:
            for _, action in self._due:
                action()
            self._due.clear()
            self._plan.strikes = dict(self._counts)
            self._plan.seconds += time.monotonic() - began_s
        if self.failures and not self._counts:
            raise RoundFailed(f"a query failed without a strike: {self._failure_lines()[-1][:1500]}")

    def _live(self) -> bool:
        """Run the application once; return True if it has processed all input."""
        app = self._begin()
        has_ended = False
        try:
            with Sampler(self._measured, self._place, self._plan.number, app) as sampler:
                try:
                    is_struck = self._accompany(app)
                finally:
                    self._plan.batches += sampler.count()
            has_ended = not is_struck
            self._judge_failures()
            self._judge_output()
            if has_ended and app.exit_code != 0 and not self._counts:
                raise RoundFailed(f"the application failed (exit code {app.exit_code})\n{app.last_words()}")
            return has_ended and app.exit_code == 0
        finally:
            if has_ended or not self._strikes_are_due(app):
                app.kill()

    def _strikes_are_due(self, app: SessionApp) -> bool:
        """Return True if the remaining processes of a killed driver are to be killed later."""
        return any(getattr(action, "__self__", None) is app for _, action in self._due)

    def _begin(self) -> SessionApp:
        home = self._place.home
        self._life += 1
        scratch = home / "scratch"
        if not self._due:
            shutil.rmtree(scratch, ignore_errors=True)
        own = scratch / f"{self._plan.number}-{self._plan.tries}-{self._life}"
        (own / "scratch").mkdir(parents=True)
        argument = own / "job.json"
        words = {
            **{name: self._place.url(name) for name in DIRECTORIES},
            "input": str(home / "input"),
            "checkpoints": {name: str(self._place.checkpoint(name)) for name in DIRECTORIES},
            "dumped": str(home / "dumped"),
            "failures": str(home / "failures.jsonl"),
            "scratch": str(own / "scratch"),
            "files_per_trigger": 1 if self._place.is_one_life else self._drawn.randint(1, 3),
            "options": self._options,
            "master": self._place.master,
            "settings": dict(self._place.settings),
            "storage": dict(self._place.storage),
            "kafka": dict(self._place.kafka),
            "vacuum_interval_s": self._place.vacuum_interval_s,
            "vacuums_at_end": self._vacuums_at_end,
        }
        argument.write_text(json.dumps(words), encoding="utf-8")
        environment = {**own_environment(own), **self._place.environment}
        if self._place.is_plain:
            environment[quick_python.VARIABLE] = "no process"
        return self._place.start_application(argument, home / APPLICATION_LOG, environment)

    def _accompany(self, app: SessionApp) -> bool:
        """Strike until the application has ended; return True if a strike ended it."""
        approach = self._approach()
        watched_s = 0.0
        while app.exit_code is None:
            now_s = time.monotonic()
            self._do_due(now_s)
            if approach is not None and approach.has_come():
                strike = self._strikes.pop(0)
                self._hit(app, strike)
                if strike.ends_application:
                    return True
                approach = self._approach()
            if now_s - watched_s > WATCH_S:
                watched_s = now_s
                self._watch(app, now_s)
            time.sleep(POLL_S)
        for _, action in self._due:
            action()
        self._due.clear()
        return False

    def _approach(self) -> Approach | None:
        if not self._strikes:
            return None
        strike = self._strikes[0]
        place = self._place
        return Approach(strike, place.checkpoint(strike.query), place.log(strike.query), place.patience_s)

    def _hit(self, app: SessionApp, strike: Strike) -> None:
        is_server = strike.victim in self._place.servers
        victims = [] if is_server else victims_of(self._place.roles(app), strike)
        if not is_server and not victims:
            return  # no such process at this moment
        self._counts[strike.title] += 1
        self._plan.strikes = dict(self._counts)
        self._save()
        after_s = time.monotonic() + strike.seconds
        if is_server:
            server = self._place.servers[strike.victim]
            strike_server, revive = (server.kill, server.start) if strike.is_kill else (server.freeze, server.thaw)
            strike_server()
            self._due.append((after_s, revive))
        elif not strike.is_kill:
            send(victims, signal.SIGSTOP)
            self._due.append((after_s, lambda: send(victims, signal.SIGCONT)))
        else:
            send(victims, signal.SIGKILL)
            if strike.after is After.OVERLAPS:
                self._due.append((after_s, app.kill))
            elif strike.after is After.PAUSES:
                time.sleep(strike.seconds)
        self._console.progress(f"{strike.title} ({strike.moment} of {strike.query})")

    def _do_due(self, now_s: float) -> None:
        for each in [*self._due]:
            if each[0] <= now_s:
                self._due.remove(each)
                each[1]()

    def _watch(self, app: SessionApp, now_s: float) -> None:
        """Check that a checkpoint moves.

        Raises:
            RoundCut: the time is over.
            RoundFailed: no checkpoint has moved for a long time, or an error cannot follow from a strike.
        """
        if now_s > self._end_s:
            raise RoundCut
        logs = [self._place.checkpoint(name) / kind for name in DIRECTORIES for kind in ("offsets", "commits")]
        state = [(log.stat().st_mtime_ns if log.exists() else 0) for log in logs]
        if state != self._state:
            self._state, self._moved_s = state, now_s
        elif now_s - self._moved_s > STALL_TIMEOUT_S:
            raise RoundFailed(f"no query has moved for {STALL_TIMEOUT_S:.0f} s\n{app.last_words()}")
        self._judge_failures()

    def _judge_failures(self) -> None:
        """Check the failures of queries in this round.

        Raises:
            RoundFailed: an error cannot follow from a strike.
        """
        if fault := find_inexcusable(self._failure_lines()[self._failures_before :]):
            raise RoundFailed(fault)

    def _judge_output(self) -> None:
        """Check the output of the application since the last call: no query fails if Spark repeats a failed task.

        Raises:
            RoundFailed: it contains an error of Python itself.
        """
        path = self._place.home / APPLICATION_LOG
        output = path.read_bytes()[self._judged_bytes :] if path.exists() else b""
        self._judged_bytes += len(output)
        if bugs := find_bugs(output.decode(errors="replace")):
            raise RoundFailed(f"an error of Python itself: {bugs[0]}")

    @property
    def failures(self) -> int:
        """The number of failures of queries in this round since it was started or resumed."""
        return len(self._failure_lines()) - self._failures_before

    def _failure_lines(self) -> list[str]:
        path = self._place.home / "failures.jsonl"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def find_inexcusable(lines: Sequence[str]) -> str:
    """Return the description of a failure that cannot follow from a strike; empty if there is none.

    Args:
        lines: failures of queries, as the application writes them.
    """
    for line in lines:
        for name in NEVER_EXCUSED:
            if f"errors.{name}" in line:
                return f"a query failed with {name}: {json.loads(line)['error'][:1500]}"
        try:
            bugs = json.loads(line).get("bugs")
        except ValueError:
            continue  # the application is writing the line, or was killed meanwhile
        if bugs:
            return f"a query failed with an error of Python itself: {bugs[0]}"
    return ""


def check_round(place: Place, state: State, plan: RoundPlan) -> tuple[list[str], State]:
    """Compare the new files and the words with the expected rows.

    Returns:
        The faults, and the state of the place after the round.
    """
    end = state.rows + sum(plan.counts)
    after = type(state)(files=state.files + len(plan.counts), rows=end)
    faults = []
    for name in (ROWS, FOLLOWED):
        directory = place.directory(name)
        published = list_published(directory, state.published[name])
        faults += [f"{name}: {each} is missing" for each in published.gone]
        files = fetch(directory, published.new, place.home / "copies" / name)
        faults += [f"{name}: {fault}" for fault in check_rows(files, state.rows, end)]
        after.published[name] = [*state.published[name], *published.new]
    faults += [f"words: {fault}" for fault in check_words(f"{place.home}/dumped/*.parquet", end)]
    return faults, after


def check_place(place: Place, state: State) -> list[str]:
    """Return the faults of all files of a place: rows of all rounds, words, and the checks of ftfile."""
    faults = []
    for name in (ROWS, FOLLOWED):
        directory = place.directory(name)
        files = fetch(directory, list_published(directory).new, place.home / "copies" / name)
        faults += [f"{name}: {fault}" for fault in check_rows(files, 0, state.rows)]
    faults += [f"words: {fault}" for fault in check_words(f"{place.home}/dumped/*.parquet", state.rows)]
    for name in DIRECTORIES:
        report = ftfile.verify(place.url(name), full=True, storage=place.storage)
        faults += [f"{name}: {finding}" for finding in report.findings if finding.severity in {"error", "warning"}]
    faults += [f"words: {run}" for run in kv.verify(place.url("words"), storage=place.storage).damaged]
    return faults
