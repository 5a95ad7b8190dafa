"""One server of each kind for all tests of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.object_stores import servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.servers import Store

pytest.register_assert_rewrite("ftfile.testing")


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


@pytest.fixture(scope="session")
def real() -> Iterator[Store]:
    if not servers.VERSITY.exists():
        pytest.skip("no real S3 server is built: .ci/s3-server builds it where Go is")
    with servers.versity() as store:
        yield store


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """Return the real server where there is one: it is also the faster one."""
    found: Store = request.getfixturevalue("real" if servers.VERSITY.exists() else "moto")
    return found


@pytest.fixture(params=["moto", "real"])
def each_store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(request.param)
    return found
