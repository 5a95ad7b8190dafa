from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.kv.upkeep.automatic import forget_vacuums
from ftfile.testing.context import ManualClock, repeatable
from ftfile.testing.fs.memory import MemoryFileSystem

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def clock() -> Iterator[ManualClock]:
    clock = ManualClock(tick_ms=1)
    with repeatable(clock):
        yield clock
    for name in ("feed",):
        MemoryFileSystem.drop(name)
    forget_vacuums()
