"""A Spark application in a separate session, which can be frozen, inspected and killed as a whole."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tests import quick_python, quick_spark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = (
    "Application",
    "ProcessEntry",
    "SessionApp",
    "SparkApp",
    "list_processes",
    "own_environment",
    "session_members",
)

ROOT = Path(__file__).parents[3]
LAST_WORDS_LINES = 25
END_TIMEOUT_S = 600.0
# Resumes processes at the end of its input, which has a line only if they are no longer stopped.
WAKER = 'trap "" INT TERM HUP; read -r line || kill -CONT "$@" 2>/dev/null'


class ProcessEntry(NamedTuple):
    """One process: its id, the letter of its state (``Z``: a zombie, ``T``: stopped) and its parent's id."""

    number: int
    state: str
    parent: int


class Application(Protocol):
    """A run of a Spark application, whose processes can be frozen, and killed."""

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the application runs."""

    def freeze(self) -> int:
        """Stop every process at once, and return their number."""

    def thaw(self) -> None:
        """Resume a frozen application."""

    def kill(self) -> None:
        """SIGKILL the application; repeatable."""

    def last_words(self) -> str:
        """Return the end of the output."""


class SessionApp:
    """One run of a command in a separate session: its process, its JVM and its Python workers.

    Spark's Python workers leave the process group of the JVM but not its session, so the session is killed.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        """Start ``command``. Its output is appended to ``log``. Our end of its standard input stays open."""
        self.log = log
        self._ended = False
        self._waker: subprocess.Popen[bytes] | None = None
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def session(self) -> int:
        """The id of the session, which is the process id of the command."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command; None while it runs."""
        return self._process.poll()

    def freeze(self) -> int:
        """Stop every process of the application at once, and return their number.

        If our process ends before it resumes them, they are resumed. They then end with their standard input.
        """
        # The group is stopped first, in one call, because it contains the JVM.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGSTOP)
        members = session_members(self._process.pid)
        for member in members:
            _signal(member, signal.SIGSTOP)
        self._end_waker()
        self._waker = subprocess.Popen(
            ["/bin/sh", "-c", WAKER, "sh", *map(str, members)], stdin=subprocess.PIPE, start_new_session=True
        )
        return len(members)

    def thaw(self) -> None:
        """Resume a frozen application."""
        for member in session_members(self._process.pid):
            _signal(member, signal.SIGCONT)
        self._end_waker()

    def kill(self) -> None:
        """SIGKILL every process of the application and wait until all have ended; repeatable.

        Raises:
            TimeoutError: a process survived its SIGKILL.
        """
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while not self._ended:
            members = session_members(self._process.pid)
            for member in members:
                _signal(member, signal.SIGKILL)
            # After the command is reaped and its session is empty, the system may reuse the id.
            self._ended = not members and self._process.poll() is not None
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"processes of session {self._process.pid} are still there after SIGKILL")
            time.sleep(0.01)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._end_waker()

    def last_words(self) -> str:
        """Return the last lines of the application's output."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LAST_WORDS_LINES:])

    def _end_waker(self) -> None:
        if self._waker is not None:
            self._waker.communicate(b"awake\n")
            self._waker = None


class SparkApp(SessionApp):
    """One run of a Spark application in a separate session: the script, its JVM and its Python workers."""

    def __init__(self, script: Path, argument: Path, log: Path, environment: Mapping[str, str]) -> None:
        """Start ``script`` with one argument. Its output is appended to ``log``."""
        super().__init__([sys.executable, str(script), str(argument)], log, environment)


def own_environment(home: Path) -> dict[str, str]:
    """Return our environment, with this interpreter's Spark, this interpreter for its workers, and our modules."""
    foreign = {"SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", quick_python.VARIABLE}
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    environment |= quick_spark.environment()
    # The application runs in another directory, so relative paths of ours must become absolute.
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in [*entries, str(ROOT)])
    environment["PYSPARK_PYTHON"] = environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environment["TMPDIR"] = str(home / "scratch")
    return environment


def session_members(session: int) -> tuple[int, ...]:
    """Return the living processes of a session, without zombies."""
    members = []
    for process in list_processes():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.state != "Z" and os.getsid(process.number) == session:
                members.append(process.number)
    return tuple(members)


def list_processes() -> list[ProcessEntry]:
    """Return all processes, from ``/proc`` or, if it is missing, from ``ps``."""
    root = Path("/proc")
    if not (root / "self" / "stat").exists():
        command = ["ps", "-axo", "pid=,stat=,ppid="]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [_entry(*line.split()) for line in listed.splitlines()]
    found = []
    for directory in root.iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may contain any character: the state and the parent follow the last
                # parenthesis.
                state, parent = (directory / "stat").read_text().rpartition(")")[2].split()[:2]
                found.append(_entry(directory.name, state, parent))
    return found


def _entry(number: str, state: str, parent: str) -> ProcessEntry:
    return ProcessEntry(int(number), state[0], int(parent))


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
