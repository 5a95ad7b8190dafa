"""Trying again what may be tried again without a look."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ftfile.core.retry import RetryPolicy, call_with_retries
from ftfile.fs.wrapper import WrapperFile, WrapperFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.core.context import Context
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
        context: its clock sleeps in between; without a policy of its own, a driver that waits by itself is asked once.
    """

    def __init__(self, inner: FileSystem, context: Context) -> None:
        super().__init__(inner)
        self.context = context
        self._policy = context.retry or (
            RetryPolicy(attempts=1) if inner.capabilities.retries_internally else RetryPolicy()
        )

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        """Run `call`, again and again if it is repeatable."""
        del path
        return call_with_retries(call, self._policy, self.context.clock) if operation in REPEATABLE else call()

    def open(self, path: str) -> InputFile:
        """Open a file whose reads are repeated likewise."""
        return WrapperFile(super().open(path), self)
