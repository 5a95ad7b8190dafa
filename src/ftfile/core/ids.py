"""Random names: the only module that draws them."""

from __future__ import annotations

import os
from typing import Protocol

__all__ = ("SYSTEM_IDS", "IdSource", "SystemIds")


class IdSource(Protocol):
    """Where unique names come from; tests bring seeded ones."""

    def unique(self) -> str:
        """Return 32 lower-case hex digits never returned before, here or anywhere."""


class SystemIds:
    """128 random bits from the operating system, safe after a fork."""

    def unique(self) -> str:
        """Return 32 random hex digits."""
        return os.urandom(16).hex()


SYSTEM_IDS = SystemIds()
