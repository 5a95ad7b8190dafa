"""The pieces of a maintenance operation, shared among the tasks of a Spark job."""

from __future__ import annotations

import heapq
import io
import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext

from ftfile.attempt.identity import JobIdentity, TaskIdentity
from ftfile.attempt.pieces.workers import Workers
from ftfile.commit.sealed.filesystem import SealedFileSystem
from ftfile.core.errors import FtfileError
from ftfile.core.logs import get_logger
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.decoded import stream_errors
from ftfile.spark.shipping import Shipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from ftfile.attempt.pieces.workers import Piece, Result, Work
    from ftfile.fs.api import FileSystem
    from ftfile.spark.settings import Place

# Read by one task, where there is more than one for each core: a task that dies is repeated as a whole.
SHARE_BYTES = 256 << 20

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SparkTasks(Workers):
    """The tasks of a cluster. What travels to them and back is sealed where the directory is encrypted."""

    spark: SparkSession
    place: Place

    def do(
        self, work: Work[Piece, Result], pieces: Sequence[Piece], fs: FileSystem, written: Mapping[str, str]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results once all tasks have ended. Spark repeats a task that dies.

        Raises:
            Py4JJavaError, PySparkException: a task failed as often as Spark allows.
        """
        if not pieces:
            return
        sizes = [work.size_of(piece) for piece in pieces]
        shares = shares_of(sizes, min(len(pieces), max(self.at_once, sum(sizes) // SHARE_BYTES)))
        place = replace(self.place, storage=(*self.place.storage, *written.items()))
        packed = [_packed(fs, [pieces[number] for number in share]) for share in shares]
        task = _Shares(place, self.job_id, work, packed)
        _log.info("%d pieces of work go to %d tasks", len(pieces), len(shares))

        def results(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return task.read(batches)

        numbers = self.spark.range(0, len(shares), 1, len(shares))
        rows = numbers.mapInArrow(results, "number long, result binary").collect()
        for share, (_, result) in zip(shares, sorted(rows), strict=True):
            yield from zip(share, _unpacked(fs, bytes(result)), strict=False)


def shares_of(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Return the numbers of pieces of these sizes in shares of similar size, none of them empty."""
    shares: list[list[int]] = [[] for _ in range(count)]
    least = [(0, number) for number in range(count)]
    for piece in sorted(range(len(sizes)), key=lambda piece: -sizes[piece]):
        size, number = least[0]
        shares[number].append(piece)
        heapq.heapreplace(least, (size + max(sizes[piece], 1), number))
    return shares


class _Shares(Shipped):
    """The work of the tasks of a job."""

    def __init__(self, place: Place, job_id: str, work: Work[Any, Any], shares: Sequence[bytes]) -> None:
        self._place = place
        self._job_id = job_id
        self._work = work
        self._shares = shares

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of the shares that have these numbers."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                columns = [pa.array([number]), pa.array([self._result(number)], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["number", "result"])

    def _result(self, number: int) -> bytes:
        fs, context = self._place.open(), TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        task = TaskIdentity(JobIdentity(self._job_id), number, attempt)
        return _packed(fs, self._work.do(fs, task, _unpacked(fs, self._shares[number])))


class _Pickler(pickle.Pickler):
    """Pickles errors that are not ours as text: the other side may not know their class."""

    def reducer_override(self, thing: Any) -> Any:  # noqa: ANN401 - whatever is pickled
        if isinstance(thing, Exception) and not isinstance(thing, FtfileError):
            return FtfileError, (f"{type(thing).__name__}: {thing}",)
        return NotImplemented


def _packed(fs: FileSystem, things: Iterable[Any]) -> bytes:
    """Return pieces or results as bytes, sealed where the directory is encrypted: Spark may keep them on its disks."""
    file = io.BytesIO()
    _Pickler(file).dump([*things])
    if not isinstance(fs, SealedFileSystem):
        return file.getvalue()
    stream = AesGcm(fs.key_id, fs.keys).encoder(_TRAVELLING)
    return stream.feed(file.getvalue()) + stream.finish()


def _unpacked(fs: FileSystem, content: bytes) -> list[Any]:
    if isinstance(fs, SealedFileSystem):
        stream = AesGcm(keys=fs.keys).decoder(_TRAVELLING)
        with stream_errors(_TRAVELLING):
            content = stream.feed(content) + stream.finish()
    things: list[Any] = pickle.loads(content)  # noqa: S301 - of our own driver or tasks
    return things


_TRAVELLING = "work for tasks"
