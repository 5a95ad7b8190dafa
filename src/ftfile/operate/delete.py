"""Rows removed by a condition, of whole directories (`drop`) or in them (`delete`); which directories one is for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError
from ftfile.formats.partition_paths import chosen_places, partition_schema
from ftfile.log.directory import check_is_files
from ftfile.log.format.layout import directory_of
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.opening import written_settings
from ftfile.log.read.snapshot import snapshot_at
from ftfile.operate.export.after_commit import operating
from ftfile.operate.flush import Flush
from ftfile.operate.rewriting import Choice, RowRewriter, pieces_of, rewrite
from ftfile.read.selection import Selection, Without
from ftfile.rows.moments import with_clock_values
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.value_text import UTC
from ftfile.storage.registry import normalise
from ftfile.write.files.directory_settings import DirectoryPattern
from ftfile.write.files.rolling_groups import GroupKey, key_of
from ftfile.write.workers import Threads

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    import pyarrow.compute as pc
    from typing_extensions import Unpack

    from ftfile.core.arguments import OperationArguments
    from ftfile.core.context import Clock, OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.operate.rewriting import Live, Piece, RewriteReport
    from ftfile.read.selection import ChosenAdd
    from ftfile.write.workers import Workers


DIRECTORY_TIME = pa.field("directoryTime", pa.timestamp("us"))


def settled_for(
    head: LogState, where: Mapping[str, object] | str | pc.Expression, clock: Clock
) -> Mapping[str, object] | str | pc.Expression:
    """Return a condition with times by this clock as literals, by the time zone of the newest writer."""
    return with_clock_values(where, clock.now_ms(), _time_zone(head))


def _time_zone(head: LogState) -> str:
    """Return the time zone of the newest writer."""
    zone: str = UTC if head.encoding is None else head.definitions[head.encoding].get("timeZone", UTC)
    return zone


def select(
    head: LogState,
    snapshot: Snapshot,
    where: Mapping[str, object] | str | pc.Expression,
    directory_pattern: str | None = None,
) -> list[Add]:
    """Return the adds of the directories that match a condition on partition columns, as readers see them.

    See `rows.conditions`. With `directory_pattern`, as in the option `directoryPattern`, the condition may name
    `BUCKET_TIME`, too: the begin of the time of a directory, without time zone; null for directories of no such time.
    The snapshot knows how all adds are encoded, the state only how the last ones are.

    Raises:
        ConfigError: it is no condition, a column is no partition column, or a value none of its type.
    """
    newest: dict[str, Any] = {"partitionBy": [], "timeZone": UTC}
    if head.encoding is not None:
        newest = head.definitions[head.encoding]
    schema = recorded_schema(head.definitions[head.schema]) if head.schema is not None else pa.schema([])
    adds = list(snapshot.adds.values())
    places = [(add.directory_key, snapshot.definitions[add.encoding]["timeZone"]) for add in adds]
    columns = newest["partitionBy"]
    derived = None
    if directory_pattern is not None:
        pattern = DirectoryPattern.of_directories(directory_pattern)
        derived = (DIRECTORY_TIME, partial(_times, pattern, len(columns)))
    chosen = chosen_places(where, partition_schema(schema, columns), places, derived)
    return [add for add, place in zip(adds, places, strict=True) if place in chosen]


def _times(pattern: DirectoryPattern, above: int, keys: Sequence[str]) -> pa.Array:
    """Return the times of directories, below `above` directories of columns."""
    end = above + pattern.depth
    return pattern.begins(["/".join(directory_of(key).split("/")[above:end]) for key in keys])


ALL = "all"


def drop(
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression,
    *,
    dry_run: bool = False,
    directory_pattern: str | None = None,
    **access: Unpack[OperationArguments],
) -> RewriteReport:
    """Remove all rows of some directories, finished or open, in one record, and return how many.

    A second drop with nothing there creates no record. Safe beside running queries: what they commit later stays.
    `where` is a condition on partition columns: values, such as `{"month": 7}` or `{"month": [7, 8]}`; a text, such as
    `"month BETWEEN 1 AND 6 AND city IS NOT NULL"`; or an expression of pyarrow, such as `pc.field("month") < 7`. Or it
    is the word "all" for every row in the directory. Older versions can be read until a vacuum.
    A text may count from now, as in `"day < current_date() - interval 30 days"`, by the clock of this machine and the
    `timeZone` of the newest writer; the record has the date. With `directory_pattern`, as the option
    `directoryPattern`, a condition may name `directoryTime`, too: when the time of a directory begins, by its own
    clocks; others stay. With `dry_run`, it writes nothing, and returns how many it would remove now. `progress` is
    called in this thread after each file that is hidden; what it raises leaves the rest to the next commit. For the
    rest of `access` see `ftfile.open`.

    Raises:
        ConfigError: the path is no ftfile directory, `where` is no condition, names a column that is no partition
            column, or compares it with no value of its type.
        CommitError: as for a batch write; `NotPublished` means that the rows are dropped, and their files hidden later.
    """
    everything = _is_everything(where)
    with operating("drop", path, Access.of(access)) as (log, author):
        check_is_files(log.refresh(), os.fspath(path), "delete its rows with ftfile.kv.purge")
        where = settled_for(log.refresh(), where, log.clock)
        choice = Directories(None if everything else where, directory_pattern)
        workers, progress = Threads.of(author.job_id, 1, log.fs.context), access.get("progress")
        return rewrite(log, author, workers, choice, dry_run=dry_run, progress=progress)


@dataclass(frozen=True, slots=True)
class Directories(Choice):
    """The choice of a drop: whole directories."""

    where: Mapping[str, object] | str | pc.Expression | None  # None for all
    directory_pattern: str | None

    @property
    def text(self) -> str | None:
        """Return the condition, if it is a text."""
        return self.where if isinstance(self.where, str) else None

    def removed(self, head: LogState, live: Live) -> Sequence[Add]:
        """Return the adds of the directories at a head: also those that came since the drop began."""
        snapshot = live()
        if self.where is None:
            return [*snapshot.adds.values()]
        return select(head, snapshot, self.where, self.directory_pattern)


def delete(
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression,
    *,
    dry_run: bool = False,
    code: Collection[str] = (),
    threads: int | None = None,
    **access: Unpack[OperationArguments],
) -> RewriteReport:
    """Remove the rows for which a condition is true, finished or open, in one record, and return how many.

    A row goes if and only if `ftfile.open(path).to_arrow(where=where)` returns it. Files of which all rows match end;
    files of which some do are written anew without them, which each new file is checked for; all others stay. Open
    files with such rows are finished first, as by a flush. A second delete with nothing there creates no record. Safe
    beside running queries, readers and other maintenance: what is committed after it began may stay. Rows that it is
    to remove are all gone when it returns, and none is when it fails. It may be interrupted or killed at any point.
    Older versions have the rows until a vacuum.

    Args:
        path: of the directory.
        where: a condition on any columns, as `to_arrow` takes it: values by column, a text, or an expression of
            pyarrow. Times by a clock are those of now, in the `timeZone` of the newest writer.
        dry_run: return how many rows, files and bytes it would remove now, and write nothing. It reads the columns of
            the condition.
        code: see `ftfile.flush`.
        threads: that read and write, each with memory for some row groups; by default one for each core.
        **access: how the directory is opened, as `ftfile.open` does; `progress` is called in this thread with a
            `Progress` after each file; what it raises ends the delete.

    Raises:
        ConfigError: the path is no ftfile directory, `where` is no condition on its columns, or fails on their values,
            or an argument is wrong.
        FtfileError: a file is not what was recorded (`CorruptData`), or open rows could not be made files.
        StorageError: the store failed.
        CommitError: as for a batch write; or others replaced files with such rows again and again. But for
            `NotPublished`, which means that the rows are gone, and their files hidden later, nothing was removed.
    """
    with operating("delete", path, Access.of(access)) as (log, author):
        deleting = Deleting(
            url=normalise(os.fspath(path)),
            access=Access.of(access),
            log=log,
            author=author,
            workers=Threads.of(author.job_id, threads, log.fs.context),
            code=frozenset(code),
            progress=access.get("progress"),
        )
        return deleting.run(where, dry_run=dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleting:
    """One delete, by these workers."""

    url: str
    access: Access
    log: CommitLog
    author: MaintenanceAuthor
    workers: Workers
    code: frozenset[str]  # names of classes and functions that may be imported
    progress: OnProgress | None

    def run(self, where: Mapping[str, object] | str | pc.Expression, *, dry_run: bool) -> RewriteReport:
        """Remove rows; see `delete`."""
        log = self.log
        head = log.refresh()
        check_is_files(head, self.url, "delete its rows with ftfile.kv.purge")
        if where is None or (isinstance(where, Mapping) and not where):
            raise ConfigError(
                f'where={where!r} does not choose rows to delete: give a condition, such as {{"id": 7}} or '
                f'"id = 7"; ftfile.drop(path, "{ALL}") removes every row'
            )
        where = settled_for(head, where, log.clock)
        choice = MatchingRows(where, takes_open=dry_run)
        if not dry_run:
            self._finish_open(MatchingRows(where, takes_open=True))
        return rewrite(log, self.author, self.workers, choice, dry_run=dry_run, progress=self.progress)

    def _finish_open(self, choice: MatchingRows) -> None:
        """Finish the open files that have rows which match: what is open is not written anew."""
        head = self.log.refresh(durable=True)
        if not head.segments:
            return
        snapshot = snapshot_at(self.log, head)
        segments = [piece for piece in choice.pieces(head, lambda: snapshot, ()) if piece.inputs[0].kind == "segment"]
        work = RowRewriter(snapshot.version, snapshot.definitions, dry_run=True)
        groups = set[GroupKey]()
        for number, outcome in self.workers.do(work, segments, self.log.fs, dict(written_settings(head))):
            for error in outcome.errors:
                raise error
            if outcome.rows_removed:
                groups.add(key_of(segments[number].inputs[0]))
        if groups:
            # What a failing delete takes away again is its own job's alone.
            author = MaintenanceAuthor("flush", self.log.ids.unique())
            workers = replace(self.workers, job_id=author.job_id)
            flush = Flush(
                url=self.url,
                access=self.access,
                log=self.log,
                author=author,
                workers=workers,
                code=self.code,
                progress=self.progress,
                only=frozenset(groups),
            )
            flush.run()


@dataclass(frozen=True, slots=True)
class MatchingRows(Choice):
    """The choice of a delete: the rows that a read with a condition returns."""

    takes_all: ClassVar[bool] = True
    where: Mapping[str, object] | str | pc.Expression
    takes_open: bool  # segments, too, which are read and never written anew

    @property
    def text(self) -> str | None:
        """Return the condition, if it is a text."""
        return self.where if isinstance(self.where, str) else None

    def pieces(self, head: LogState, live: Live, apart: Container[str]) -> list[Piece]:
        """Return the files that may have some of the rows, each by itself."""
        snapshot, withouts = live(), dict[tuple[str, str], Without]()
        filtered, chosen_adds = self._chosen(head, snapshot)
        lists = []
        for add, where, partition in chosen_adds:
            if where is None or add.id in apart or (add.kind == "segment" and not self.takes_open):
                continue
            lists.append([add])
            key = (add.directory_key, add.encoding)
            if key not in withouts:
                withouts[key] = Without(where, partition, filtered)
        return pieces_of(snapshot.adds.values(), lists, lambda add: withouts[add.directory_key, add.encoding])

    def removed(self, head: LogState, live: Live) -> list[Add]:
        """Return the adds of directories of which all rows match: also those that came since the delete began."""
        _, chosen_adds = self._chosen(head, live())
        return [add for add, where, _ in chosen_adds if where is None]

    def _chosen(self, head: LogState, snapshot: Snapshot) -> tuple[pa.Schema, Iterable[ChosenAdd]]:
        """Return the columns of the condition, and the adds that may have rows for which it is true."""
        if snapshot.schema is None:
            return pa.schema([]), ()
        schema = recorded_schema(snapshot.definitions[snapshot.schema])
        selection = Selection(snapshot, schema, None, self.where, _time_zone(head))
        return selection.filtered, selection.adds()


def _is_everything(where: object) -> bool:
    """Return True for every row; ConfigError for what is neither that nor a condition."""
    if where is None or (isinstance(where, Mapping) and not where):
        raise ConfigError(
            f"where={where!r} does not choose rows to drop: give a condition on partition columns, such as "
            f'{{"month": 7}} or "month < 7", or "{ALL}" for every row in the directory'
        )
    return isinstance(where, str) and where == ALL
