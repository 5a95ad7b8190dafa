"""Keyed stores on HDFS, by both drivers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.hdfs.support import new_directory
from tests.keyed_stores import try_batches_and_upkeep, try_calls_of_a_silent_server, try_windows_of_a_killed_process
from tests.unit.sink.encrypted import ring

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.hdfs.minicluster import MiniCluster

__all__ = ("ring",)


@pytest.fixture(params=["webhdfs", "hdfs"])
def url(cluster: MiniCluster, request: pytest.FixtureRequest) -> str:
    return (cluster.web_url if request.param == "webhdfs" else cluster.url) + new_directory()


def test_batches_and_upkeep(url: str) -> None:
    try_batches_and_upkeep(url, {})


def test_windows_of_a_killed_process(url: str) -> None:
    try_windows_of_a_killed_process(url, {})


def test_calls_of_a_silent_namenode(cluster: MiniCluster, url: str) -> None:
    @contextlib.contextmanager
    def silence() -> Iterator[None]:
        cluster.freeze("namenode")
        try:
            yield
        finally:
            cluster.thaw("namenode")

    try_calls_of_a_silent_server(url, {"timeout": "3", "patience": "3"}, silence, 20.0)


def test_an_encrypted_store(cluster: MiniCluster, ring: Path) -> None:
    url = cluster.url + new_directory()
    try_batches_and_upkeep(f"{url}/batches", {}, f"file:{ring}")
    try_windows_of_a_killed_process(f"{url}/windows", {}, f"file:{ring}")
