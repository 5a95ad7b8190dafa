"""Runs of an attempt in one file, which is synced once: each begins at a multiple of 64 bytes, as Arrow wants it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from ftfile.attempt.stage import StagedRange
from ftfile.kv.columns import DELETED_MS, OP, ops_in
from ftfile.kv.planning.runs import Marks
from ftfile.kv.run.writer import BLOCK_BYTES, write_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ftfile.attempt.message import StagedSegment
    from ftfile.attempt.stage import Stage
    from ftfile.filters.chain import Chain
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_ranges import KeyRange

_ALIGNMENT = 64


class RunSpool:
    """Writes runs of a store to a new file of a stage."""

    def __init__(
        self,
        stage: Stage,
        definition: StoreDefinition,
        filters: Chain,
        compression: str = "lz4",
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self._stage = stage
        self._definition = definition
        self._filters = filters
        self._compression = compression
        self._block_bytes = block_bytes
        self._file = stage.create("spool")
        self._runs = 0

    @property
    def position(self) -> int:
        """Return the bytes in the file; they grow while a run is written."""
        return self._file.position

    def write(self, bucket: str, batches: Iterable[pa.RecordBatch], purges: Sequence[KeyRange] = ()) -> StagedSegment:
        """Append a run of a bucket, and return it with its marks, of which the position is not known yet.

        Its rows are those that `fold` returned, all with the columns of the first batch. Keys in the ranges of its
        purges end in all runs before it; without rows, it has them alone. Where `write_run` fails, the file is of no
        use any more.
        """
        self._file.write(bytes(-self._file.position % _ALIGNMENT))
        piece, ops = StagedRange(self._file, self._filters), 0
        rows = iter(batches)
        first = next(rows, None)
        schema = _schema_of(self._definition, first)

        def noted() -> Iterator[pa.RecordBatch]:
            nonlocal ops
            for batch in chain(() if first is None else (first,), rows):
                ops |= ops_in(batch)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)

        names, compression, block_bytes = self._definition.keys, self._compression, self._block_bytes
        summary = write_run(piece, noted(), schema, names, compression=compression, block_bytes=block_bytes)
        self._runs += 1
        return piece.end(self._runs, summary.rows, bucket, Marks((0, 0), summary.keys, tuple(purges), ops).to_json())

    def write_all(
        self, runs: Iterable[tuple[str, Iterable[pa.RecordBatch], Sequence[KeyRange]]]
    ) -> list[StagedSegment]:
        """Write runs, and make them durable; if that fails, remove the file. Arguments are those of `write`."""
        try:
            written = [self.write(*run) for run in runs]
            self.end()
        except BaseException:
            self.discard()
            raise
        return written

    def end(self) -> None:
        """Make the runs durable."""
        self._stage.end(self._file)

    def discard(self) -> None:
        """Remove the file if possible, ended or not: nobody refers to it."""
        self._stage.drop(self._file)


def _schema_of(definition: StoreDefinition, first: pa.RecordBatch | None) -> pa.Schema:
    """Return the schema of a run whose first rows these are: that of the store, where keys are never null."""
    own = [] if first is None else [field for field in first.schema if field.name in {OP, DELETED_MS}]
    return pa.schema([*definition.schema, *own])
