"""Records that cannot be written: what `badRecords` makes of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy
from ftfile.attempt.message import StagedPart
from ftfile.commit.format import layout
from ftfile.commit.sealed.filesystem import identity_of_letters
from ftfile.core.errors import EncodingError
from ftfile.core.logs import get_logger
from ftfile.encoding.partitions.columns import bucket_values
from ftfile.parts.filtered_file import FilteredFile
from ftfile.sink.buckets.api import Fault
from ftfile.sink.task.record_sizes import value_sizes
from ftfile.sink.task.row_json import row_to_json
from ftfile.sink.task.unencodable import find_unencodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from ftfile.attempt.identity import TaskIdentity
    from ftfile.attempt.stage import Stage, StagedFile
    from ftfile.sink.config import SinkConfig

__all__ = ("BadRecords", "refuse", "without_oversized")

_log = get_logger(__name__)


def refuse(rows: pa.RecordBatch, faults: Sequence[Fault], /) -> None:
    """Fail on the first of the rows.

    Raises:
        EncodingError: names the column, and the value if there is one.
    """
    more = f" (and {rows.num_rows - 1} more of these rows)" if rows.num_rows > 1 else ""
    raise EncodingError(
        f"{faults[0].reason}{more}. To go on without such records, set badRecords=deadLetter, which keeps them, or drop"
    )


class BadRecords:
    """Takes the bad records of one attempt.

    Args:
        config: of the sink.
        stage: where dead letters are written.
        identity: of the attempt.
    """

    def __init__(self, config: SinkConfig, stage: Stage, identity: TaskIdentity) -> None:
        self._config = config
        self._file_columns = config.file_schema.names
        self._stage = stage
        self._identity = identity
        self._file: StagedFile | None = None
        self._filtered: FilteredFile | None = None
        self.count = 0

    def take(self, rows: pa.RecordBatch, faults: Sequence[Fault], /) -> None:
        """Take whole rows.

        Raises:
            EncodingError: see `refuse`.
        """
        if self._config.bad_records == "fail":
            refuse(rows, faults)
        if not self.count:
            _log.warning("badRecords=%s: a record is not written: %s", self._config.bad_records, faults[0].reason)
        self.count += rows.num_rows
        if self._config.bad_records == "deadLetter":
            self._keep([self._letter(rows.slice(place, 1), fault) for place, fault in enumerate(faults)])

    def encodable_of(self, bucket: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Take the rows that cannot be encoded and return the others.

        Args:
            bucket: their key.
            rows: without the columns that the bucket says.
        """
        faults = find_unencodable(self._config.format, rows.select(self._file_columns))
        if not faults:
            return rows
        is_good = np.ones(rows.num_rows, np.bool_)
        is_good[[*faults]] = False
        self.take(self._whole(bucket, _rows_where(rows, ~is_good)), [*faults.values()])
        return _rows_where(rows, is_good)

    def _whole(self, bucket: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns that their bucket says."""
        schema, directory, stem = self._config.schema, layout.bucket_directory(bucket), layout.bucket_stem(bucket)
        values = bucket_values(self._config.bucketing.definition(), directory, stem, schema)
        columns = {name: pa.repeat(value, rows.num_rows) for name, value in values.items()}
        columns |= dict(zip(rows.schema.names, rows.columns, strict=True))
        names = [name for name in schema.names if name in columns]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)

    def finish(self) -> tuple[StagedPart, ...]:
        """End the file of dead letters, if there is one, and return it."""
        file, filtered = self._file, self._filtered
        if file is None or filtered is None:
            return ()
        filtered.finish()
        self._stage.end(file)
        plain_bytes, names = filtered.position, self._config.hidden_chain.names
        return (StagedPart(file.id, file.path, file.position, plain_bytes, file.checksum, self.count, "", names),)

    def _keep(self, lines: list[str]) -> None:
        if self._filtered is None:
            self._file = self._stage.create("deadLetters")
            identity = identity_of_letters(self._stage.fs, self._file.path)
            self._filtered = FilteredFile(self._file, self._config.hidden_chain, identity)
        self._filtered.write("".join(lines).encode())

    def _letter(self, row: pa.RecordBatch, fault: Fault) -> str:
        writer = self._identity.writer
        letter = {
            "reason": fault.reason,
            "queryId": writer.owner,
            "batchId": writer.batch_number,
            "partition": self._identity.partition,
            "row": row_to_json(row),
        }
        # In ASCII: reasons may quote what is no text.
        return json.dumps(letter, separators=(",", ":")) + "\n"


def without_oversized(
    batches: Iterable[pa.RecordBatch], max_bytes: int | None, bad: BadRecords
) -> Iterator[pa.RecordBatch]:
    """Yield batches without the rows whose values take more bytes than that; None for no limit."""
    for batch in batches:
        yield batch if max_bytes is None else _without_oversized(batch, max_bytes, bad)


def _without_oversized(batch: pa.RecordBatch, max_bytes: int, bad: BadRecords) -> pa.RecordBatch:
    sizes = np.array([value_sizes(column) for column in batch.columns])
    totals = sizes.sum(axis=0)
    places = np.flatnonzero(totals > max_bytes)
    if not len(places):
        return batch
    faults = [
        Fault(
            f"column {batch.schema.names[column]!r} takes {sizes[column, place]} of a record's {totals[place]} bytes, "
            f"and maxRecordBytes is {max_bytes}"
        )
        for place, column in zip(places.tolist(), sizes.argmax(axis=0)[places].tolist(), strict=True)
    ]
    bad.take(batch.take(from_numpy(places, pa.int64())), faults)
    return _rows_where(batch, totals <= max_bytes)


def _rows_where(rows: pa.RecordBatch, wanted: NDArray[np.bool_]) -> pa.RecordBatch:
    return rows.take(from_numpy(np.flatnonzero(wanted), pa.int64()))
