"""The place on Spark Connect: the queries run in a server, and a client starts and watches them."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from tests import quick_spark
from tests.cluster.cluster import PYTHON_PROCESS, command_of, java_processes
from tests.cluster.connect_stream import start_server, wait_for_clients
from tests.demos.files.process import SessionApp, SparkApp, own_environment, session_members
from tests.guarded import free_ports
from tests.soak.place import JOB, After, Place

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ("ConnectPlace",)


class ConnectPlace(Place):
    """A server of Spark Connect on two cores and a local disk.

    The server lives until it is killed. After the client was killed, the queries continue, and the server stops each of
    them when the next client starts the same query. A client of a killed server is killed, too.
    """

    name = "connect"
    patience_s = 120.0
    victims: ClassVar[Mapping[str, After]] = MappingProxyType(
        {
            "client": After.ENDS,
            "server": After.OVERLAPS,
            "application": After.ENDS,
            "python": After.CONTINUES,
            "all pythons": After.CONTINUES,
        }
    )

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._servers: list[SessionApp] = []

    def start_application(self, argument: Path, log: Path, environment: Mapping[str, str]) -> SessionApp:
        """Start a client, and a server if there is none."""
        if not self._servers or not _is_living(self._servers[-1]):
            self._start_server()
        job = json.loads(argument.read_text(encoding="utf-8"))
        argument.write_text(json.dumps({**job, "master": self.master}), encoding="utf-8")
        return _Client(self._servers[-1], argument, log, environment)

    def roles(self, app: SessionApp) -> dict[str, list[int]]:
        """Return the living processes by role: `client`, `server`, `python`."""
        assert isinstance(app, _Client)
        members = session_members(app.server.session)
        return {
            "client": [*session_members(app.session)],
            "server": java_processes(members),
            "python": [number for number in members if PYTHON_PROCESS in command_of(number)],
        }

    def stop(self) -> None:
        """Kill all servers."""
        for server in self._servers:
            server.kill()
        self._servers.clear()

    def _start_server(self) -> None:
        home = self.home / "server"
        (home / "scratch").mkdir(parents=True, exist_ok=True)
        [port] = free_ports(1)
        environment = {**own_environment(home), "JAVA_TOOL_OPTIONS": quick_spark.java_options()}
        self._servers.append(start_server(home, port, environment, memory="1g"))
        wait_for_clients(self._servers[-1], port)
        self.master = f"sc://127.0.0.1:{port}"


class _Client(SparkApp):
    """A client and its server.

    Attributes:
        server: in which the queries run.
    """

    def __init__(self, server: SessionApp, argument: Path, log: Path, environment: Mapping[str, str]) -> None:
        super().__init__(JOB, argument, log, environment)
        self.server = server

    def kill(self) -> None:
        """SIGKILL the client, and the remaining processes of a server whose JVM was killed; repeatable."""
        super().kill()
        if not _is_living(self.server):
            self.server.kill()

    def last_words(self) -> str:
        """Return the last lines of the outputs of both."""
        return f"{super().last_words()}\n{self.server.last_words()}"


def _is_living(server: SessionApp) -> bool:
    return bool(java_processes(session_members(server.session)))
