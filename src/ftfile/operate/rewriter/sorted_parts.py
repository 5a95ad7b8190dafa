"""Writes the rows of parts to new parts in an order, in bounded memory."""

from __future__ import annotations

import itertools
import math
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ftfile.core.errors import FtfileError, Retry
from ftfile.formats.parts import UnreadablePart, read_add
from ftfile.log.format.adds import total_bytes, total_rows
from ftfile.operate.rewriter.row_order import Ranges
from ftfile.rows.spark_types import recorded_schema
from ftfile.writing.files.part_writer import SpilledRows, as_one
from ftfile.writing.fingerprint import FingerprintAccumulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ftfile.log.format.model import Add
    from ftfile.operate.rewriter.row_order import RowOrder
    from ftfile.storage.api import FileSystem
    from ftfile.writing.stage import OpenPart, Stage

# Rows in memory before they are moved to the spill file.
HELD_BYTES = 64 << 20
# Rows of a range in memory, which are sorted at once. Sorting needs about three times of it.
RANGE_BYTES = 32 << 20
# Files can take many times of their length in memory. If the estimate by their first rows is too low, ranges of this
# length on storage are a second limit.
RANGE_STORED_BYTES = 8 << 20
SAMPLE_ROWS = 1 << 16


class SortedParts:
    """The new parts of some inputs of one directory and encoding."""

    def __init__(self, stage: Stage, open_part: Callable[[], OpenPart], order: RowOrder) -> None:
        self._stage = stage
        self._open_part = open_part
        self._order = order
        self._part: OpenPart | None = None

    def write(
        self, inputs: Sequence[Add], encoding: dict[str, Any], rows: Iterable[tuple[Add, pa.RecordBatch]]
    ) -> object:
        """Write all rows of the inputs, and return their strong digest; for the errors see `rows_of_parts`."""
        schema = recorded_schema(encoding["schema"])
        ranges = self._ranges(inputs, encoding, schema)
        # Encrypted directories have no statistics, so their rows are not sorted, and never spilled without encryption.
        spilled = SpilledRows(self._stage, schema)
        digest = FingerprintAccumulator("strong")
        for _, batch in rows:
            digest.update(batch)
            for number, some in ranges.divide(batch):
                spilled.add(f"{number:06d}", some)
            if spilled.held_bytes > HELD_BYTES:
                spilled.spill()
        for key, group in itertools.groupby(spilled.take_all(), key=itemgetter(0)):
            batches = map(itemgetter(1), group)
            if ranges.is_constant(int(key)):
                for batch in batches:
                    self._write(batch)
            else:
                self._write(self._order.sort(as_one([*batches])))
        if self._part is not None:
            self._stage.finish(self._part)
        return digest.digest()

    def _ranges(self, inputs: Sequence[Add], encoding: dict[str, Any], schema: pa.Schema) -> Ranges:
        """Return ranges whose rows fit into memory, by the quantiles of a sample."""
        row_count = total_rows(inputs)
        columns = pa.schema([schema.field(name) for name in self._order.columns])
        row_bytes = _bytes_of_first_row(self._stage.fs, inputs[0], encoding, schema)
        needed = max(row_bytes * row_count / RANGE_BYTES, total_bytes(inputs) / RANGE_STORED_BYTES)
        count = math.ceil(needed)
        samples = [pa.RecordBatch.from_pylist([], columns)]
        if count <= 1 or not row_count:
            return Ranges(self._order, samples[0], 1)
        step = max(1, row_count // SAMPLE_ROWS)
        skipped = 0
        for number, add in enumerate(inputs):
            try:
                for batch in read_add(self._stage.fs, add, encoding, columns):
                    chosen = np.arange(skipped, batch.num_rows, step)
                    samples.append(batch.take(pa.array(chosen)))
                    skipped = (skipped - batch.num_rows) % step
            except FtfileError as error:
                if error.retry is not Retry.NEVER:
                    raise
                raise UnreadablePart(number, error) from error
        return Ranges(self._order, as_one(samples), count)

    def _write(self, rows: pa.RecordBatch) -> None:
        offset, limit = 0, self._order.target_bytes
        while offset < rows.num_rows:
            if self._part is None:
                self._part = self._open_part()
            offset += self._part.write(rows.slice(offset), limit)
            if self._part.size_bytes >= limit:
                self._stage.finish(self._part)
                self._part = None


def _bytes_of_first_row(fs: FileSystem, add: Add, encoding: dict[str, Any], schema: pa.Schema) -> float:
    """Return the average memory of the first rows of a file; 0 if it is unknown."""
    try:
        for batch in read_add(fs, add, encoding, schema):
            if batch.num_rows:
                row_bytes: float = batch.nbytes / batch.num_rows
                return row_bytes
    except FtfileError as error:
        if error.retry is not Retry.NEVER:
            raise
        raise UnreadablePart(0, error) from error
    return 0
