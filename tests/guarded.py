"""Servers of tests, each a process of its own, with one temporary directory for their data and logs.

Each can be killed and started again, with the same data at the same address. Whatever becomes of the process that
started them, nothing is left: a guard waits for its end, kills the servers and removes the directory, unless it is a
directory of the caller.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demos.files.process import list_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

__all__ = ("JVM", "CannotStart", "Guarded", "free_ports", "java", "reserve_ports")

# Others may have the machine for minutes.
START_TIMEOUT_S = 600.0
POLL_S = 0.1
FIRST_PORT = 10_000
USUAL_FIRST_OF_CLIENTS = 32_768
# Sockets that are open as long as this process lives.
RESERVING: list[socket.socket] = []

# C1 alone: the servers live for seconds, and share the machine with what is tested.
JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")

# Each line it reads is the list of servers that run now; at the end of its input they have lost their owner. Processes
# of YARN's containers outlive their NodeManager: this variable of their environment names its directory.
GUARD = (
    'trap "" INT TERM HUP; while read -r line; do pids=$line; done; kill -9 $pids 2>/dev/null; '
    'while pids=$(grep -lasF "LOCAL_DIRS=$0/" /proc/[0-9]*/environ | cut -d/ -f3) && [ -n "$pids" ]; '
    'do kill -9 $pids 2>/dev/null; done; [ -n "$2" ] || rm -rf "$0"; '
    '[ -z "$1" ] || ip netns delete "$1" 2>/dev/null'
)


class CannotStart(Exception):
    """A server cannot be started here; the text says what to install or to do."""


class Guarded:
    """Processes by name; a `with` block ends them.

    Attributes:
        directory: with the servers' data and logs.

    Args:
        system: their common name, for errors.
        namespace: of the network, that is removed at the end.
        home: an existing directory for data and logs, which is kept at the end; by default a temporary directory.
    """

    def __init__(self, system: str, namespace: str = "", home: Path | None = None) -> None:
        self._system = system
        self._is_kept = home is not None
        self.directory = home or Path(tempfile.mkdtemp(prefix=f"ftfile-{system.lower()}-"))
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._frozen: set[str] = set()
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, str(self.directory), namespace, "kept" if home else ""],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def processes(self) -> dict[str, int]:
        """Return the process ids of the servers that run, by name."""
        return {name: server.pid for name, server in self._servers.items()}

    def freeze(self, name: str) -> None:
        """Stop a server where it stands: it takes connections, and answers nothing."""
        self._frozen.add(name)
        self._servers[name].send_signal(signal.SIGSTOP)
        # Until the signal has arrived it goes on answering.
        number = self._servers[name].pid
        self.wait_for("stop", lambda: any(each.number == number and each.state == "T" for each in list_processes()))

    def thaw(self, name: str) -> None:
        """Let a frozen server go on."""
        self._servers[name].send_signal(signal.SIGCONT)
        self._frozen.discard(name)

    def is_up(self, name: str) -> bool:
        """Return True if a server runs and is not frozen, however slow it is."""
        server = self._servers.get(name)
        return server is not None and server.poll() is None and name not in self._frozen

    def kill(self, name: str) -> None:
        """SIGKILL a server; nothing where it does not run."""
        server = self._servers.pop(name, None)
        self._frozen.discard(name)
        if server is not None:
            server.kill()
            server.wait()
            self._tell_guard()

    def wait_for(self, what: str, look: Callable[[], object]) -> None:
        """Wait until `look` returns something true.

        Raises:
            CannotStart: a server ended, or it took too long.
        """
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not look():
            for name, server in self._servers.items():
                # What is fed ends with 0 when its input does.
                if server.poll() not in {None, 0}:
                    raise CannotStart(f"the {name} ended with {server.returncode}: {self._last_words(name)}")
            if time.monotonic() > deadline_s:
                logs = "\n".join(f"{name}: {self._last_words(name)}" for name in self._servers)
                raise CannotStart(f"{self._system} took more than {START_TIMEOUT_S:.0f} s to {what}; {logs}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Kill all servers and remove a temporary directory; idempotent."""
        for name in [*self._servers]:
            self.kill(name)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._guard.wait()
        if not self._is_kept:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _launch(
        self,
        name: str,
        command: Sequence[str],
        *,
        is_fed: bool = False,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a server; what it prints is appended to its log. If it is fed, its standard input is a pipe."""
        with (self.directory / f"{name}.log").open("ab") as log:
            self._servers[name] = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if is_fed else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory or self.directory,
                env=environment,
                start_new_session=True,
            )
        self._tell_guard()
        return self._servers[name]

    def _complete(self, name: str, command: Sequence[str], timeout_s: float = START_TIMEOUT_S) -> str:
        """Run a command of the system to its end, and return what it printed."""
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.directory, timeout=timeout_s, check=False
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr)[-2000:]
            raise CannotStart(f"{name} of {self._system} ended with {done.returncode}: {said}")
        return done.stdout

    def _tell_guard(self) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(" ".join(str(server.pid) for server in self._servers.values()).encode() + b"\n")
        self._guard.stdin.flush()

    def _last_words(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")[-2000:]


def java() -> str:
    """Return the command that starts a JVM.

    Raises:
        CannotStart: there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is None:
        raise CannotStart("no java found: install a JDK (17 or 21), and set JAVA_HOME or PATH")
    return found


def reserve_ports(ports: Sequence[int]) -> None:
    """Reserve ports that servers had before.

    Raises:
        CannotStart: another process has one of them.
    """
    for port in ports:
        if not _reserve(port):
            raise CannotStart(f"port {port} is in use, and the data of the servers belongs to this port")


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback that nobody uses, and that no other process gets here as long as this one lives.

    The kernel gives none of them to a client, even while a server that was killed is away. A socket for datagrams at
    the same port, which no server here has, reserves each of them.

    Raises:
        CannotStart: not enough are free.
    """
    ports: list[int] = []
    candidates = [*range(FIRST_PORT, _first_of_clients())]
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        if _reserve(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise CannotStart(f"fewer than {count} ports from {FIRST_PORT} on are free")


def _reserve(port: int) -> bool:
    reserving = socket.socket(type=socket.SOCK_DGRAM)
    try:
        reserving.bind(("127.0.0.1", port))
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(("", port))
    except OSError:
        reserving.close()
        return False
    RESERVING.append(reserving)
    return True


@atexit.register
def _release_ports() -> None:
    for each in RESERVING:
        each.close()


def _first_of_clients() -> int:
    """Return the first port that the kernel gives to clients."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except FileNotFoundError:
        return USUAL_FIRST_OF_CLIENTS
    # Where clients may get any port, these are as good as others.
    return first if first >= 2 * FIRST_PORT else USUAL_FIRST_OF_CLIENTS
