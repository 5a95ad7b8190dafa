"""A stream on a server of Spark Connect, and kills of the server, of its Python processes and of the client."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster import connect_client
from tests.cluster.cluster import ENDS_WITH_PARENT, PYTHON_PROCESS, SPARK_HOME, command_of, kill, wait_for
from tests.cluster.numbered_rows import Numbers, Watch
from tests.demos.files.kill import hunt
from tests.demos.files.process import SessionApp, SparkApp, own_environment, session_members
from tests.demos.files.sinks import Stream, observe
from tests.guarded import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.demos.files.kill import Hit, Kill

__all__ = ("ConnectStream", "start_server", "wait_for_clients")

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Files stay open over batches, and over kills.
OPTIONS = {"fileFormat": "json", "maxBatchesPerFile": "3"}
# Number of batches that another server commits while a server is frozen.
OVERTAKEN = 2
# Number of files that the stream has not read yet, and so of its next batches.
AHEAD = 4


class ConnectStream:
    """A server, a client that starts a stream of numbers on it, and their directories.

    Attributes:
        numbers: the input.
        stream: the output and the checkpoint.
        server: the newest server.
        client: the newest client.

    Args:
        home: an empty directory.
        environment: more variables of all processes.
    """

    server: SessionApp
    client: SessionApp

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.numbers = Numbers(home / "in")
        self.stream = Stream("numbers", "ftfile", home / "out", home / "checkpoint")
        (home / "scratch").mkdir()
        self._home = home
        self._end = home / "end"
        self._environment = {**own_environment(home), **environment}
        self._apps: list[SessionApp] = []
        self._port = 0

    def start(self) -> None:
        """Start a server and a client."""
        self.start_server()
        self.start_client()

    def start_server(self) -> None:
        """Start a server on a free port, also while an earlier server lives, and wait until it accepts clients."""
        [self._port] = free_ports(1)
        self.server = start_server(self._home, self._port, self._environment)
        self._apps.append(self.server)
        wait_for_clients(self.server, self._port)

    def start_client(self) -> None:
        """Start a client of the newest server."""
        job = {
            "remote": f"sc://127.0.0.1:{self._port}",
            "input": str(self.numbers.directory),
            "output": str(self.stream.output),
            "checkpoint": str(self.stream.checkpoint),
            "options": OPTIONS,
            "end": str(self._end),
        }
        argument = self._home / f"job-{len(self._apps)}.json"
        argument.write_text(json.dumps(job))
        script = Path(connect_client.__file__)
        self.client = SparkApp(script, argument, argument.with_suffix(".log"), self._environment)
        self._apps.append(self.client)

    def stop(self) -> None:
        """Kill all processes, also frozen ones."""
        for app in self._apps:
            app.kill()

    def kill_server(self, planned: Kill) -> None:
        """Kill a server with its JVM and its Python processes, and then its client, and replace both."""
        self._hunt(planned)
        self.client.kill()
        self.start()

    def kill_client(self, planned: Kill) -> None:
        """Kill a client. Its stream continues on the server, which stops it when the next client starts the same."""
        self._hunt(planned, self.client.kill)
        self.start_client()

    def kill_python(self, planned: Kill) -> None:
        """Kill the Python processes of a server, and start the stream again if Spark did not retry their work."""
        hit = self._hunt(planned, lambda: kill(*self.python_processes()))
        begun = hit.states[self.stream.name].begun
        Watch([self.stream], lambda: None).wait(
            lambda: self.client.exit_code is not None or observe(self.stream).committed > begun, "the next batch"
        )
        if self.client.exit_code is not None:
            self.start_client()

    def overtake(self, planned: Kill) -> None:
        """Freeze a server, let another one commit later batches, and let the frozen server continue."""
        server, client = self.server, self.client

        def replace() -> None:
            begun = observe(self.stream).begun
            self.start()
            self._watch().wait(lambda: observe(self.stream).committed >= begun + OVERTAKEN, "batches of a new server")

        self._hunt(planned, replace)
        # Spark refuses the old query's entry in the log of its checkpoint, because the new query has written it: before
        # the entry is written, or at its rename.
        wait_for(lambda: client.exit_code is not None, "the end of the overtaken query")
        assert client.exit_code != 0
        log = client.log.read_text(errors="replace")
        assert "CONCURRENT_STREAM_LOG_UPDATE" in log or "queries are concurrently using" in log, client.last_words()
        server.kill()

    def python_processes(self) -> list[int]:
        """Return the Python processes of the newest server."""
        return [number for number in session_members(self.server.session) if PYTHON_PROCESS in command_of(number)]

    def run_to_end(self) -> None:
        """End the stream after it has written all numbers."""
        self._end.touch()
        Watch([self.stream], self._fail).wait(lambda: self.client.exit_code is not None, "the end of the stream")
        self._fail()

    def _hunt(self, planned: Kill, strike: Callable[[], None] | None = None) -> Hit:
        hit = hunt(self.server, planned, [self.stream], self._watch(), strike)
        assert hit is not None, self.server.last_words()
        return hit

    def _watch(self) -> Watch:
        return Watch([self.stream], self._feed)

    def _feed(self) -> None:
        """Check the client, and let the stream have further batches, however many of them pass without the moment."""
        self._fail()
        if observe(self.stream).begun + AHEAD > self.numbers.files:
            self.numbers.extend(AHEAD)

    def _fail(self) -> None:
        assert self.client.exit_code in {None, 0}, f"{self.client.last_words()}\n{self.server.last_words()}"


def start_server(home: Path, port: int, environment: Mapping[str, str], memory: str = "512m") -> SessionApp:
    """Start a server.

    Args:
        home: of its log, its tables and the existing directory `scratch` for its temporary files.
        port: free.
        environment: of its processes.
        memory: of its JVM.
    """
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.memory": memory,
        "spark.local.dir": str(home / "scratch"),
        "spark.master": "local[2,4]",  # failed tasks are retried, as on a cluster
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": "false",
    }
    words = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    submit = Path(environment.get("SPARK_HOME", SPARK_HOME), "bin/spark-submit")
    command = [*ENDS_WITH_PARENT, str(submit), "--class", SERVER, *words]
    return SessionApp(command, home / "server.log", environment)


def wait_for_clients(server: SessionApp, port: int) -> None:
    """Wait until a server accepts clients."""

    def accepts_clients() -> bool:
        assert server.exit_code is None, server.last_words()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    wait_for(accepts_clients, "a Connect server that accepts clients")
