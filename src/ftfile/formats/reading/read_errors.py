"""Errors for files that cannot be read in their format."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ("corrupt", "reading_errors")


def corrupt(file: BinaryIO, expected: str, actual: object) -> CorruptData:
    """Return the error for a file that is not valid output of a format."""
    return CorruptData(str(getattr(file, "name", "")), expected, str(actual))


@contextmanager
def reading_errors(file: BinaryIO, expected: str) -> Iterator[None]:
    """Translate Arrow's errors within the block into `CorruptData`; errors about bytes are OSErrors.

    A `MemoryError`, which Arrow's errors can be, too, is not translated, since it is about the process and not the
    file.
    """
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # also column names that are not text
        raise corrupt(file, expected, error) from error
