from __future__ import annotations

import pytest

from ftfile.filters import registry

HERE = "tests.unit.filters.filters_of_users"


@pytest.fixture
def users_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of users, as if packages with their entry points were installed."""
    places = {
        "cipher": f"{HERE}:Cipher",
        "counter": f"{HERE}:ByteCounter",
        "gone": "no.such.module:Filter",
        "nothing": f"{HERE}:Nothing",
        "foreign": f"{HERE}:NoFilter",
    }
    monkeypatch.setattr(registry, "_installed", lambda: places)
