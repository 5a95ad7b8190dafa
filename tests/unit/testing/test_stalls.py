"""Tests with short limits are repeated after a stall, and fail at once without one."""

from __future__ import annotations

import pytest

from tests.kit import stalls
from tests.kit.stalls import run_in_peace


class Stalls(stalls.Ticks):
    """Finds that the machine stood still in the first tests."""

    left = 0

    def __exit__(self, *what: object) -> None:
        super().__exit__(*what)  # type: ignore[arg-type]
        type(self).left -= 1
        self.longest_s = 1.0 if type(self).left >= 0 else 0.0


@pytest.mark.parametrize("times", [0, 2, stalls.TRIES])
def test_what_fails_is_repeated_after_a_stall_alone(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "Ticks", Stalls)
    Stalls.left = times
    runs: list[None] = []

    def fail() -> None:
        runs.append(None)
        pytest.fail("always")

    with pytest.raises(pytest.fail.Exception, match="always"):
        run_in_peace(fail)
    assert len(runs) == min(times + 1, stalls.TRIES)
