"""A chain of two queries, killed again and again: on a disk, on an object store, or on HDFS."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import pytest

from tests.crash.share import THOROUGH
from tests.demos.files.hdfs_path import HdfsPath
from tests.hdfs.minicluster import MiniCluster
from tests.object_stores import servers
from tests.spark.chain import Places, lines_in, run_chain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def on_a_disk(home: Path) -> Iterator[Places]:
    root = home / "chain"
    yield Places(root.as_uri(), root.as_uri(), lambda: lines_in(root / "end"))


@contextlib.contextmanager
def on_an_object_store(home: Path) -> Iterator[Places]:
    environment = servers.CREDENTIALS | servers.NO_FILES
    with (
        servers.versity() if servers.VERSITY.exists() else servers.moto() as storage,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in environment.items():
            patch.setenv(name, value)
        checkpoints = (home / "checkpoints").as_uri()
        yield Places(f"{storage.url}/chain", checkpoints, lambda: objects_of(storage), storage.settings, environment)


def objects_of(storage: servers.Storage) -> Iterator[str]:
    """Yield the lines of the objects in the last directory, read by another client than the driver's."""
    asked = servers.client(storage.endpoint)
    for page in asked.get_paginator("list_objects_v2").paginate(Bucket=servers.BUCKET, Prefix="chain/end/"):
        for each in page.get("Contents", ()):
            if "/_ftfile/" not in each["Key"]:
                yield from asked.get_object(Bucket=servers.BUCKET, Key=each["Key"])["Body"].read().decode().splitlines()


@contextlib.contextmanager
def on_hdfs(home: Path) -> Iterator[Places]:
    """A chain on HDFS, with checkpoints on HDFS, too."""
    with MiniCluster() as cluster:

        def lines() -> Iterator[str]:
            HdfsPath(cluster.pages, cluster.url, "/chain/end").download(home / "copy", ".json")
            return lines_in(home / "copy")

        root = f"{cluster.url}/chain"
        yield Places(root, root, lines)


STORAGE_KINDS = {"disk": on_a_disk, "object store": on_an_object_store, "HDFS": on_hdfs}


@pytest.fixture(params=STORAGE_KINDS if THOROUGH else ["drawn"])
def places(request: pytest.FixtureRequest, seed: int, tmp_path: Path) -> Iterator[Places]:
    """All in `make long`, otherwise a drawn one."""
    name = (
        random.Random(f"{seed} {request.node.name}").choice([*STORAGE_KINDS])
        if request.param == "drawn"
        else request.param
    )
    with STORAGE_KINDS[name](tmp_path) as found:
        yield found


def test_every_row_is_in_the_last_directory_once(tmp_path: Path, places: Places, seed: int) -> None:
    print(run_chain(tmp_path, places, seed))
