"""Errors of libraries as errors of the port."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from types import TracebackType

    from ftfile.core.errors import StorageError

__all__ = ("ErrorTranslator",)


class ErrorTranslator(ABC):
    """A `with` block in which the errors of a library become the port's.

    Args:
        operation: the port's method.
        path: what it was asked to act on.
        where: the root below which the path is.
    """

    __slots__ = ("_operation", "_path", "_where")

    # The others pass.
    errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, operation: str, path: str, where: str) -> None:
        self._operation = operation
        self._path = path
        self._where = where

    def __enter__(self) -> object:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, self.errors):
            raise self._translated(error) from error

    @abstractmethod
    def _translated(self, error: Exception) -> StorageError:
        """Return the port's error for an error."""
