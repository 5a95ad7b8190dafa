"""The limits of the product set to a few, so that a short history goes beyond each of them."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("SMALL_LIMITS", "small_limits")

# By module below `ftfile`; whoever imports a constant by its name has it, too.
SMALL_LIMITS: tuple[tuple[str, str, float], ...] = (
    ("commit.keeping", "RANGE_EVERY", 4),
    ("commit.keeping", "RANGE_BYTES", 3_000),
    ("commit.keeping", "GAP_RECORDS", 3),
    ("commit.state", "RECENT_CHANGES", 2),
    ("commit.state", "REMOVED_KEPT", 20),
    ("commit.state", "DEFINITIONS_KEPT", 2),
    ("commit.state", "VIEW_QUERIES", 1),
    ("commit.bases", "BASE_MIN_BYTES", 24_000),
    ("commit.record_format", "COMPANION_FROM_BYTES", 2_000),
    ("commit.ranges", "MERGED_BYTES", 4_000),
    ("commit.merging", "DOCUMENT_ADDS", 3),
    ("upkeep.flush", "PARTS_PER_RECORD", 3),
    ("upkeep.vacuum", "MANY_RANGES", 2),
    ("upkeep.ranges", "CHUNK_RECORDS", 5),
    ("sink.rolling.plan", "DUE_SEGMENTS_MAX", 40),
    ("sink.rolling.plan", "AWAITED_RECORDS", 5),
    ("sink.writer", "PLANNERS_KEPT", 1),
)


@contextlib.contextmanager
def small_limits(*, use: bool = True) -> Iterator[None]:
    """Have small limits within the block, if they are to be used."""
    with contextlib.ExitStack() as stack:
        for module, name, value in SMALL_LIMITS if use else ():
            patch = mock.patch.object(importlib.import_module(f"ftfile.{module}"), name, value)
            stack.enter_context(patch)
        yield
