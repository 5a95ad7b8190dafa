"""The version of this package, its only spelling."""

from __future__ import annotations

__version__ = "0.1.0"
