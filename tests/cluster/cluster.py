"""A Spark standalone cluster: a master and workers in separate processes, which can be killed and restarted."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyspark
from pyspark import SparkContext

from tests.archives import spark_class_path
from tests.demos.files.process import session_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import SparkSession

T = TypeVar("T")

__all__ = (
    "ENDS_WITH_PARENT",
    "EXECUTOR",
    "PYTHON_PROCESS",
    "PYTHON_WORKER",
    "SPARK_HOME",
    "SPECULATION",
    "Cluster",
    "command_of",
    "end_session",
    "executor_of",
    "java_processes",
    "kill",
    "send",
    "wait_for",
)

SPARK_HOME = Path(pyspark.__file__).parent
# Long enough for events on a slow machine: it only ends tests that would wait for ever.
PATIENCE_S = 600.0
# A long timeout, so that a worker without processor time is not lost.
JAVA = ["java", "-Xmx192m", "-Dspark.master.rest.enabled=false", "-Dspark.worker.timeout=600"]
# A shell that kills its process group when our end of its standard input closes, however this process ends.
ENDS_WITH_US = ["sh", "-c", '"$@" & cat; kill -KILL 0', "sh"]
# A shell that runs its command, and kills it when our end of the standard input closes. Its exit code is the command's.
ENDS_WITH_PARENT = ["sh", "-c", 'exec 3<&0; { cat <&3; kill -KILL 0; } & "$@" 3<&-', "sh"]
# Marks of Spark's processes in their command lines.
EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON_WORKER = "pyspark.daemon"
PYTHON_PROCESS = " -m pyspark."
# A slow task gets another attempt as soon as one task has ended.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}


def wait_for(found: Callable[[], T | None], what: str, timeout_s: float = PATIENCE_S) -> T:
    """Wait until `found` returns a true value, and return the value.

    Raises:
        TimeoutError: the time is over.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (thing := found()):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{timeout_s} s were not enough for: {what}")
        time.sleep(0.02)
    return thing


class Daemon:
    """A master, or a worker with its executors: the processes of one session."""

    def __init__(self, home: Path, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        self._log = home / f"{name}.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*ENDS_WITH_US, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=home,
                env=environment,
                start_new_session=True,
            )

    def wait_for_line(self, pattern: str) -> str:
        """Return the first group of a pattern in the log."""

        def said() -> str | None:
            found = re.search(pattern, self._log.read_text())
            return found[1] if found else None

        try:
            return wait_for(said, f"{pattern!r} in a log")
        except TimeoutError as error:
            raise AssertionError(f"{error}:\n{self._log.read_text()}") from error

    def members(self, kind: str) -> list[int]:
        """Return the processes with `kind` in their command line."""
        return [process for process in session_members(self._process.pid) if kind in command_of(process)]

    def kill(self) -> None:
        """SIGKILL all processes and wait until they have ended; repeatable."""
        while members := session_members(self._process.pid):
            for member in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            time.sleep(0.01)
        self._process.communicate()


class Cluster:
    """A master and workers of one core each, on free ports of the loopback interface.

    Args:
        home: of logs and work directories.
        environment: of all processes; a worker's executors inherit it.
    """

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.home = home
        spark = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
        self._environment = {**environment, **spark}
        self._master = self._start("master", "master.Master", [], {})
        self.workers: dict[str, Daemon] = {}
        self.url = ""

    def wait(self) -> None:
        """Wait until the master accepts connections."""
        self.url = self._master.wait_for_line(r"Starting Spark master at (\S+)")

    def start_worker(self, name: str, *, wait: bool = True, **environment: str) -> None:
        """Start a worker, also after it was killed, and wait until it is registered with the master."""
        more = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.home / f"work-{name}"), self.url]
        self.workers[name] = self._start(name, "worker.Worker", more, environment)
        if wait:
            self.wait_for_worker(name)

    def wait_for_worker(self, name: str) -> None:
        """Wait until a worker is registered with the master."""
        self.workers[name].wait_for_line(r"(Successfully registered) with master")

    def executors(self) -> list[int]:
        """Return the JVMs of all executors."""
        return [process for worker in self.workers.values() for process in java_processes(worker.members(EXECUTOR))]

    def python_processes(self) -> list[int]:
        """Return the Python processes of all executors."""
        return [process for worker in self.workers.values() for process in worker.members(PYTHON_WORKER)]

    def python_workers(self, executor: int) -> list[int]:
        """Return the Python processes that run tasks in an executor, without the daemon that forks them."""
        found = self.python_processes()
        forked = [process for process in found if PYTHON_WORKER in command_of(parent_of(process))]
        return [process for process in forked if executor_of(process) == executor]

    def stop(self) -> None:
        """Kill every process."""
        for daemon in (*self.workers.values(), self._master):
            daemon.kill()

    def _start(self, name: str, kind: str, more: list[str], environment: Mapping[str, str]) -> Daemon:
        bound = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        command = [*JAVA, "-cp", spark_class_path(), f"org.apache.spark.deploy.{kind}", *bound, *more]
        return Daemon(self.home, name, command, {**self._environment, **environment})


def end_session(session: SparkSession) -> None:
    """Stop a session and its JVM, so that the next session of this process gets a new directory and environment."""
    gateway = SparkContext._gateway  # noqa: SLF001 - keeps running when a session stops
    session.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def kill(*processes: int) -> None:
    """SIGKILL processes and wait until they have ended."""
    assert processes
    send(signal.SIGKILL, processes)
    wait_for(lambda: not any(map(command_of, processes)), "the end of the killed processes")


def send(number: signal.Signals, processes: Iterable[int]) -> None:
    """Send a signal to the processes that live."""
    for process in processes:
        # Python workers of a killed executor may already have ended.
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def command_of(process: int) -> str:
    """Return a process's command line; empty if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def java_processes(processes: Iterable[int]) -> list[int]:
    """Return the processes that are JVMs."""
    return [process for process in processes if command_of(process).split(" ")[0].endswith("/java")]


def parent_of(process: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def processes_below(process: int) -> list[int]:
    """Return the processes that descend from a process."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children.setdefault(parent_of(int(path.name)), []).append(int(path.name))
    below: list[int] = []
    waiting = [process]
    while waiting:
        forked = children.get(waiting.pop(), [])
        below += forked
        waiting += forked
    return below


def executor_of(process: int) -> int:
    """Return the executor that a Python worker belongs to."""
    while EXECUTOR not in command_of(process):
        process = parent_of(process)
    return process
