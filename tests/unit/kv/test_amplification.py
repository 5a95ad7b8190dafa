"""Bounds of what plans cost, over 4,096 flushes, on counts: see benchmarks/kv_amplification.py."""

from __future__ import annotations

import pytest

from benchmarks.kv_amplification import WORKLOADS, Workload, simulate
from ftfile.kv.planning.jobs import DEFAULT_PLAN

FLUSHES = 4_096
WRITTEN_MAX = {"new, random": 7.5, "new, rising": 4.0}


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.label)
def test_bytes_written_runs_and_room_stay_within_bounds(workload: Workload) -> None:
    found = simulate(workload, FLUSHES, DEFAULT_PLAN, warm=16)
    assert found.written_per_byte < WRITTEN_MAX.get(workload.label, 6.0)
    assert found.runs_max <= 20
    assert max(found.space) < 1.55
