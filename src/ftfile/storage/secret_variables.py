"""Environment variables that contain secrets."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def digest_of_variables(names: Iterable[str]) -> str | None:
    """Return a digest of the values of environment variables; None if one of them is not set."""
    values = [os.environ.get(name) for name in names]
    if not all(values):
        return None
    return hashlib.sha256("\0".join(map(str, values)).encode("utf-8", "surrogateescape")).hexdigest()
