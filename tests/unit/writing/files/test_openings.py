"""A plan opens file systems once: the directory and the checkpoint, for all its requests."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ftfile.storage.local import open_location
from ftfile.storage.registry import register, unregister
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.file_writer import forget_caches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem
    from ftfile.storage.paths import Location

ALL = {"publish": "rename", "durability": "hsync", "filePermission": "640", "directoryPermission": "750"}


@pytest.fixture
def opened() -> Iterator[Counter[str]]:
    """Return how often each directory was opened below `counted:`."""
    counter: Counter[str] = Counter()

    def open_counted(location: Location) -> FileSystem:
        counter[location.path.rpartition("/")[2]] += 1
        return open_location(location)

    register("counted", open_counted)
    forget_caches()
    yield counter
    forget_caches()
    unregister("counted")


@pytest.mark.parametrize("options", [{}, ALL], ids=["default", "all"])
def test_of_a_plan(tmp_path: Path, opened: Counter[str], options: dict[str, str]) -> None:
    url = f"counted://{tmp_path}"
    query = MicroBatch(f"{url}/out", {"id": "long"}, options, checkpoint=f"{url}/checkpoint")
    query.run(0, [[{"id": 1}]])  # before it, all directories above are looked at, and the query's sources
    forget_caches()
    opened.clear()
    query.pickled_plan()
    assert opened == {"out": 1, "checkpoint": 1}
    query.pickled_plan()
    assert opened == {"out": 1, "checkpoint": 2}, "this process has the directory open"


@pytest.mark.usefixtures("usual_umask")
def test_of_a_batch(tmp_path: Path, opened: Counter[str]) -> None:
    query = MicroBatch(f"counted://{tmp_path}/out", {"id": "long"}, ALL)
    query.run(0, [[{"id": 1}], [{"id": 2}]])
    assert opened["out"] == 3, "by the driver, and by each task"
    assert {oct(file.stat().st_mode)[-3:] for file in (tmp_path / "out").glob("*.parquet")} == {"640"}
