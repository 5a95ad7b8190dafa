from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.filters.registry import ENTRY_POINT_GROUP

if TYPE_CHECKING:
    from pathlib import Path

HERE = "tests.unit.filters.filters_of_users"
FILTERS = {
    "cipher": f"{HERE}:Cipher",
    "counter": f"{HERE}:ByteCounter",
    "gone": "no.such.module:Filter",
    "nothing": f"{HERE}:Nothing",
    "foreign": f"{HERE}:NoFilter",
}


@pytest.fixture
def users_filters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with filters, some of them broken."""
    metadata = tmp_path / "packages" / "filters_of_users-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: filters_of_users\nVersion: 1.0\n")
    lines = [f"[{ENTRY_POINT_GROUP}]", *(f"{name} = {place}" for name, place in FILTERS.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(metadata.parent)
