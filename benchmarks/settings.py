"""The settings of every benchmark: the amount of work, the place, and the sinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("Settings",)


@dataclass(frozen=True, slots=True)
class Settings:
    """How one run of the benchmarks is made.

    Attributes:
        directory: an existing scratch directory, on the disk that is measured.
        smoke: tiny sizes that only show that the benchmark works; the figures mean nothing.
        sinks: labels of the sinks to run; all when empty.
        rows: of `kvstore`, of `load` and of `pywrite`; None for their defaults.
        batches: of `kvstream` and of `command`; None for their defaults.
        files: of `plans`, of `export` and of `compaction`, and the most of `committer`; None for their defaults.
        gigabytes: of the largest write of `pywrite`; None for its default.
    """

    directory: Path
    smoke: bool = False
    sinks: tuple[str, ...] = ()
    rows: int | None = None
    batches: int | None = None
    files: int | None = None
    gigabytes: float | None = None
