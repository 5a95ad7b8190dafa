"""Keyed stores on HDFS, with both drivers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.hdfs.support import new_directory
from tests.keyed_stores import (
    provider,
    ring,
    try_batches_and_upkeep,
    try_calls_of_a_silent_server,
    try_windows_of_a_killed_process,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hdfs.minicluster import MiniCluster

__all__ = ("provider", "ring")


@pytest.fixture(params=["webhdfs", "hdfs"])
def url(cluster: MiniCluster, request: pytest.FixtureRequest) -> str:
    return (cluster.web_url if request.param == "webhdfs" else cluster.url) + new_directory()


def test_batches_and_upkeep(url: str, provider: str | None) -> None:
    try_batches_and_upkeep(url, {}, provider)


def test_windows_of_a_killed_process(url: str, provider: str | None) -> None:
    try_windows_of_a_killed_process(url, {}, provider)


def test_calls_of_a_silent_namenode(cluster: MiniCluster, url: str) -> None:
    @contextlib.contextmanager
    def silence() -> Iterator[None]:
        cluster.freeze("namenode")
        try:
            yield
        finally:
            cluster.thaw("namenode")

    try_calls_of_a_silent_server(url, {"timeout": "8", "patience": "8"}, silence)
