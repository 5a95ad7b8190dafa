from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.source.files.planned import Files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)
