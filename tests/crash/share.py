"""The share of all steps that a run tries: a part chosen by its seed, and all of them in `make long`."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

THOROUGH = bool(os.environ.get("FTFILE_THOROUGH"))
SHARE = 0.012
# Of recoveries that are crashed again, since each is crashed at every moment.
RECOVERIES_SHARE = 0.01

Step = TypeVar("Step")


def some(steps: Sequence[Step], seed: int, share: float = SHARE) -> list[Step]:
    """Return a share of the steps, at least one if there are any, in their order."""
    if THOROUGH or not steps:
        return list(steps)
    chosen = random.Random(seed).sample(range(len(steps)), max(1, round(share * len(steps))))
    return [steps[number] for number in sorted(chosen)]
