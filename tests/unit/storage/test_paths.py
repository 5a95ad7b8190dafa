"""Maximum lengths of paths: the limits of the file systems, to the byte."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import StorageError
from ftfile.storage.api import Capabilities
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.paths import parent_of
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import RootedFileSystem
from tests.unit.storage.fake_objects import Objects, known_as

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileSystem


def long_path(size_bytes: int) -> str:
    path = f"{'d' * 200}/" * (size_bytes // 201)
    return path + "f" * (size_bytes - len(path)) if len(path) < size_bytes else f"{path[:-2]}/f"


def limit_of(fs: FileSystem) -> int:
    limit = fs.capabilities.path_bytes_max
    assert limit is not None
    return limit


@pytest.mark.parametrize("below", ["", "some/where"])
def test_the_longest_path_of_a_local_directory(tmp_path: Path, below: str) -> None:
    """As all who open files by their paths have it; the driver itself opens them directory by directory."""
    fs = RootedFileSystem(LocalFileSystem(str(tmp_path), SYSTEM, follow_links=True), below)
    path = long_path(limit_of(fs))
    assert fs.capabilities.fault_of(path) is None
    fs.make_directories(parent_of(path))
    with fs.create(path) as stream:
        stream.write(b"content")
    assert fs.read(path) == b"content"
    assert fs.capabilities.fault_of(f"{path}f") is not None
    with pytest.raises(StorageError):
        fs.create(f"{path}f")


def test_a_container_is_no_part_of_names() -> None:
    known_as("objects", Objects)
    whole, below = (limit_of(open_filesystem(f"objects://container@account{path}")) for path in ("", "/some/where"))
    assert whole - below == len("some/where/")


@pytest.mark.parametrize(
    ("path", "more_bytes", "is_kept"),
    [
        ("a/" + "x" * 255, 0, True),
        ("a/" + "x" * 256, 0, False),
        ("x" * 256 + "/a", 0, False),
        ("a/" + "x" * 250, 5, True),
        ("a/" + "x" * 250, 6, False),
        ("x" * 255 + "/a", 50, True),
        ("é" * 127, 0, True),
        ("é" * 128, 0, False),
        ("/".join(["x" * 99] * 5), 0, True),
        ("/".join(["x" * 99] * 5), 1, True),
        ("/".join(["x" * 99] * 5), 2, False),
        ("/".join(["é" * 99] * 3), 0, False),
    ],
)
def test_bytes_of_names_and_paths_are_counted(path: str, more_bytes: int, is_kept: bool) -> None:
    storage = Capabilities(
        "test", shared_between_processes=True, durability="close", directory_sync=False, atomic_rename=True
    )
    limited = dataclasses.replace(storage, path_bytes_max=500)
    assert (limited.fault_of(path, more_bytes) is None) == is_kept
    if max(map(len, path.split("/"))) < 100:
        assert storage.fault_of(path, more_bytes) is None
