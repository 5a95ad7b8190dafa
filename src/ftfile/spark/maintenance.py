"""Maintenance of large directories in the tasks of a Spark job, such as `ftfile.spark.compact`."""

from __future__ import annotations

import contextlib
import heapq
import io
import os
import pickle
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.core.logs import get_logger
from ftfile.filters.aes_gcm import AesGcm
from ftfile.filters.decoded import stream_errors
from ftfile.kv.merge_functions import code_of
from ftfile.kv.reading.reader import Reader
from ftfile.kv.reading.verify import verify_runs
from ftfile.kv.upkeep.compact import CompactionRounds
from ftfile.log.directory import check_is_files, read_marker, store_of, write_marker
from ftfile.log.sealed import SealedFileSystem
from ftfile.operate.compact import TARGET_BYTES, choice_of
from ftfile.operate.delete import Deleting
from ftfile.operate.export.after_commit import operating
from ftfile.operate.flush import Flush, files_each
from ftfile.operate.rewriting import rewrite
from ftfile.operate.verify.verify_directory import verify as verify_directory
from ftfile.spark.settings import TaskDirectory, absolute_options, check_shared
from ftfile.spark.shipping import Shipped
from ftfile.storage.registry import normalise, settings_for_others
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow.compute as pc
    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from ftfile.core.arguments import SparkOperationArguments
    from ftfile.kv.reading.verify import StoreReport
    from ftfile.kv.upkeep.compact import CompactReport
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import MaintenanceAuthor
    from ftfile.operate.flush import FlushReport
    from ftfile.operate.rewriting import RewriteReport
    from ftfile.operate.verify.verify_directory import VerifyReport
    from ftfile.storage.api import FileSystem
    from ftfile.writing.workers import Piece, Result, Work


# Bytes that one task reads if there are more tasks than cores. A failed task is repeated completely.
SHARE_BYTES = 256 << 20

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SparkTasks(Workers):
    """The tasks of a cluster. If the directory is encrypted, their input and results are encrypted as well."""

    spark: SparkSession
    place: TaskDirectory

    def do(
        self, work: Work[Piece, Result], pieces: Sequence[Piece], fs: FileSystem, written: Mapping[str, str]
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results after all tasks have ended. Spark repeats failed tasks.

        Raises:
            Py4JJavaError, PySparkException: a task failed as often as Spark allows.
        """
        if not pieces:
            return
        sizes = [work.size_of(piece) for piece in pieces]
        shares = shares_of(sizes, min(len(pieces), max(self.at_once, sum(sizes) // SHARE_BYTES)))
        place = replace(self.place, storage=(*written.items(), *self.place.storage))
        packed = []
        for share in shares:
            packed.append(_pack_things(fs, [pieces[number] for number in share]))
        task = _Shares(place, self.operation_id, work, packed)
        _log.info("%d pieces of work are divided among %d tasks", len(pieces), len(shares))

        def results(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return task.read(batches)

        numbers = self.spark.range(0, len(shares), 1, len(shares))
        rows = numbers.mapInArrow(results, "number long, result binary").collect()
        for share, (_, result) in zip(shares, sorted(rows), strict=True):
            yield from zip(share, _unpack_things(fs, bytes(result)), strict=False)


def shares_of(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Return the indexes of pieces, divided into non-empty shares of similar size."""
    shares: list[list[int]] = [[] for _ in range(count)]
    least = [(0, number) for number in range(count)]
    for piece in sorted(range(len(sizes)), key=lambda piece: -sizes[piece]):
        size, number = least[0]
        shares[number].append(piece)
        heapq.heapreplace(least, (size + max(sizes[piece], 1), number))
    return shares


class _Shares(Shipped):
    """The work of the tasks of a job."""

    def __init__(self, place: TaskDirectory, operation_id: str, work: Work[Any, Any], shares: Sequence[bytes]) -> None:
        self._place = place
        self._operation_id = operation_id
        self._work = work
        self._shares = shares

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of the shares with these numbers."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                columns = [pa.array([number]), pa.array([self._result(number)], pa.binary())]
                yield pa.RecordBatch.from_arrays(columns, ["number", "result"])

    def _result(self, number: int) -> bytes:
        fs, context = self._place.open(), TaskContext.get()
        if context is None:
            attempt = 0
        else:
            attempt = context.attemptNumber()
        task = TaskIdentity(OperationIdentity(self._operation_id), number, attempt)
        return _pack_things(fs, self._work.do(fs, task, _unpack_things(fs, self._shares[number])))


class _Pickler(pickle.Pickler):
    """Pickles errors of other packages as text, because the other process may not have their class."""

    def reducer_override(self, thing: Any) -> Any:  # noqa: ANN401 - any object
        if isinstance(thing, Exception) and not isinstance(thing, FtfileError):
            return FtfileError, (f"{type(thing).__name__}: {thing}",)
        return NotImplemented


def _pack_things(fs: FileSystem, things: Iterable[Any]) -> bytes:
    """Return pieces or results as bytes, encrypted if the directory is, because Spark may store them on its disks."""
    file = io.BytesIO()
    _Pickler(file).dump([*things])
    if not isinstance(fs, SealedFileSystem):
        return file.getvalue()
    stream = AesGcm(fs.key_id, fs.keys).encoder(_TRAVELLING)
    return stream.feed(file.getvalue()) + stream.finish()


def _unpack_things(fs: FileSystem, content: bytes) -> list[Any]:
    if isinstance(fs, SealedFileSystem):
        stream = AesGcm(keys=fs.keys).decoder(_TRAVELLING)
        with stream_errors(_TRAVELLING):
            content = stream.feed(content) + stream.finish()
    things: list[Any] = pickle.loads(content)  # noqa: S301 - of our own driver or tasks
    return things


_TRAVELLING = "work for tasks"


def compact(  # noqa: PLR0913 - all by name
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression | None = None,
    *,
    sort_by: str | Sequence[str] | None = None,
    target_bytes: int | None = None,
    commit_every: int | None = None,
    full: bool = False,
    merge: str | Mapping[str, str] | None = None,
    **access: Unpack[SparkOperationArguments],
) -> RewriteReport | CompactReport:
    """Merge files as `ftfile.compact` does, or runs of a store as `ftfile.kv.compact`, and return a report.

    Spark tasks merge, and this process commits. If the call fails, committed compactions remain, and vacuum deletes the
    files of failed tasks. For a store, each round of jobs is a record, with up to two files for each task. Safe while
    writers and readers run.

    Args:
        spark: a session whose executors have this version of ftfile, and can access the path.
        path: of the directory of files, or of the store.
        where: see `ftfile.compact`; only for files, like the next three.
        sort_by: see `ftfile.compact`.
        target_bytes: see `ftfile.compact`.
        commit_every: new parts after which a record is created, each by a separate Spark job.
        full: merge each bucket into one sorted run; only for stores.
        merge: see `ftfile.kv.open`; only for stores.
        **access: how the directory is opened, as in `ftfile.open`. `tasks` run in parallel, by default
            `spark.sparkContext.defaultParallelism`. `progress` is called with a `Progress` for each compaction, after
            the tasks of its record have ended.

    Raises:
        ConfigError: as `ftfile.compact`; or an argument does not apply to this kind of directory, or executors see
            another directory at the path.
        FtfileError, CommitError: as `ftfile.compact`.
        Py4JJavaError, PySparkException: a task failed as often as Spark allows.
    """
    of_files = {"where": where, "sort_by": sort_by, "target_bytes": target_bytes, "commit_every": commit_every}
    with _maintaining("compact", spark, path, access) as (log, author, workers):
        is_store, progress = store_of(log.refresh()) is not None, access.get("progress")
        if is_store:
            _check_no_others(workers.place.path, of_files, is_store=True)
            return CompactionRounds(
                log=log, author=author, workers=workers, code=code_of(merge), progress=progress
            ).compact(full=full)
        _check_no_others(workers.place.path, {"full": full or None, "merge": merge}, is_store=False)
        if target_bytes is None:
            target_bytes = TARGET_BYTES
        choice = choice_of(log, where, sort_by=sort_by, target_bytes=target_bytes, commit_every=commit_every)
        return rewrite(log, author, workers, choice, progress=progress)


def flush(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    due_only: bool = False,
    query_id: str | None = None,
    commit_every: int | None = None,
    code: Collection[str] = (),
    **access: Unpack[SparkOperationArguments],
) -> FlushReport:
    """Finish open files as `ftfile.flush` does, in Spark tasks, and return a report.

    This process commits. The call is idempotent and safe like `ftfile.flush`. If a task fails permanently, its error is
    raised. Committed files remain, the other files stay open, and vacuum deletes the files of failed tasks.

    Args:
        spark: see `compact`.
        path: of the directory.
        due_only: see `ftfile.flush`.
        query_id: see `ftfile.flush`.
        commit_every: see `ftfile.flush`; each record has a separate Spark job.
        code: see `ftfile.flush`.
        **access: see `compact`; `progress` is called for each job, after the tasks of its record have ended.

    Raises:
        ConfigError: the directory does not contain files, its keys are unknown, or executors see another directory at
            the path.
        FtfileError: as `ftfile.flush`.
        Py4JJavaError, PySparkException: a task failed as often as Spark allows.
    """
    with _maintaining("flush", spark, path, access) as (log, author, workers):
        url = workers.place.path
        check_is_files(log.refresh(), url, "merge its runs with ftfile.spark.compact")
        flush = Flush(
            url=url,
            access=Access.of(access),
            log=log,
            author=author,
            workers=workers,
            query_id=query_id,
            due_only=due_only,
            commit_every=files_each(commit_every),
            code=frozenset(code),
            progress=access.get("progress"),
        )
        return flush.run()


def delete(
    spark: SparkSession,
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression,
    *,
    dry_run: bool = False,
    code: Collection[str] = (),
    **access: Unpack[SparkOperationArguments],
) -> RewriteReport:
    """Delete the rows for which a condition is true, as `ftfile.delete` does, and return a report.

    Spark tasks read and write files, and this process commits one record. If the call fails, no row is deleted.

    Args:
        spark: see `compact`.
        path: of the directory.
        where: see `ftfile.delete`.
        dry_run: see `ftfile.delete`; tasks count the rows.
        code: see `ftfile.flush`.
        **access: see `compact`; `progress` is called for each file, after the tasks have ended.

    Raises:
        ConfigError: as `ftfile.delete`; or executors see another directory at the path.
        FtfileError, CommitError: as `ftfile.delete`.
        Py4JJavaError, PySparkException: a task failed as often as Spark allows; no row was deleted.
    """
    with _maintaining("delete", spark, path, access) as (log, author, workers):
        deleting = Deleting(
            url=workers.place.path,
            access=Access.of(access),
            log=log,
            author=author,
            workers=workers,
            code=frozenset(code),
            progress=access.get("progress"),
        )
        return deleting.run(where, dry_run=dry_run)


def verify(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    full: bool | None = None,
    **access: Unpack[SparkOperationArguments],
) -> VerifyReport | StoreReport:
    """Compare files with their log as `ftfile.open(path).verify()` does, or runs of a store as `ftfile.kv.verify`.

    Nothing is written. The call is safe while queries run. Spark tasks read the content. This process reads the log and
    lists the files.

    Args:
        spark: see `compact`.
        path: of the directory of files, or of the store.
        full: read the content, the default; without it, no tasks run. Only for files.
        **access: see `compact`; `progress` is called for each file, after the tasks have ended.

    Raises:
        ConfigError: nothing was committed to the path, its keys are unknown, `full` is given for a store, or executors
            see another directory at the path.
        StorageError: the storage failed.
        Py4JJavaError, PySparkException: a task failed as often as Spark allows.
    """
    with _maintaining("verify", spark, path, access) as (log, _, workers):
        least, progress = access.get("at_least_version"), access.get("progress")
        if store_of(log.refresh()) is not None:
            _check_no_others(workers.place.path, {"full": full}, is_store=True)
            return verify_runs(Reader(log, workers.place.path), workers, progress)
        is_full = full is not False
        return verify_directory(log.fs, full=is_full, workers=workers, progress=progress, at_least_version=least)


class _Maintenance(NamedTuple):
    """What an operation runs with."""

    log: CommitLog
    author: MaintenanceAuthor
    tasks: SparkTasks


@contextlib.contextmanager
def _maintaining(
    operation: str, spark: SparkSession, path: str | os.PathLike[str], arguments: SparkOperationArguments
) -> Iterator[_Maintenance]:
    """Provide the log of a directory, the author of an operation's records, and the tasks that run the operation.

    Raises:
        ConfigError: the log is missing, `tasks` is wrong or unknown, or other processes cannot access the path.
    """
    at_once, access = _tasks_of(spark, arguments.get("tasks")), Access.of(arguments)
    url = normalise(absolute_options({"path": os.fspath(path)})["path"])
    with operating(operation, url, access) as (log, author):
        check_shared(log.fs, url)
        executor_settings = tuple(settings_for_others(url, access.settings).items())
        if operation == "verify":
            marker = read_marker(log.fs)
        else:
            marker = write_marker(log.fs)
        place = TaskDirectory(path=url, key_provider=access.key_provider, storage=executor_settings, marker=marker)
        yield _Maintenance(log, author, SparkTasks(author.operation_id, at_once, spark, place))


def _check_no_others(path: str, arguments: Mapping[str, object], *, is_store: bool) -> None:
    """Raise a ConfigError for arguments that apply only to the other kind of directory."""
    kind, other = ("a store", "a directory of files")[:: 1 if is_store else -1]
    for name, value in arguments.items():
        if value is not None:
            raise ConfigError(f"{name}: {path!r} is {kind}, and only {other} takes it")


def _tasks_of(spark: SparkSession, tasks: int | None) -> int:
    """Return the number of tasks that the cluster runs in parallel."""
    if tasks is not None:
        if tasks < 1:
            raise ConfigError(f"tasks={tasks}: there must be at least one")
        return tasks
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigError("a Spark Connect session does not know the cores of its cluster: set the number of `tasks`")
    return spark.sparkContext.defaultParallelism
