from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.testing.context import repeatable
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.source.planned import Files
from tests.unit.source.plans import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


@pytest.fixture
def fs() -> Iterator[MemoryFileSystem]:
    yield MemoryFileSystem("plans")
    MemoryFileSystem.drop("plans")


@pytest.fixture
def nobody_waits() -> Iterator[None]:
    with repeatable():
        yield
