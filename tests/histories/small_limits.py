"""Small values for the limits of the product, so that a short history exceeds each of them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
from typing import TYPE_CHECKING
from unittest import mock

import ftfile.log as log_room
import ftfile.operate as operate_room
import ftfile.read as read_room
import ftfile.writing as write_room

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


# By the names of constants, which are replaced where they are defined and where they are imported.
SMALL_LIMITS: dict[str, float] = {
    "FOREIGN_JOB_RECORDS": 5,
    "CHECKPOINT_MIN_BYTES": 24_000,
    "BLOCK_VERSIONS": 4,
    "CHUNK_RECORDS": 5,
    "CLOSERS_MAX": 1,
    "COMPANION_FROM_BYTES": 2_000,
    "DEFINITIONS_KEPT": 2,
    "DOCUMENT_ADDS": 3,
    "DUE_SEGMENTS_MAX": 40,
    "GAP_RECORDS": 3,
    "HEADER_BYTES": 64,
    "LOGS_KEPT": 1,
    "MANY_COMPACTED": 2,
    "MERGED_BYTES": 4_000,
    "PARTS_PER_RECORD": 3,
    "PLANNERS_KEPT": 1,
    "COMPACTED_BYTES": 3_000,
    "COMPACTED_EVERY": 4,
    "RECENT_CHANGES": 2,
    "REMOVED_KEPT": 20,
    "ROUTE_ROWS": 3,
    "ROWS_PER_THREAD": 2,
    "SHRUNK_MIN_BYTES": 6_000,
    "SMALL_ROWS": 1,
    "THREADS_MAX": 1,
    "VIEW_QUERIES": 1,
}


@functools.cache
def modules_with(name: str) -> tuple[ModuleType, ...]:
    """Return the modules of the product that define or import a constant.

    Raises:
        LookupError: no module has it.
    """
    names = ["ftfile.storage.calls"]
    names += [
        found.name
        for room in (log_room, operate_room, read_room, write_room)
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    ]
    found = tuple(module for each in names if name in vars(module := importlib.import_module(each)))
    if not found:
        raise LookupError(f"there is no limit {name}")
    return found


@contextlib.contextmanager
def small_limits(*, use: bool = True) -> Iterator[None]:
    """Set small limits within the block, if `use` is set."""
    with contextlib.ExitStack() as stack:
        for name, value in SMALL_LIMITS.items() if use else ():
            for module in modules_with(name):
                stack.enter_context(mock.patch.object(module, name, value))
        yield
