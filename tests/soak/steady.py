"""The place without kills: one application processes small batches, and its resources must stay flat."""

from __future__ import annotations

from typing import ClassVar

from tests.soak.place import Place, Size

__all__ = ("SteadyPlace",)

BATCHES = 10_000


class SteadyPlace(Place):
    """The local disk, and an application that lives for 10,000 batches."""

    name = "steady"
    size: ClassVar[Size] = Size((BATCHES, BATCHES), (100, 100), (0, 0))
    is_plain = True
    vacuum_interval_s = 30.0
    is_one_life = True
