"""The share of all steps that a run tries: chosen by its seed, and all steps in `make long`."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

THOROUGH = bool(os.environ.get("FTFILE_THOROUGH"))
SHARE = 0.012
# The share of recoveries that are crashed again. It is small because each is crashed at every moment.
RECOVERIES_SHARE = 0.01

Step = TypeVar("Step")

# For a test whose statement other tests of `make test-all` prove as well.
in_long = pytest.mark.skipif(not THOROUGH, reason="only make long runs it: other tests prove the same")


def some(steps: Sequence[Step], seed: int, share: float = SHARE) -> list[Step]:
    """Return a share of the steps in their order, at least one if there are any."""
    if THOROUGH or not steps:
        return list(steps)
    chosen = random.Random(seed).sample(range(len(steps)), max(1, round(share * len(steps))))
    return [steps[number] for number in sorted(chosen)]
