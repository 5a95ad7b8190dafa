"""Tests wait for no disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """Sync nothing: nobody cuts the power here. `CrashingFileSystem` and spies know what would have been synced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # fails likewise where nothing is open
        yield


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """Set the usual umask, for tests of permissions; the user's can be stricter."""
    before = os.umask(0o022)
    yield
    os.umask(before)
