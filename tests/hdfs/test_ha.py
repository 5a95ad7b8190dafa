"""Streams on an HDFS of two NameNodes while the active one is killed, hands over, falls silent, or loses its host."""

from __future__ import annotations

import contextlib
import random
import socket
import time
import urllib.parse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import ConfigError, FtfileError, Unavailable
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH
from tests.hdfs.ha_cluster import SERVICE, DeadHost, HaCluster, why_no_dead_host
from tests.hdfs.servers import write_site
from tests.hdfs.support import COLUMNS, TEXT, checked, new_directory, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from tests.hdfs.minicluster import MiniCluster

# What docs/hdfs.md promises of a batch under way, from the moment at which another NameNode is active.
PROMISED_S = 30.0
# Of the long form.
ROUNDS = 40

SCHEMES = ("hdfs", "webhdfs")


@pytest.fixture(scope="module")
def host() -> Iterator[DeadHost | None]:
    """The host of the first NameNode, if it can be one that dies."""
    host = None if why_no_dead_host() else DeadHost()
    yield host
    if host is not None:
        host.remove()


@pytest.fixture(scope="module")
def ha(host: DeadHost | None) -> Iterator[HaCluster]:
    with HaCluster(host=host) as cluster:
        yield cluster


@pytest.fixture(params=SCHEMES)
def url(ha: HaCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(ha.conf))
    return f"{request.param}://{SERVICE}{new_directory()}"


def kill(ha: HaCluster) -> None:
    active = ha.active
    ha.kill(active)
    ha.activate(ha.other(active))


def silence(ha: HaCluster) -> None:
    active = ha.active
    ha.freeze(active)
    ha.activate(ha.other(active))


def mend(ha: HaCluster) -> None:
    """Start anew whatever does not answer: one that was frozen would believe that it is active still."""
    for name in ("nn1", "nn2"):
        if not ha.state(name):
            ha.kill(name)
            ha.start_namenode(name)
    ha.wait_until_ready()


def run_batch(query: MicroBatch, batch: int, happening: Future[Any], *letters: str) -> None:
    """Run a batch while a fault happens, as Spark does: again after an error."""
    while True:
        try:
            query.run(batch, [rows(letter) for letter in letters])
        except FtfileError:
            if happening.done():
                happening.result()
            query.restart()
        else:
            return


def run_under(query: MicroBatch, batch: int, fault: Callable[[], object], *letters: str) -> float:
    """Run a batch while a fault happens that ends with an active NameNode; return the seconds from then to its end."""
    active_s: list[float] = []

    def happen() -> None:
        fault()
        active_s.append(time.monotonic())

    with ThreadPoolExecutor(1) as pool:
        happening = pool.submit(happen)
        run_batch(query, batch, happening, *letters)
        ended_s = time.monotonic()
        happening.result()
    return ended_s - active_s[0]


FAULTS: tuple[Callable[[HaCluster], object], ...] = (silence, kill, HaCluster.hand_over)


def test_every_row_is_there_once_whatever_becomes_of_the_active_namenode(ha: HaCluster, url: str, seed: int) -> None:
    chosen = random.Random(seed)
    mend(ha)
    query = MicroBatch(url, COLUMNS, TEXT, checkpoint=f"{url}-checkpoint")
    query.run(0, [rows("a0"), rows("b0")])
    # In the suite one driver meets a kill, and the other one a hand-over.
    other = FAULTS[1:][(seed + url.startswith("hdfs:")) % 2]
    faults = [*FAULTS, *chosen.choices(FAULTS, k=ROUNDS - len(FAULTS))] if THOROUGH else [silence, other]
    worst_s = 0.0
    for batch, fault in enumerate(faults, 1):
        mend(ha)
        took_s = run_under(query, batch, lambda fault=fault: fault(ha), f"a{batch}", f"b{batch}")  # type: ignore[misc]
        assert took_s < PROMISED_S
        worst_s = max(worst_s, took_s)
    checked(url, *(f"{letter}{batch}" for letter in "ab" for batch in range(len(faults) + 1)))
    counts = Counter(fault.__name__ for fault in faults)
    print(f"{url}: {len(faults) + 1} batches, {2 * len(faults) + 2} rows, {dict(counts)}, worst {worst_s:.1f} s")


@pytest.mark.skipif(bool(why_no_dead_host()), reason=why_no_dead_host() or "none")
def test_a_host_that_is_dead_is_left_for_the_other(
    ha: HaCluster, host: DeadHost, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(ha.conf))

    def die() -> None:
        host.cut()
        ha.activate("nn2")

    for scheme in SCHEMES if THOROUGH else SCHEMES[seed % 2 :][:1]:
        mend(ha)
        if ha.active != "nn1":
            ha.hand_over()
            ha.wait_until_ready()
        url = f"{scheme}://{SERVICE}{new_directory()}"
        query = MicroBatch(url, COLUMNS, TEXT, checkpoint=f"{url}-checkpoint")
        query.run(0, [rows("a"), rows("b")])
        try:
            assert run_under(query, 1, die, "c", "d") < PROMISED_S
            # Nobody waits for it any more, but by WebHDFS for a DataNode that does.
            began_s = time.monotonic()
            query.run(2, [rows("e")])
            assert time.monotonic() - began_s < PROMISED_S / 2
            checked(url, "a", "b", "c", "d", "e")
        finally:
            host.mend()
            ha.kill("nn1")  # it believes that it is active still


@contextlib.contextmanager
def swallowing() -> Iterator[str]:
    """Yield an address at which nobody answers, nor refuses."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


def describe(directory: Path, cluster: MiniCluster, silent: str) -> None:
    """Write a configuration of a name service whose first NameNode is silent, and whose second one is a real one."""
    settings = {
        "dfs.nameservices": "ns",
        "dfs.ha.namenodes.ns": "away, here",  # with a blank, as people write it
        "dfs.namenode.rpc-address.ns.away": silent,
        "dfs.namenode.http-address.ns.away": silent,
        "dfs.namenode.rpc-address.ns.here": urllib.parse.urlsplit(cluster.url).netloc,
        "dfs.namenode.http-address.ns.here": urllib.parse.urlsplit(cluster.web_url).netloc,
    }
    write_site(directory / "hdfs-site.xml", settings)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_that_takes_no_connection_costs_a_process_little_and_once(
    cluster: MiniCluster, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with swallowing() as silent:
        describe(tmp_path, cluster, silent)
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        url = f"{scheme}://ns{new_directory()}"
        times_s = []
        for number in range(3):
            began_s = time.monotonic()
            fs = open_filesystem(url)
            fs.make_directories("")
            fs.create_exclusive(f"{number}", b"data")
            times_s.append(time.monotonic() - began_s)
            assert fs.read(f"{number}") == b"data"
    assert times_s[0] < PROMISED_S
    assert max(times_s[1:]) < 3.0, "it was asked again"


def test_a_single_one_that_takes_no_connection_is_named() -> None:
    with swallowing() as silent:
        fs = open_filesystem(f"hdfs://{silent}/out", settings={"patience": "0"})
        began_s = time.monotonic()
        with pytest.raises(Unavailable, match=f"NameNode {silent}: silent: no connection within 10 s"):
            fs.rename("a", "b")
        assert time.monotonic() - began_s < PROMISED_S


@pytest.mark.parametrize("scheme", SCHEMES)
def test_addresses_that_cannot_be_meant_are_errors_that_say_what_is(
    cluster: MiniCluster, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe(tmp_path, cluster, "127.0.0.1:1")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match=r"several NameNodes.*dfs\.ha\.namenodes"):
        open_filesystem(f"{scheme}://a:1,b:2/out")
    with pytest.raises(ConfigError, match=f"'ns' is a name service.*{scheme}://ns/path"):
        open_filesystem(f"{scheme}://ns:9870/out")
