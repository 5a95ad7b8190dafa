"""The newest records of an object store are lost, and no hint names them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.errors import BatchGap, RolledBack
from ftfile.log.format import layout
from ftfile.log.publish import HINT_EVERY
from ftfile.testing.checker import list_plainly
from ftfile.testing.context import current, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.operate.numbered_rows import numbers_of, opened, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.storage.api import FileSystem

# The hint names the record before the last ones.
NEWEST = 2 * HINT_EVERY - 1


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    with repeatable():
        yield


@pytest.fixture
def storage() -> FileSystem:
    return CrashingFileSystem(clock=current().clock, storage="s3")


@pytest.fixture
def url(storage: FileSystem) -> Iterator[str]:
    with mounted(storage) as url:
        yield url


def commit_rows(url: str, first: int, last: int) -> None:
    """Commit the numbers from `first` on, one in each commit. The program is killed after the last one."""
    writer = opened(url)
    for number in range(first, last):
        writer.write(rows(number))
        writer.commit(number)


def lose_records(storage: FileSystem, number: int) -> None:
    """Delete the newest records."""
    for version in range(NEWEST, NEWEST - number, -1):
        storage.delete(layout.record_path(version))


def visible(storage: FileSystem) -> list[int]:
    """Return the numbers that a plain reader finds."""
    lines = [line for path in list_plainly(storage) for line in storage.read(path).splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


@pytest.mark.parametrize("lost", [1, HINT_EVERY - 1])
def test_a_program_repeats_its_lost_commits(storage: FileSystem, url: str, lost: int) -> None:
    """Plain readers see the rows twice until the lost files, which `verify` names, are quarantined."""
    expected = [*range(NEWEST)]  # the opening is a record
    commit_rows(url, 0, NEWEST)
    lose_records(storage, lost)
    with pytest.raises(RolledBack):
        opened(url, at_least_version=NEWEST)
    position = opened(url).position
    assert position == NEWEST - 1 - lost
    lost_files = [path for path in list_plainly(storage) if path >= f"part-{position + 1:010}"]
    assert len(lost_files) == lost
    assert any(lost_files[0] in str(finding) for finding in ftfile.verify(url, context=current()).findings)
    commit_rows(url, position + 1, NEWEST)
    assert numbers_of(url) == expected
    assert visible(storage) == sorted([*expected, *expected[position + 1 :]])
    ftfile.repair(url, quarantine=lost_files, dry_run=False, context=current())
    assert numbers_of(url) == visible(storage) == expected


@pytest.mark.parametrize("lost", [1, HINT_EVERY - 1])
def test_a_query_stops(storage: FileSystem, url: str, lost: int) -> None:
    query = MicroBatch(url, {"n": "long"}, {"fileFormat": "json"})
    for batch in range(NEWEST + 1):
        query.run(batch, [[{"n": batch}]])
    lose_records(storage, lost)
    query.restart()
    before = visible(storage)
    with pytest.raises(BatchGap, match=f"the log expects batch {NEWEST + 1 - lost}"):
        query.run(NEWEST + 1, [[{"n": NEWEST + 1}]])
    assert visible(storage) == before
