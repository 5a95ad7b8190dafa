"""Trying again what may be tried again without a look."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ftfile.core.clock import SYSTEM_CLOCK
from ftfile.core.retry import RetryPolicy, call_with_retries
from ftfile.fs.wrapper import WrapperFile, WrapperFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.clock import Clock
    from ftfile.fs.api import FileSystem, InputFile

__all__ = ("REPEATABLE", "RetryingFileSystem")

Result = TypeVar("Result")

# Creating, renaming and deleting are missing on purpose: when such a call fails the protocol looks first,
# because a second try that finds its own first one says "exists" or "not found".
REPEATABLE = frozenset({"open", "read", "read_at", "stat", "list", "make_directories", "sync_directory"})


class RetryingFileSystem(WrapperFileSystem):
    """Repeats reads, listings, directory making and syncing after errors that say a new try can help.

    Args:
        inner: the file system that does the work.
        policy: how often and how long.
        clock: sleeps in between.
    """

    def __init__(self, inner: FileSystem, policy: RetryPolicy | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(inner)
        self._policy = policy or RetryPolicy()
        self._clock = clock

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run `call`, again and again if it is repeatable."""
        del path
        return call_with_retries(call, self._policy, self._clock) if operation in REPEATABLE else call()

    def open(self, path: str) -> InputFile:
        """Open a file whose reads are repeated likewise."""
        return WrapperFile(super().open(path), self)
