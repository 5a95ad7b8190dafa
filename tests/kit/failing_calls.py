"""Calls of a storage system that fail, and processes that are killed in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from ftfile.core.errors import OutcomeUnknown, Unavailable
from ftfile.storage.api import InputFile, OutputStream
from ftfile.storage.registry import WrapperStream

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("CHANGES", "Killed", "StreamOfProcess", "lose_answer")

# Operations that change the storage: after their effect, an error leaves their outcome unknown.
CHANGES = {"create", "close", "rename", "create_exclusive", "put", "delete", "remove_directory", "make_directories"}


class Killed(BaseException):
    """Raised by every call of a killed process: its error handlers have no effect."""


class StreamOfProcess(WrapperStream):
    """A stream whose file stays if its process is killed. Its owner is a file system with `is_alive`."""

    def _abort(self) -> bool:
        owner: Any = self._owner
        return owner.is_alive and super()._abort()


def lose_answer(operation: str, path: str, call: Callable[[], object]) -> NoReturn:
    """Run a call, and raise the error of a storage system whose answer is lost."""
    result = call()
    if isinstance(result, OutputStream | InputFile):
        result.close()  # the caller receives the error and cannot close it
    raise (OutcomeUnknown if operation in CHANGES else Unavailable)(operation, path, "the answer is lost")
