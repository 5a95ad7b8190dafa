"""The interface of a workload: numbered steps on a mounted disk, each of which can be repeated after a power cut."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from ftfile.filters.keys import forget_keys
from ftfile.writing.files.file_writer import forget_caches
from ftfile.writing.options import forget_logs

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("Workload", "forget_all")


class Workload(ABC):
    """Steps drawn from a seed, and the checks of a disk between them.

    An object is one process: another object has only the content of the disk.

    Attributes:
        name: in the table of workloads.
        place: the directory in which the disk is mounted.
        steps: the number of steps.
        keeps_old_names: whether a power cut can leave renamed files with both names.
    """

    name: ClassVar[str]
    steps: int
    keeps_old_names = False

    def __init__(self, place: Path, seed: int) -> None:
        self.place = place
        self.draw(random.Random(f"{self.name} {seed}"))

    @abstractmethod
    def draw(self, drawn: random.Random) -> None:
        """Draw the settings and the steps."""

    def prepare(self) -> None:  # noqa: B027 - most workloads begin with an empty disk
        """Write the durable files with which the disk begins."""

    @abstractmethod
    def perform(self, number: int) -> None:
        """Run a step. If an earlier process began it, complete it; if that process completed it, change nothing."""

    @abstractmethod
    def check(self, done: int, *, tried: bool) -> None:
        """Check the disk, and change nothing that affects later steps.

        Args:
            done: the number of steps that were acknowledged.
            tried: whether the next step had begun; all or nothing of it may be there.
        """

    def close(self) -> None:  # noqa: B027 - most workloads keep nothing open
        """End the process."""


def forget_all() -> None:
    """Drop what this process knows of directories, as a new process would start."""
    forget_caches()
    forget_logs()
    forget_keys()
