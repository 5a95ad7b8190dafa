"""Errors for files that cannot be read as their format."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

from ftfile.core.errors import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterator


def corrupt(file: BinaryIO, expected: str, actual: object) -> CorruptData:
    """Return the error for a file that is not what a format writes."""
    return CorruptData(str(getattr(file, "name", "")), expected, str(actual))


@contextmanager
def reading_errors(file: BinaryIO, expected: str) -> Iterator[None]:
    """Raise Arrow's errors within the block as `CorruptData`; those about bytes are OSErrors.

    A `MemoryError`, which Arrow's are too, stays one: it tells of the process, not of the file.
    """
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # also names of columns that are no text
        raise corrupt(file, expected, error) from error
