"""The runs that a job writes: folded rows, cut to files and around runs that stay as they are."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.message import segment_of
from ftfile.kv.key_columns import key_reader
from ftfile.kv.planning.jobs import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from ftfile.commit.format.model import Origin
    from ftfile.kv.files.spool import RunSpool
    from ftfile.kv.key_values import Key

# Of pages and directory, for each row.
_INDEX_BYTES = 7
_PIECE_BYTES_MAX = 1 << 20


class FoldedRows:
    """Rows by key, each key once, from which runs take what comes next.

    No run has rows on both sides of a wall, the first key of a run that stays as it is.
    """

    def __init__(self, tables: Iterator[pa.Table], walls: Iterable[Key], key_columns: int, piece_bytes: int) -> None:
        self._tables = tables
        self._walls = sorted(walls)
        self._key_columns = key_columns
        self._piece_bytes = piece_bytes
        self._batches: list[pa.RecordBatch] = []  # the next one comes last

    def has_more(self) -> bool:
        """Return True if a row is left."""
        while not self._batches:
            table = next(self._tables, None)
            if table is None:
                return False
            pieces = max(1, -(-table.nbytes // self._piece_bytes))
            rows = max(1, -(-table.num_rows // pieces))
            self._batches = [batch for batch in table.to_batches(max_chunksize=rows) if batch.num_rows][::-1]
        return True

    def of_one_run(self, is_full: Callable[[pa.RecordBatch], bool]) -> Iterator[pa.RecordBatch]:
        """Yield rows up to a wall, or until `is_full` says so of a batch that was yielded."""
        is_begun = False
        while self.has_more():
            batch = self._batches.pop()
            key = key_reader(batch.columns[: self._key_columns])
            passed = bisect.bisect_left(self._walls, key(0))
            del self._walls[:passed]
            if passed and is_begun:
                self._batches.append(batch)
                return
            if self._walls and self._walls[0] <= key(batch.num_rows - 1):
                end = bisect.bisect_left(range(batch.num_rows), self._walls[0], key=key)
                self._batches.append(batch.slice(end))
                batch = batch.slice(0, end)
            is_begun = True
            yield batch
            if is_full(batch):
                return


@dataclass
class Outputs:
    """The runs that a job writes, in one spool, or in several where runs are large."""

    open_spool: Callable[[], RunSpool]  # starts a spool
    encoding: str  # key of the definition that says how they are written
    max_file_bytes: int  # a run ends at about that length, and a spool that has as many bytes

    def __post_init__(self) -> None:
        self._spools: list[RunSpool] = []
        self._is_open = False

    @property
    def piece_bytes(self) -> int:
        """Return the bytes of rows that a run takes at a time."""
        return min(max(self.max_file_bytes // 8, 1), _PIECE_BYTES_MAX)

    def write(self, bucket: str, rows: FoldedRows, origin: Origin) -> Output:
        """Write a run of the next rows; without any, an empty run."""
        if not self._is_open:
            self._spools.append(self.open_spool())
            self._is_open = True
        spool = self._spools[-1]
        start = known = spool.position
        plain_bytes = known_plain_bytes = rows_taken = 0

        def is_full(batch: pa.RecordBatch) -> bool:
            nonlocal known, plain_bytes, known_plain_bytes, rows_taken
            if spool.position != known:
                known, known_plain_bytes = spool.position, plain_bytes
            plain_bytes += batch.nbytes
            rows_taken += batch.num_rows
            # What the spool still holds back becomes as small as what it has written.
            ratio = (known - start) / known_plain_bytes if known_plain_bytes else 1.0
            size_bytes = known - start + (plain_bytes - known_plain_bytes) * min(ratio, 1.0)
            return bool(size_bytes + _INDEX_BYTES * rows_taken >= self.max_file_bytes - self.piece_bytes)

        made = spool.write(bucket, rows.of_one_run(is_full))
        if spool.position >= self.max_file_bytes // 2:
            self.end()
        return Output(segment_of(made.segment, self.encoding, origin, {}), made.keys, made.ops)

    def end(self) -> None:
        """End the spool that is being written."""
        if self._is_open:
            self._is_open = False
            self._spools[-1].end()

    def discard(self) -> None:
        """Remove all that was written, if possible: nobody refers to it."""
        self._is_open = False
        for spool in self._spools:
            spool.discard()
