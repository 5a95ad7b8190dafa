"""`kv.verify`, which reads every live run of a store and compares it with the log."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData, NotFound
from ftfile.core.progress import Tracker
from ftfile.kv.hashing import bucket_number, buckets_of, hash_rows
from ftfile.kv.key_columns import text_of_value
from ftfile.kv.merge_functions import code_of
from ftfile.kv.planning.runs import Run, adds_of, are_apart, row_count
from ftfile.kv.reading.reader import open_store
from ftfile.kv.run.pages import Cache
from ftfile.kv.run_files import OpenFiles, open_run
from ftfile.log.format.adds import total_bytes
from ftfile.log.places import check_segment
from ftfile.writing.workers import Threads, Work

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments
    from ftfile.core.progress import OnProgress
    from ftfile.kv.definition import StoreDefinition
    from ftfile.kv.reading.reader import Reader
    from ftfile.kv.reading.view import View
    from ftfile.storage.api import FileSystem
    from ftfile.writing.messages import TaskIdentity
    from ftfile.writing.workers import Workers


_READ_BYTES = 4 << 20
_CACHE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRun:
    """A run that differs from the committed run.

    Attributes:
        path: of its file, relative to the store.
        offset: of its first byte in the file.
        bucket: its number.
        error: the damage and its place.
    """

    path: str
    offset: int
    bucket: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """The result of `verify`.

    Attributes:
        version: the verified version.
        runs: number of verified runs.
        rows: number of their rows, from the log.
        damaged: the damaged runs; empty if all runs are intact.
        not_asked: the merge classes of users in the definition of the store. `verify` does not import them.
    """

    version: int
    runs: int
    rows: int
    damaged: tuple[DamagedRun, ...]
    not_asked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return True if no run is damaged."""
        return not self.damaged


def verify(
    path: str | os.PathLike[str],
    *,
    version: int | None = None,
    threads: int | None = None,
    progress: OnProgress | None = None,
    **access: Unpack[AccessArguments],
) -> StoreReport:
    """Read all runs of a version, and return the damaged runs. Writes nothing; safe while writers run.

    Checks of each run: its bytes have the committed checksum, and so has each block and page. Its keys ascend, belong
    to the run's bucket, and start and end with the committed keys. Its pages find every row. Runs of a bucket with
    common keys must have disjoint positions.

    Each thread needs memory for some blocks; by default there is one thread for each core. `progress` is called with a
    `Progress` after each file. For `access` and errors see `ftfile.kv.open`. Damaged runs are returned, not raised.

    Raises:
        ConfigError: also if `threads` is below 1.
    """
    workers = Threads.of("verify", threads, access.get("context", SYSTEM))
    return verify_runs(open_store(path, version=version, **access), workers, progress)


def verify_runs(reader: Reader, workers: Workers, progress: OnProgress | None) -> StoreReport:
    """Return the damaged runs of a reader's version, all of whose runs the workers read; see `verify`."""
    view, fs = reader.view, reader.log.fs
    runs = sorted(view.runs, key=attrgetter("add.path", "add.offset"))
    pieces = [tuple(group) for _, group in groupby(runs, key=attrgetter("add.path"))]
    work = _Checking(view.definition)
    tracker = Tracker(
        "verify", fs.context.clock, on_progress=progress, total=len(pieces), total_bytes=sum(map(work.size_of, pieces))
    )
    errors: dict[str, str] = {}
    for number, run_errors in workers.do(work, pieces, fs, {}):
        tracker.add(1, work.size_of(pieces[number]))
        errors |= run_errors
    damaged: list[DamagedRun] = []
    for run in runs:
        bucket = bucket_number(run.add.directory_key)
        run_problems = [*_not_apart(run, view)]
        if run.add.id in errors:
            run_problems.insert(0, errors[run.add.id])
        for problem in run_problems:
            damaged.append(DamagedRun(path=run.add.path, offset=run.add.offset, bucket=bucket, error=problem))
    not_asked = tuple(sorted(code_of(view.definition.merge)))
    return StoreReport(
        version=view.version, runs=len(runs), rows=row_count(runs), damaged=tuple(damaged), not_asked=not_asked
    )


@dataclass(frozen=True, slots=True)
class _Checking(Work[tuple[Run, ...], dict[str, str]]):
    """Reads the runs of a file, and returns the errors of damaged runs."""

    definition: StoreDefinition

    def size_of(self, piece: tuple[Run, ...]) -> int:
        """Return the bytes of the runs."""
        return total_bytes(adds_of(piece))

    def do(self, fs: FileSystem, _: TaskIdentity, pieces: Sequence[tuple[Run, ...]]) -> Iterator[dict[str, str]]:
        """Yield the errors of each file, by run id."""
        files = OpenFiles(fs, maps=False)
        for runs in pieces:
            errors = {}
            for run in runs:
                try:
                    _check_run(run, files, self.definition)
                except NotFound as error:
                    errors[run.add.id] = f"its file is missing: {error}"
                except (CorruptData, ConfigError) as error:
                    errors[run.add.id] = str(error)
            yield errors


def _not_apart(run: Run, view: View) -> Iterator[str]:
    """Yield an error for each run that overlaps another run in position and keys."""
    for part in view.buckets[bucket_number(run.add.directory_key)].parts:
        if part.run.id < run.id and not are_apart(run, part.run):
            yield (
                f"it shares keys with the run {part.run.id} at {part.run.add.path!r}, and the order of the two runs is "
                "undefined"
            )


def _check_run(run: Run, files: OpenFiles, definition: StoreDefinition) -> None:
    """Raise `CorruptData` if a run differs from the committed run."""
    add = run.add
    reader = open_run(files, add, Cache(_CACHE_BYTES))
    reader.verify()  # its error names block or page, unlike the checksum of all bytes
    check_segment(files.fs, add)
    if reader.rows != add.rows:
        raise CorruptData(add.path, f"{add.rows} rows", f"{reader.rows} rows")
    keys = (reader.first_key, reader.last_key)
    if run.metadata.keys is not None and keys != run.metadata.keys:
        first, last = run.metadata.keys
        raise CorruptData(add.path, f"{first!r} as the first key, and {last!r} as the last one", f"{keys!r}")
    bucket = bucket_number(add.directory_key)
    for batch in reader.scan(columns=definition.bucket_by):
        buckets = buckets_of(hash_rows(batch.columns), definition.buckets)
        for row in np.flatnonzero(buckets != bucket)[:1].tolist():
            key = ", ".join(text_of_value(column[row]) for column in batch.columns)
            raise CorruptData(add.path, f"keys of bucket {bucket}", f"({key}) of bucket {buckets[row]}")
