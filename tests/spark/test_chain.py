"""A chain of two queries, killed again and again: on a disk, and on an object store. On HDFS: `tests/hdfs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.object_stores import servers
from tests.spark.chain import Places, lines_in, run_chain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


def test_every_row_is_in_the_last_directory_once(tmp_path: Path, seed: int) -> None:
    root = tmp_path / "chain"
    places = Places(root.as_uri(), root.as_uri(), lambda: lines_in(root / "end"))
    print(run_chain(tmp_path, places, seed))


def test_on_an_object_store(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = servers.CREDENTIALS | servers.NO_FILES
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with servers.versity() if servers.VERSITY.exists() else servers.moto() as store:
        checkpoints = (tmp_path / "checkpoints").as_uri()
        root = f"{store.url}/chain"
        places = Places(root, checkpoints, lambda: objects_of(store), store.settings, environment)
        print(run_chain(tmp_path, places, seed))


def objects_of(store: servers.Store) -> Iterator[str]:
    """Yield the lines of the objects of the last directory, by a client that is not the driver's."""
    asked = servers.client(store.endpoint)
    for page in asked.get_paginator("list_objects_v2").paginate(Bucket=servers.BUCKET, Prefix="chain/end/"):
        for each in page.get("Contents", ()):
            if "/_ftfile/" not in each["Key"]:
                yield from asked.get_object(Bucket=servers.BUCKET, Key=each["Key"])["Body"].read().decode().splitlines()
