"""Bounds of what compactions cost, on keys without values: see benchmarks/kv_amplification.py."""

from __future__ import annotations

import pytest

from benchmarks.kv_amplification import LOADS, Load, simulate

FLUSHES = 1_024
DEPTH_MAX = 16


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.label)
def test_bytes_written_runs_and_room_stay_within_bounds(load: Load) -> None:
    result = simulate(load, FLUSHES)
    assert result.written_per_byte <= (4 if load.label == "new, rising" else 8)
    assert max(result.depths) <= DEPTH_MAX
    assert max(result.space) <= (2.2 if load.has_deletes else 1.6)
