"""Rows that can be encoded, and those that cannot: found when encoding some fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import rows_where
from ftfile.attempt.bad_records import row_to_json
from ftfile.commit.format import layout
from ftfile.core.errors import EncodingError, UnencodableRows, UserCodeError
from ftfile.encoding.partitions.paths import bucket_values

if TYPE_CHECKING:
    from ftfile.encoding.api import Format
    from ftfile.sink.buckets.bucketers import Refuse
    from ftfile.sink.config import SinkConfig

# Characters of a value in the text of a fault.
SHOWN = 80


class EncodableRows:
    """Gives the rows of an attempt that cannot be encoded to `take`, which is that of its `BadRecords`."""

    def __init__(self, config: SinkConfig, take: Refuse) -> None:
        self._config = config
        self._file_columns = config.file_schema.names
        self._take = take

    def of_bucket(self, bucket: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Take the rows of a bucket, without the columns in its path, that cannot be encoded; return the others."""
        faults = find_unencodable(self._config.format, rows.select(self._file_columns))
        if not faults:
            return rows
        is_good = np.ones(rows.num_rows, np.bool_)
        is_good[[*faults]] = False
        self._take(self._whole(bucket, rows_where(rows, ~is_good)), [*faults.values()])
        return rows_where(rows, is_good)

    def _whole(self, bucket: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns in the path of their bucket."""
        schema, directory, stem = self._config.schema, layout.bucket_directory(bucket), layout.bucket_stem(bucket)
        values = bucket_values(self._config.bucketing.definition(), directory, stem, schema)
        columns = {name: pa.repeat(value, rows.num_rows) for name, value in values.items()}
        columns |= dict(zip(rows.schema.names, rows.columns, strict=True))
        names = [name for name in schema.names if name in columns]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


def find_unencodable(file_format: Format, rows: pa.RecordBatch) -> dict[int, str]:
    """Return the place of each row that cannot be encoded, in their order, with its fault: by halving."""
    found: dict[int, str] = {}
    # Ranges to try, the first one last.
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


def _fault(file_format: Format, row: pa.RecordBatch, error: EncodingError) -> str:
    """Return a sentence that names the value, if a column cannot be encoded by itself."""
    for name in row.schema.names:
        alone = row.select([name])
        try:
            _encode(file_format, alone)
        except UserCodeError:
            break  # a class of the user's wants whole rows
        except EncodingError as of_column:
            text = str(row_to_json(alone)[name])
            shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
            return f"{of_column}. The value is {shown!r}"
    return str(error)
