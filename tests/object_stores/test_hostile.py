"""Every row is written once over a network with resets, cuts, lost replies and delays, while processes are killed."""

from __future__ import annotations

import logging
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.writing.files import file_writer as sink_writer
from tests.crash.share import THOROUGH
from tests.object_stores import azure, gcs, servers
from tests.object_stores.hostile import Ordeal, Stream, hasten
from tests.object_stores.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.object_stores.servers import Storage

pytestmark = [
    # Warnings of adlfs, of aiohttp, and of objects that they leave to the garbage collector if a connection breaks.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

OF_S3 = {"timeout": "1", "patience": "20"}
# In the lower case in which Spark passes it: a client's capability test is valid for its exact settings.
OF_OTHERS = {"calltimeout": "1.5"}
# By server: the call that starts it or its fixture for all tests, the reason why it cannot run, its driver's settings,
# and the number of restarts, which is 0 if the server keeps no data.
SERVERS: dict[str, Any] = {
    "versity": (servers.versity, servers.what_is_missing(), OF_S3, 2),
    "gcs": (gcs.fake_gcs, gcs.what_is_missing(), OF_OTHERS, 2),
    "azure": ("azurite", azure.what_is_missing(), OF_OTHERS, 0),
}
if THOROUGH:
    missing = "" if servers.MINIO in os.environ else f"no MinIO: {servers.MINIO} names none"
    SERVERS |= {"minio": (servers.minio, missing, OF_S3, 2), "moto": (servers.moto, "", OF_S3, 0)}

# Batches in the suite, of a few seconds each.
BATCHES = {"versity": 8, "gcs": 4, "azure": 4}
# In `make long`, more batches for servers whose batches have fewer requests.
LONG_BATCHES = {"versity": 50, "gcs": 50, "azure": 50, "minio": 50, "moto": 80}
RATE = 0.1
FAULTS_MIN = 200
WAYS = [{}, {"maxBatchesPerFile": "3"}, {"publish": "copy", "compression": "gzip"}]


@pytest.fixture(scope="module", params=SERVERS)
def what(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if missing := SERVERS[name][1]:
        pytest.skip(missing)
    return name


@pytest.fixture(scope="module")
def storage(what: str, request: pytest.FixtureRequest) -> Iterator[Storage]:
    start: str | Callable[[], AbstractContextManager[Storage]] = SERVERS[what][0]
    if isinstance(start, str):
        yield request.getfixturevalue(start)
        return
    with start() as storage:
        yield storage


@pytest.fixture(autouse=True)
def hasty() -> Iterator[None]:
    undo = hasten()
    logging.getLogger("gcsfs").disabled = True  # it logs two pages for each fault
    sink_writer.forget_caches()
    yield
    undo()
    logging.getLogger("gcsfs").disabled = False
    sink_writer.forget_caches()


@pytest.fixture
def proxy(storage: Storage, seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with Proxy(storage.port, seed, 0.0, delay_s=0.3) as proxy:
        for name, value in storage.environment_at(f"http://{proxy.address}").items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture
def begin(what: str, storage: Storage, proxy: Proxy, seed: int, tmp_path: Path) -> Callable[..., Ordeal]:
    """Return a function that begins a stream of a number of batches, with options of the sink and some large rows."""

    def begin(batches: int, options: dict[str, str], large_every: int = 0) -> Ordeal:
        stream = Stream(f"{storage.url}/{tmp_path.name}", options, str(tmp_path / "checkpoint"), batches, large_every)
        ordeal = Ordeal.at(storage, proxy, seed, stream, SERVERS[what][2])
        ordeal.stream.prove()
        proxy.rate = RATE
        return ordeal

    return begin


def test_every_row_is_there_once(what: str, begin: Callable[..., Ordeal], seed: int) -> None:
    ordeal = begin((LONG_BATCHES if THOROUGH else BATCHES)[what], random.Random(seed).choice(WAYS[:2]))
    ordeal.run_here(SERVERS[what][3])
    ordeal.count_rows()
    print(f"{what}: {ordeal}")
    assert ordeal.proxy.faults >= (FAULTS_MIN if THOROUGH else 10)


@pytest.mark.skipif(not THOROUGH, reason="takes minutes: in `make long`")
@pytest.mark.parametrize("options", WAYS, ids=str)
def test_every_row_is_there_once_where_the_stream_is_killed(
    what: str, begin: Callable[..., Ordeal], options: dict[str, str]
) -> None:
    ordeal = begin(24, options, large_every=10)
    ordeal.run_killed(10)
    ordeal.count_rows()
    print(f"{what}, {options}: {ordeal}")
    assert ordeal.kills
    assert ordeal.proxy.faults
