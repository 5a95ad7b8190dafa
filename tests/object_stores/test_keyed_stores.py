"""Keyed stores on object stores: S3 servers, and the emulators of Azure and Google."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest

from tests.keyed_stores import (
    provider,
    ring,
    try_batches_and_upkeep,
    try_calls_of_a_silent_server,
    try_windows_of_a_killed_process,
)
from tests.object_stores import gcs
from tests.object_stores.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.object_stores.servers import Storage

__all__ = ("provider", "ring")

# adlfs and gcsfs send large bodies by aiohttp, which warns that this takes time.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")

_directories = (f"keyed-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def google() -> Iterator[Storage]:
    if missing := gcs.what_is_missing():
        pytest.skip(missing)
    with gcs.fake_gcs() as storage:
        yield storage


@pytest.fixture(params=["storage", "azurite", "google"])
def each(request: pytest.FixtureRequest) -> Storage:
    found: Storage = request.getfixturevalue(request.param)
    return found


def test_batches_and_upkeep(each: Storage, provider: str | None) -> None:
    try_batches_and_upkeep(f"{each.url}/{next(_directories)}", each.settings, provider)


def test_windows_of_a_killed_process(each: Storage, provider: str | None) -> None:
    try_windows_of_a_killed_process(f"{each.url}/{next(_directories)}", each.settings, provider)


def test_calls_of_a_silent_server(storage: Storage) -> None:
    with Proxy(storage.port, 0, 0.0, ["silence"]) as proxy:

        @contextlib.contextmanager
        def silence() -> Iterator[None]:
            proxy.rate = 1.0
            try:
                yield
            finally:
                proxy.rate = 0.0

        settings = storage.settings_at(f"http://{proxy.address}") | {"timeout": "8", "patience": "8"}
        try_calls_of_a_silent_server(f"{storage.url}/{next(_directories)}", settings, silence)
