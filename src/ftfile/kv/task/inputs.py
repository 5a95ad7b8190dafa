"""The runs that a job reads, and up to which key it reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import CorruptData
from ftfile.fs.calls.parallel import parallel
from ftfile.kv.files.opening import open_run
from ftfile.kv.fold import SortedRows
from ftfile.kv.key_columns import key_reader
from ftfile.kv.planning.jobs import Left
from ftfile.kv.run.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.files.opening import Files
    from ftfile.kv.key_values import Key
    from ftfile.kv.planning.jobs import Group
    from ftfile.kv.planning.runs import Run
    from ftfile.kv.run.reader import RunReader

# Of small runs, which are read whole when they are opened.
_CACHE_BYTES = 32 << 20


class Inputs:
    """Runs that are read once, in the order of keys."""

    def __init__(self, files: Files, definition: StoreDefinition) -> None:
        self._files = files
        self._definition = definition
        self._cache = Cache(_CACHE_BYTES)
        self._readers: dict[str, RunReader] = {}

    def reader(self, run: Run) -> RunReader:
        """Return the reader of a run; errors name its file."""
        if run.add.id not in self._readers:
            self._readers[run.add.id] = open_run(self._files, run.add, self._cache)
        return self._readers[run.add.id]

    def open(self, runs: Sequence[Run]) -> None:
        """Open runs side by side, as far as they have rows."""
        parallel(self._files.fs, self.reader, [run for run in runs if run.marks.keys is not None])

    def rows(self, run: Run, cut: Key | None) -> SortedRows:
        """Return the rows of a run below a cut, without those that a job took before."""
        names = self._definition.keys
        if run.marks.keys is None or (cut is not None and run.marks.keys[0] >= cut):
            return SortedRows(iter(()), self._definition.schema, len(names))
        reader = self.reader(run)
        start = run.marks.keys[0] if run.add.skip_rows else None
        return SortedRows(reader.scan(start, cut), reader.schema, len(names))

    def left(self, run: Run, cut: Key | None, taken_rows: int) -> Left | None:
        """Return the rest of a run of which all rows below a cut were taken; None for a run that ends below it.

        Raises:
            CorruptData: the run has another number of rows than its record says.
        """
        expected = run.add.rows
        if taken_rows > expected or (run.ends_below(cut) and taken_rows < expected):
            raise CorruptData(run.add.path, f"{expected} rows", f"{taken_rows} rows")
        if run.ends_below(cut):
            return None
        if taken_rows == expected:
            return Left(taken_rows, None)
        batch = next(self.reader(run).scan(cut), None)
        if batch is None:
            raise CorruptData(run.add.path, f"{expected} rows", f"{taken_rows} rows")
        return Left(taken_rows, key_reader(batch.columns[: len(self._definition.keys)])(0))


def cut_of(group: Group, inputs: Inputs, job_bytes: int) -> Key | None:
    """Return the key below which runs of a group have about `job_bytes` to read; None if they all have no more.

    Below it are the rows of at least one block, however large that is.
    """
    folded = group.below(None).folded
    if sum(run.size for run in folded) <= job_bytes:
        return None
    inputs.open(folded)
    least = min(run.begins for run in group.runs)
    starts = sorted(
        start
        for run in folded
        if run.marks.keys is not None
        for start in inputs.reader(run).block_starts()
        if not run.add.skip_rows or start[0] >= run.marks.keys[0]
    )
    read_bytes = 0
    for key, size_bytes in starts:
        if read_bytes + size_bytes > job_bytes and key > least and read_bytes:
            return key
        read_bytes += size_bytes
    return None
