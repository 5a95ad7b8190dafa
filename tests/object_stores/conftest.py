"""One server of each kind for all tests of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.object_stores import azure, servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.servers import Store

pytest.register_assert_rewrite("ftfile.testing")


def pytest_report_header() -> list[str]:
    """Say what is left out before the tests begin."""
    return [missing for missing in (servers.what_is_missing(), azure.what_is_missing()) if missing]


@pytest.fixture(scope="session", autouse=True)
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in servers.CREDENTIALS.items():
            patch.setenv(name, value)
        # No files of the user's, and no question to a cloud that is not there.
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            patch.setenv(name, "/nonexistent")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield


@pytest.fixture(scope="session")
def moto() -> Iterator[Store]:
    with servers.moto() as store:
        yield store


def start_real() -> Iterator[Store]:
    if missing := servers.what_is_missing():
        pytest.skip(missing)
    with servers.versity() as store:
        yield store


real = pytest.fixture(scope="session", name="real")(start_real)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """Return the real server where there is one: it is also the faster one."""
    found: Store = request.getfixturevalue("moto" if servers.what_is_missing() else "real")
    return found


@pytest.fixture(params=["moto", "real"])
def each_store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found
