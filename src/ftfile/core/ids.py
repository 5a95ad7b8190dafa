"""Random names, and random bytes for keys: the only module that draws them."""

from __future__ import annotations

import os
from typing import Protocol


class IdSource(Protocol):
    """The source of unique names; tests bring seeded ones."""

    def unique(self) -> str:
        """Return 32 lower-case hex digits never returned before, here or anywhere."""


class SystemIds:
    """128 random bits from the operating system, safe after a fork."""

    def unique(self) -> str:
        """Return 32 random hex digits."""
        return os.urandom(16).hex()


def random_bytes(count: int) -> bytes:
    """Return bytes that nobody can guess, from the operating system, safe after a fork."""
    return os.urandom(count)
