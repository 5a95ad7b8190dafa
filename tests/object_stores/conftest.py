"""One server of each kind for all tests of a run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.crash.share import THOROUGH
from tests.object_stores import azure, gcs, servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.azure import AzureStorage
    from tests.object_stores.servers import Storage

# The share of tests on moto among tests that run on one server; moto is slower.
MOTO_SHARE = 0.5 if THOROUGH else 0.1

pytest.register_assert_rewrite("ftfile.testing")


def pytest_report_header() -> list[str]:
    """Return the tests that will be skipped, for the header of the report."""
    return [
        missing for missing in (servers.what_is_missing(), azure.what_is_missing(), gcs.what_is_missing()) if missing
    ]


@pytest.fixture(scope="session", autouse=True)
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (servers.CREDENTIALS | servers.NO_FILES | gcs.ENVIRONMENT).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def moto() -> Iterator[Storage]:
    with servers.moto() as storage:
        yield storage


def start_real() -> Iterator[Storage]:
    if missing := servers.what_is_missing():
        pytest.skip(missing)
    with servers.versity() as storage:
        yield storage


real = pytest.fixture(scope="session", name="real")(start_real)


@pytest.fixture(scope="session")
def azurite() -> Iterator[AzureStorage]:
    """Azure's emulator, one for each process."""
    if missing := azure.what_is_missing():
        pytest.skip(missing)
    with azure.azurite() as storage, pytest.MonkeyPatch.context() as patch:
        patch.setenv(azure.CONNECTION, storage.connection)
        yield storage


def drawn_server(what_for: str) -> str:
    """Return the real server if it is installed, and moto for a share of the tests."""
    return "moto" if servers.what_is_missing() or random.Random(what_for).random() < MOTO_SHARE else "real"


@pytest.fixture
def storage(request: pytest.FixtureRequest, seed: int) -> Storage:
    """Return the server that is drawn for this test."""
    found: Storage = request.getfixturevalue(drawn_server(f"{seed} {request.node.nodeid}"))
    return found


@pytest.fixture(params=["moto", "real"])
def each_storage(request: pytest.FixtureRequest) -> Storage:
    found: Storage = request.getfixturevalue(request.param)
    return found
