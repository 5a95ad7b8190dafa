from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.filters.chain import ENTRY_POINT_GROUP
from tests.unit.packages import install

if TYPE_CHECKING:
    from pathlib import Path

HERE = "tests.unit.filters.filters_of_users"
FILTERS = {
    "cipher": f"{HERE}:Cipher",
    "counter": f"{HERE}:ByteCounter",
    "gone": "no.such.module:Filter",
    "nothing": f"{HERE}:Nothing",
    "foreign": f"{HERE}:NoFilter",
    "misnamed": f"{HERE}:Cipher",
}


@pytest.fixture
def users_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with filters, including broken filters."""
    lines = [f"[{ENTRY_POINT_GROUP}]", *(f"{name} = {place}" for name, place in FILTERS.items())]
    install(tmp_path / "packages", "filters_of_users", "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path / "packages")
