"""Which rows cannot be encoded, and why: looked for once encoding many at a time has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import EncodingError, UnencodableRows, UserCodeError
from ftfile.sink.buckets.api import Fault
from ftfile.sink.task.row_json import row_to_json

if TYPE_CHECKING:
    import pyarrow as pa

    from ftfile.encoding.api import Format

__all__ = ("find_unencodable",)

SHOWN = 80


def find_unencodable(file_format: Format, rows: pa.RecordBatch) -> dict[int, Fault]:
    """Return the place of each row that cannot be encoded, in their order, with its fault.

    The cost is that of encoding the rows some times, and does not grow with the rows around a bad one.
    """
    found: dict[int, Fault] = {}
    # Ranges that are to be tried, the first one last.
    waiting = [(0, rows.num_rows)] if rows.num_rows else []
    while waiting:
        start, count = waiting.pop()
        try:
            _encode(file_format, rows.slice(start, count))
        except UnencodableRows as error:
            if count == 1:
                found[start] = _fault(file_format, rows.slice(start, 1), error)
            else:
                half = count // 2
                waiting += [(start + half, count - half), (start, half)]
    return found


class _Nowhere:
    """Takes bytes and keeps nothing."""

    position = 0

    def write(self, data: bytes | bytearray | memoryview) -> int:
        length = memoryview(data).nbytes
        self.position += length
        return length


def _encode(file_format: Format, rows: pa.RecordBatch) -> None:
    encoder = file_format.encoder(rows.schema, _Nowhere())
    taken = 0
    while taken < rows.num_rows:
        taken += encoder.write(rows.slice(taken))


def _fault(file_format: Format, row: pa.RecordBatch, error: EncodingError) -> Fault:
    """Say which value it is, if a column cannot be encoded by itself."""
    for name in row.schema.names:
        alone = row.select([name])
        try:
            _encode(file_format, alone)
        except UserCodeError:
            break  # a class of the user's wants whole rows
        except EncodingError as of_column:
            text = str(row_to_json(alone)[name])
            shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
            return Fault(f"{of_column}. The value is {shown!r}")
    return Fault(str(error))
