"""The runs that a job reads, and up to which key it reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.commit.format.layout import storage_identity
from ftfile.commit.sealed.filesystem import keys_of
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.filters.decoded import decrypted_file
from ftfile.fs.api import RangeFile
from ftfile.fs.streams import as_file
from ftfile.kv.fold.windows import SortedRows
from ftfile.kv.key_columns import key_reader
from ftfile.kv.planning.jobs import Left
from ftfile.kv.run.cache import Cache
from ftfile.kv.run.reader import RunReader

if TYPE_CHECKING:
    from ftfile.commit.format.model import Add
    from ftfile.fs.api import FileSystem, InputFile
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.key_values import Key
    from ftfile.kv.planning.jobs import Group
    from ftfile.kv.planning.runs import Run

__all__ = ("Inputs", "cut_of")

# Of small runs, which are read whole when they are opened.
_CACHE_BYTES = 32 << 20


class Inputs:
    """Runs that are read once, in the order of keys."""

    def __init__(self, fs: FileSystem, definition: StoreDefinition) -> None:
        self._fs = fs
        self._definition = definition
        self._cache = Cache(_CACHE_BYTES)
        self._files: dict[str, InputFile] = {}
        self._readers: dict[str, RunReader] = {}

    def close(self) -> None:
        """Close their files."""
        for file in self._files.values():
            file.close()

    def reader(self, run: Run) -> RunReader:
        """Return the reader of a run; errors name its file."""
        add = run.add
        if add.id not in self._readers:
            if add.path not in self._files:
                self._files[add.path] = self._fs.open(add.path)
            self._readers[add.id] = _open_run(self._fs, self._files[add.path], add, self._cache)
        return self._readers[add.id]

    def rows(self, run: Run, cut: Key | None) -> SortedRows:
        """Return the rows of a run below a cut, without those that a job took before."""
        names = self._definition.keys
        if run.marks.keys is None or (cut is not None and run.marks.keys[0] >= cut):
            return SortedRows(iter(()), self._definition.schema, len(names))
        reader = self.reader(run)
        start = run.marks.keys[0] if run.add.skip_rows else None
        return SortedRows(reader.scan(start, cut), reader.schema, len(names))

    def left(self, run: Run, cut: Key | None, taken_rows: int) -> Left | None:
        """Return what is left of a run of which all rows below a cut were taken; None for a run that ends below it.

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

    What is below has rows of at least one block, however large that is.
    """
    folded = group.below(None).folded
    if sum(run.size for run in folded) <= job_bytes:
        return None
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


def _open_run(fs: FileSystem, file: InputFile, add: Add, cache: Cache) -> RunReader:
    if not add.filters:
        return RunReader(lambda offset, length: file.read_at(add.offset + offset, length), add.length, add.path, cache)
    keys = keys_of(fs)
    if keys is None:
        raise ConfigError(f"{add.path!r} is encrypted, and no keys are known")
    stored = RangeFile(add.path, add.length, lambda offset, length: file.read_at(add.offset + offset, length))
    identity = storage_identity("segment", add.path, add.offset)
    plain = decrypted_file(as_file(stored), keys, identity, add.logical_length)

    def read_range(offset: int, length: int) -> bytes:
        plain.seek(offset)
        found = bytearray()
        while len(found) < length and (data := plain.read(length - len(found))):
            found += data
        return bytes(found)

    return RunReader(read_range, add.logical_length, add.path, cache)
