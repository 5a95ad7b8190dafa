"""Lines on the terminal while benchmarks run."""

from __future__ import annotations

import logging
import sys

__all__ = ("show_progress",)


def show_progress() -> None:
    """Show what the benchmarks log, and of everything else only warnings; once in each process."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("benchmarks").setLevel(logging.INFO)
