"""The time that a batch waits after the active NameNode stops responding, with both drivers and no HDFS server.

Real waits are shortened, and the nominal waits are added up.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.storage import calls as deadline
from ftfile.storage.hdfs import native_nodes as hdfs_native_nodes
from ftfile.storage.hdfs import webhdfs_client, webhdfs_nodes
from ftfile.storage.hdfs.native_nodes import NameNodes
from ftfile.storage.hdfs.webhdfs_nodes import WebNodes
from ftfile.testing.context import ManualClock, repeatable
from ftfile.testing.micro_batch import MicroBatch
from tests.hdfs.servers import write_site
from tests.unit.storage.fake_hdfs import Names, NativeClient, WebServer, install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# What docs/hdfs.md promises of a batch, from the moment at which another NameNode is active.
PROMISED_S = 30.0
# The threads of a DataNode on two cores, which serve its connections in sequence.
THREADS = 4
# Real limits are so many times longer.
SHORTER = 10
# A busy machine makes slow answers look like silence. This only adds waits, so the smallest result counts.
TRIES = 20


class Front:
    """Accepts connections for a server, and leaves some unanswered; a `with` block ends it.

    Attributes:
        address: the address on which it listens.
        is_silent: returns by the number of a connection whether it is never read.
        taken: number of accepted connections.
    """

    def __init__(self, port: int, is_silent: Callable[[int], bool] = lambda _: False) -> None:
        self._port = port
        self.is_silent = is_silent
        self.taken = 0
        self._ended = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Front:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listening.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while not self._ended.is_set():
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client, self.taken), daemon=True).start()
                self.taken += 1

    def _serve(self, client: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._port)) as server:
            while not self._ended.is_set():
                for side in select.select([client, server], [], [], 0.05)[0]:
                    # What it was sent before it fell silent it has read.
                    if side is client and self.is_silent(number):
                        self._ended.wait()
                        return
                    data = side.recv(1 << 16)
                    if not data:
                        return
                    (server if side is client else client).sendall(data)


class Cluster:
    """Two NameNodes and a DataNode. The first NameNode is active until it stops responding."""

    def __init__(self, names: Names, stack: contextlib.ExitStack) -> None:
        port = int(stack.enter_context(WebServer(names)).address.partition(":")[2])
        self.datanode = stack.enter_context(Front(port))
        self.first = stack.enter_context(Front(port))
        self.second = stack.enter_context(Front(port, lambda _: True))
        names.datanode = self.datanode.address

    def silence(self, held_up: int) -> None:
        """Let the second be active, and of the DataNode's threads so many be held up by the first, for good."""
        self.second.is_silent = lambda _: False
        self.first.is_silent = lambda _: True
        self.datanode.is_silent = lambda number: number % THREADS < held_up


class WebWaits:
    """The seconds that are due for what WebHDFS waits for, which is shorter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given_up = 0
        look_s, pulse_s, first_word_min_s = deadline.LOOK_S, webhdfs_client.PULSE_S, webhdfs_nodes.FIRST_WORD_MIN_S
        # The commit runs in another process than the tasks, and detects the silent NameNode independently.
        self.due_s = look_s + 2 * pulse_s
        why_silent, note_unheard = WebNodes._why_silent, WebNodes.note_unheard  # noqa: SLF001

        def look(nodes: WebNodes, *arguments: Any) -> str:
            # The silent one has all its time; the other one is asked when that is over.
            self.due_s += look_s + 2 * pulse_s
            return why_silent(nodes, *arguments)

        def give_up(nodes: WebNodes) -> None:
            self.given_up += 1
            self.due_s += nodes.first_word_s() * SHORTER
            note_unheard(nodes)

        monkeypatch.setattr(WebNodes, "_why_silent", look)
        monkeypatch.setattr(WebNodes, "note_unheard", give_up)
        monkeypatch.setattr(deadline, "LOOK_S", look_s / SHORTER)
        monkeypatch.setattr(webhdfs_client, "PULSE_S", pulse_s / SHORTER)
        monkeypatch.setattr(webhdfs_nodes, "FIRST_WORD_MIN_S", first_word_min_s / SHORTER)
        # On a busy machine answers take long, which does not matter here.
        monkeypatch.setattr(webhdfs_nodes, "TIMES_HEARD", 0)


class NativeWaits:
    """The same for Hadoop's own protocol."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        look_s, pulse_s = deadline.LOOK_S, hdfs_native_nodes.PULSE_S
        # And the commit; and a call that the library has left behind is looked at every so often.
        self.due_s = look_s + 2 * pulse_s + hdfs_native_nodes.STUCK_S + look_s
        self.found = False
        find = NameNodes._look  # noqa: SLF001

        def look(nodes: NameNodes, client: Any) -> None:
            # The call, a short one, and then all NameNodes have their time.
            self.due_s += look_s + 2 * pulse_s
            self.found = True
            find(nodes, client)

        monkeypatch.setattr(NameNodes, "_look", look)
        monkeypatch.setattr(deadline, "LOOK_S", look_s / SHORTER)
        for name in ("PULSE_S", "BELIEVED_S"):
            monkeypatch.setattr(hdfs_native_nodes, name, getattr(hdfs_native_nodes, name) / SHORTER)


SETTINGS = {"dfs.nameservices": "ns", "dfs.ha.namenodes.ns": "nn1,nn2"}


def configure(directory: Path, monkeypatch: pytest.MonkeyPatch, **addresses: str) -> None:
    """Let `ns` be two NameNodes at these addresses."""
    settings = SETTINGS | {f"dfs.namenode.{name.replace('_', '-address.ns.')}": at for name, at in addresses.items()}
    write_site(directory / "hdfs-site.xml", settings)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(directory))


def batches(scheme: str) -> Iterator[None]:
    """Run a batch; then, after what happens at the yield, another one. Spark's own checkpoint is elsewhere."""
    query = MicroBatch(f"{scheme}://ns/out", {"value": "string"}, {"fileFormat": "text"}, attempts=4)
    query.run(0, [[{"value": "a"}], [{"value": "b"}]])
    yield
    query.run(1, [[{"value": "c"}], [{"value": "d"}]])


@pytest.mark.slow
@pytest.mark.parametrize("held_up", range(THREADS))
def test_a_batch_by_webhdfs_ends_within_the_promised_time(
    held_up: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all threads of the DataNode but one are held up."""
    for number in range(TRIES):
        with monkeypatch.context() as patched:
            waited_s, given_up = waits_of_a_batch(held_up, tmp_path / str(number), patched)
        if waited_s < PROMISED_S and bool(given_up) == bool(held_up):
            return
    pytest.fail(f"{waited_s:.1f} s, {given_up} connections given up")


def waits_of_a_batch(held_up: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[float, int]:
    """Return the seconds for which a batch waits, and the number of connections that it abandons."""
    directory.mkdir()
    clock = ManualClock()
    with contextlib.ExitStack() as stack:
        cluster = Cluster(Names(), stack)
        configure(directory, monkeypatch, http_nn1=cluster.first.address, http_nn2=cluster.second.address)
        stack.enter_context(repeatable(clock))
        running = batches("webhdfs")
        next(running)
        waits, began_s = WebWaits(monkeypatch), clock.monotonic_s()
        cluster.silence(held_up)
        assert next(running, None) is None
    slept_s = clock.monotonic_s() - began_s
    print(f"{held_up} of {THREADS}: {waits.given_up} given up, {waits.due_s:.1f} s + {slept_s:.1f} s")
    return waits.due_s + slept_s, waits.given_up


class NativeNode:
    """One of two NameNodes: `nn1` is active until it falls silent, and then the other one."""

    def __init__(self, names: Names, name: str, silent: Mapping[str, threading.Event]) -> None:
        self._names, self._name, self._silent = names, name, silent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._names, name)

    def ask(self, text: str) -> None:
        if self._name in self._silent:
            self._silent[self._name].wait()
        elif self._name != "nn1" and not self._silent:
            raise RuntimeError("StandbyException")
        self._names.ask(text)


@pytest.mark.slow
def test_a_batch_by_the_native_protocol_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(TRIES):
        (tmp_path / str(number)).mkdir()
        with monkeypatch.context() as patched:
            waited_s, found = waits_of_a_native_batch(tmp_path / str(number), patched)
        assert found
        if waited_s < PROMISED_S:
            return
    pytest.fail(f"{waited_s:.1f} s")


def waits_of_a_native_batch(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[float, bool]:
    """Return the seconds for which a batch waits, and whether a silent NameNode was looked for."""
    silent: dict[str, threading.Event] = {}
    names, over = Names(), threading.Event()

    def connect(url: str, configuration: Mapping[str, str], _: str | None) -> NativeClient:
        del url
        first = configuration.get("dfs.ha.namenodes.ns", "nn1").partition(",")[0]
        return NativeClient(NativeNode(names, first, silent))  # type: ignore[arg-type] # has their methods

    install(monkeypatch, names)
    monkeypatch.setattr(sys.modules["hdfs_native"], "Client", connect)
    configure(directory, monkeypatch, rpc_nn1="one:8020", rpc_nn2="two:8020")
    clock = ManualClock()
    with repeatable(clock):
        running = batches("hdfs")
        next(running)
        waits, began_s = NativeWaits(monkeypatch), clock.monotonic_s()
        silent["nn1"] = over
        assert next(running, None) is None
    over.set()
    slept_s = clock.monotonic_s() - began_s
    print(f"{waits.due_s:.1f} s + {slept_s:.1f} s")
    return waits.due_s + slept_s, waits.found
