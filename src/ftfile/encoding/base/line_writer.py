"""What the line formats share: rows become bytes slice by slice, and a file ends after the right row."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import string_parts
from ftfile.core.errors import EncodingError, UnencodableRows
from ftfile.encoding.api import Encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ftfile.encoding.api import ByteWriter

__all__ = ("EncodedRows", "LineEncoder", "naming", "rows_of")

# A slice's text, and what is made on the way to it, stays far below the limit of 2 GiB for one column.
_SLICE_ROWS_MAX = 65_536
_SLICE_BYTES_MAX = 8 << 20


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """The text of some rows.

    Attributes:
        data: all rows with their line ends.
        ends: gives the offset in `data` after each row; called only where a file must end among these rows.
    """

    data: bytes | memoryview
    ends: Callable[[], NDArray[np.integer]]


def rows_of(lines: pa.StringArray) -> EncodedRows:
    """Return the rows that are the strings of a column without nulls."""
    offsets, _ = string_parts(lines)
    data = memoryview(lines.buffers()[2] or b"")[offsets[0] : offsets[-1]]
    return EncodedRows(data, lambda: offsets[1:] - offsets[0])


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn errors about values into errors that say whose they are.

    Raises:
        EncodingError: a value has no text.
    """
    try:
        yield
    except (ValueError, pa.ArrowException) as error:
        raise EncodingError(f"{what} cannot be encoded: {error}") from error


class LineEncoder(Encoder):
    """Writes rows as text; subclasses say what the text of some rows is."""

    def __init__(self, target: ByteWriter) -> None:
        self._target = target
        self._rows = 0
        self._start_bytes = target.position

    @abstractmethod
    def _encode(self, batch: pa.RecordBatch) -> EncodedRows:
        """Return the text of the rows of a batch that has some.

        Raises:
            EncodingError: a value cannot be encoded; names the column.
        """

    def write(self, batch: pa.RecordBatch, limit_bytes: int | None = None) -> int:
        """See `Encoder.write`; exact to the row."""
        taken = 0
        while taken < batch.num_rows:
            rows = self._slice_rows(batch.slice(taken), limit_bytes)
            try:
                encoded = self._encoded(batch.slice(taken, rows))
            except EncodingError as error:
                if taken:
                    break
                raise UnencodableRows(str(error)) from error
            data, missing = encoded.data, (limit_bytes or 0) - self.size_bytes
            ended = limit_bytes is not None and len(data) >= missing
            if ended:
                ends = encoded.ends()
                rows = int(np.searchsorted(ends, missing)) + 1
                data = data[: ends[rows - 1]]
            self._target.write(data)
            taken += rows
            self._rows += rows
            if ended:
                break
        return taken

    def encode_rows(self, batch: pa.RecordBatch) -> Iterator[tuple[EncodedRows, int]]:
        """Yield the text of all rows, some at a time, with how many they are; nothing goes to the target.

        Raises:
            UnencodableRows: a value cannot be encoded; names the column.
        """
        done = 0
        while done < batch.num_rows:
            rows = self._slice_rows(batch.slice(done), None)
            yield self._encoded(batch.slice(done, rows)), rows
            done += rows

    def _encoded(self, batch: pa.RecordBatch) -> EncodedRows:
        try:
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                with naming(f"column `{name}`"):
                    column.validate(full=True)  # Spark's strings may hold any bytes, and text is UTF-8
            with naming("a row"):
                return self._encode(batch)
        except EncodingError as error:
            raise UnencodableRows(str(error)) from error

    @property
    def size_bytes(self) -> int:
        """See `Encoder.size_bytes`; exact."""
        return self._target.position - self._start_bytes

    def finish(self) -> None:
        """See `Encoder.finish`; nothing is buffered and there is no footer."""

    def _slice_rows(self, batch: pa.RecordBatch, limit_bytes: int | None) -> int:
        """Return how many rows to encode at once: memory is bounded, and few are in vain near a limit."""
        in_memory = batch.nbytes / batch.num_rows + 1
        rows: int = min(batch.num_rows, _SLICE_ROWS_MAX, int(_SLICE_BYTES_MAX / in_memory) + 1)
        if limit_bytes is not None:
            encoded = self.size_bytes / self._rows if self._rows else in_memory
            rows = min(rows, int(max(limit_bytes - self.size_bytes, 0) / encoded * 1.1) + 2)
        return rows
