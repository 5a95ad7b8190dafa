"""Removal of rows by a condition: whole directories with `drop`, single rows with `delete`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ftfile.core.arguments import Access
from ftfile.core.errors import ConfigError
from ftfile.core.remedies import Advice, Argument, Remedy
from ftfile.formats.partition_paths import chosen_places, partition_schema
from ftfile.log.directory import check_is_files
from ftfile.log.format.layout import directory_of
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.opening import written_settings
from ftfile.log.read.snapshot import snapshot_at
from ftfile.operate.export.after_commit import operating
from ftfile.operate.flush import Flush
from ftfile.operate.rewriter.pieces import pieces_of
from ftfile.operate.rewriter.row_rewriter import RowRewriter
from ftfile.operate.rewriting import RewriteChoice, rewrite
from ftfile.read.selection import Selection, Without
from ftfile.rows.moments import with_clock_values
from ftfile.rows.spark_types import recorded_schema
from ftfile.rows.value_text import UTC
from ftfile.storage.registry import normalise
from ftfile.writing.files.directory_settings import DirectoryPattern
from ftfile.writing.files.rolling_groups import GroupKey, key_of
from ftfile.writing.workers import Threads

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Sequence

    import pyarrow.compute as pc
    from typing_extensions import Unpack

    from ftfile.core.arguments import OperationArguments
    from ftfile.core.clock import Clock
    from ftfile.core.progress import OnProgress
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.operate.rewriter.pieces import RewritePiece
    from ftfile.operate.rewriting import Live, RewriteReport
    from ftfile.read.selection import ChosenAdd
    from ftfile.storage.api import FileSystem
    from ftfile.writing.workers import Workers


DIRECTORY_TIME = pa.field("directoryTime", pa.timestamp("us"))


def settled_for(
    head: LogState, where: Mapping[str, object] | str | pc.Expression, clock: Clock
) -> Mapping[str, object] | str | pc.Expression:
    """Return the condition with clock functions replaced by literals, in the time zone of the newest writer."""
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

    See `rows.conditions`. With `directory_pattern`, as in the option `directoryPattern`, the condition can also name
    `directoryTime`: the begin of the time of a directory, without time zone. It is null for directories that do not
    match the pattern. Encodings come from the snapshot, because the state contains only the encodings of the last adds.

    Raises:
        ConfigError: the condition is invalid, names a column that is not a partition column, or has a value of another
            type.
    """
    newest: dict[str, Any] = {"partitionBy": [], "timeZone": UTC}
    if head.encoding is not None:
        newest = head.definitions[head.encoding]
    if head.schema is not None:
        schema = recorded_schema(head.definitions[head.schema])
    else:
        schema = pa.schema([])
    adds = list(snapshot.adds.values())
    definitions = snapshot.definitions
    places = []
    for add in adds:
        places.append((add.directory_key, definitions[add.encoding]["timeZone"]))
    columns = newest["partitionBy"]
    derived = None
    if directory_pattern is not None:
        pattern = DirectoryPattern.of_directories(directory_pattern)
        derived = (DIRECTORY_TIME, partial(_times, pattern, len(columns)))
    chosen = chosen_places(where, partition_schema(schema, columns), places, derived)
    selected = []
    for add, place in zip(adds, places, strict=True):
        if place in chosen:
            selected.append(add)
    return selected


def _times(pattern: DirectoryPattern, above: int, keys: Sequence[str]) -> pa.Array:
    """Return the times of directories; `above` is the number of partition column directories above them."""
    texts = []
    for key in keys:
        names = directory_of(key).split("/")
        texts.append("/".join(names[above : above + pattern.depth]))
    return pattern.begins(texts)


ALL = "all"


def drop(
    path: str | os.PathLike[str],
    where: Mapping[str, object] | str | pc.Expression,
    *,
    dry_run: bool = False,
    directory_pattern: str | None = None,
    **access: Unpack[OperationArguments],
) -> RewriteReport:
    """Remove all rows of the matching directories, finished or open, in one record; return the number of rows.

    If no row matches, no record is created, so a second drop changes nothing. Safe while queries run: rows that they
    commit later stay. `where` is a condition on partition columns: values, such as `{"month": 7}` or `{"month": [7,
    8]}`; a text, such as `"month BETWEEN 1 AND 6 AND city IS NOT NULL"`; or a pyarrow expression, such as
    `pc.field("month") < 7`. The word "all" removes every row in the directory. Older versions can be read until a
    vacuum.

    A text can use the current time, as in `"day < current_date() - interval 30 days"`. The time is read from the clock
    of this machine, in the `timeZone` of the newest writer, and the record contains the resulting date. With
    `directory_pattern`, as in the option `directoryPattern`, a condition can also name `directoryTime`: the begin of
    the time of a directory, in local time of the directory. Directories that do not match the pattern stay. With
    `dry_run`, the call writes nothing and returns the number of rows that it would remove. `progress` is called in this
    thread after each hidden file. If it raises, the next commit hides the remaining files. For the rest of `access` see
    `ftfile.open`.

    Raises:
        ConfigError: the path is not an ftfile directory, `where` is not a condition, names a column that is not a
            partition column, or compares it with a value of another type.
        CommitError: as for a batch write; `NotPublished` means that the rows are dropped, and their files are hidden
            later.
    """
    everything = _is_everything(where)
    with operating("drop", path, Access.of(access)) as (log, author):
        check_is_files(log.refresh(), os.fspath(path), "delete its rows with ftfile.kv.purge")
        where = settled_for(log.refresh(), where, log.clock)
        choice = Directories(None if everything else where, directory_pattern)
        workers, progress = Threads.of(author.operation_id, 1, log.fs.context), access.get("progress")
        return rewrite(log, author, workers, choice, dry_run=dry_run, progress=progress)


@dataclass(frozen=True, slots=True)
class Directories(RewriteChoice):
    """The choice of a drop: whole directories."""

    where: Mapping[str, object] | str | pc.Expression | None  # None for all
    directory_pattern: str | None

    @property
    def text(self) -> str | None:
        """Return the condition if it is a text, else None."""
        if isinstance(self.where, str):
            return self.where
        return None

    def select_removed(self, head: LogState, live: Live) -> Sequence[Add]:
        """Return the live adds of the matching directories, also adds that were committed after the drop began."""
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
    """Remove the rows for which a condition is true, finished or open, in one record; return the number of rows.

    The deleted rows are exactly the rows that `ftfile.open(path).to_arrow(where=where)` returns. Files whose rows all
    match are removed. Files with some matching rows are rewritten without these rows, and each new file is checked for
    them. All other files stay. Files for which the statistics in the log decide this are not read. Open files with
    matching rows are finished first, as by a flush. If no row matches, no record is created.

    Safe while queries, readers and other maintenance run; rows that are committed after the call began may stay. The
    deletion is atomic: if the call returns, all matching rows are removed, and if it fails, none is. The call can be
    interrupted or killed at any point. Older versions contain the rows until a vacuum.

    Args:
        path: of the directory.
        where: a condition on any columns, as `to_arrow` accepts it: values by column, a text, or a pyarrow expression.
            Clock functions return the current time, in the `timeZone` of the newest writer.
        dry_run: return the rows, files and bytes that would be removed, and write nothing. It reads the columns of the
            condition from files that can have some matching rows.
        code: see `ftfile.flush`.
        threads: threads that read and write, each with memory for some row groups; by default one for each core.
        **access: see `ftfile.open`; `progress` is called with a `Progress` after each file, whose error ends the call.

    Raises:
        ConfigError: the path is not an ftfile directory, `where` is not a condition on its columns or fails on their
            values, or an argument is wrong.
        FtfileError: a file does not have its recorded content (`CorruptData`), or open files could not be finished.
        StorageError: the storage failed.
        CommitError: as for a batch write, or other processes replaced files with matching rows at every attempt.
            `NotPublished` means that the rows are deleted, and their files are hidden later; with all other errors
            nothing was removed.
    """
    with operating("delete", path, Access.of(access)) as (log, author):
        deleting = Deleting(
            url=normalise(os.fspath(path)),
            access=Access.of(access),
            log=log,
            author=author,
            workers=Threads.of(author.operation_id, threads, log.fs.context),
            code=frozenset(code),
            progress=access.get("progress"),
        )
        return deleting.run(where, dry_run=dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleting:
    """A delete that the given workers execute."""

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
                Advice(
                    Argument("where", where),
                    ' does not choose rows to delete: give a condition, such as {"id": 7} or "id = 7"; ',
                    Remedy("drop", where=ALL),
                    " removes every row",
                )
            )
        where = settled_for(head, where, log.clock)
        choice = MatchingRows(where, takes_open=dry_run, fs=self.log.fs)
        if not dry_run:
            self._finish_open(MatchingRows(where, takes_open=True, fs=self.log.fs))
        return rewrite(log, self.author, self.workers, choice, dry_run=dry_run, progress=self.progress)

    def _finish_open(self, choice: MatchingRows) -> None:
        """Finish the open files that contain matching rows, because segments cannot be rewritten."""
        head = self.log.refresh(durable=True)
        if not head.segments:
            return
        live = cache(partial(snapshot_at, self.log, head))
        segments = []
        for piece in choice.pieces(head, live, ()):
            if piece.inputs[0].kind == "segment":
                segments.append(piece)
        snapshot = live()
        work = RowRewriter(snapshot.version, snapshot.definitions, dry_run=True)
        groups = set[GroupKey]()
        for number, outcome in self.workers.do(work, segments, self.log.fs, dict(written_settings(head))):
            for error in outcome.errors:
                raise error
            if outcome.rows_removed:
                groups.add(key_of(segments[number].inputs[0]))
        if groups:
            # A failing delete removes the files of its own job. A separate job id protects the files of the flush.
            author = MaintenanceAuthor("flush", self.log.ids.unique())
            workers = replace(self.workers, operation_id=author.operation_id)
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
class MatchingRows(RewriteChoice):
    """The choice of a delete: the rows that a read with a condition returns."""

    takes_all: ClassVar[bool] = True
    where: Mapping[str, object] | str | pc.Expression
    takes_open: bool  # include segments, which are read but never rewritten
    fs: FileSystem  # the directory, whose statistics exclude files

    @property
    def text(self) -> str | None:
        """Return the condition if it is a text, else None."""
        if isinstance(self.where, str):
            return self.where
        return None

    def pieces(self, head: LogState, live: Live, excluded_ids: Container[str]) -> list[RewritePiece]:
        """Return one piece for each file that may contain some matching rows, or whose statistics match completely.

        The statistics of a file can be unknown at a later head, so `removed` does not depend on them.
        """
        snapshot, by_directory = live(), dict[tuple[str, str, bool], Without]()
        filtered, chosen_adds = self._chosen(head, snapshot, self.fs)
        lists: list[list[Add]] = []
        withouts: list[Without] = []
        for add, where, partition, by_statistics in chosen_adds:
            if where is None and not by_statistics:
                continue
            if add.id in excluded_ids or (add.kind == "segment" and not self.takes_open):
                continue
            lists.append([add])
            key = (add.directory_key, add.encoding, by_statistics)
            if key not in by_directory:
                by_directory[key] = Without(where, partition, filtered)
            withouts.append(by_directory[key])
        return pieces_of(snapshot.adds.values(), lists, withouts)

    def select_removed(self, head: LogState, live: Live) -> list[Add]:
        """Return the adds of partitions that match, also adds that were committed after the delete began."""
        _, chosen_adds = self._chosen(head, live(), None)
        return [chosen.add for chosen in chosen_adds if chosen.where is None]

    def _chosen(
        self, head: LogState, snapshot: Snapshot, fs: FileSystem | None
    ) -> tuple[pa.Schema, Iterable[ChosenAdd]]:
        """Return the columns of the condition, and the adds that may contain matching rows; see `Selection`."""
        if snapshot.schema is None:
            return pa.schema([]), ()
        schema = recorded_schema(snapshot.definitions[snapshot.schema])
        selection = Selection(
            snapshot,
            schema,
            columns=None,
            where=self.where,
            time_zone=_time_zone(head),
            fs=fs,
        )
        return selection.filtered, selection.adds()


def _is_everything(where: object) -> bool:
    """Return True if `where` is the word "all"; raise a ConfigError if it is empty."""
    if where is None or (isinstance(where, Mapping) and not where):
        raise ConfigError(
            Advice(
                Argument("where", where),
                ' does not choose rows to drop: give a condition on partition columns, such as {"month": 7} or '
                f'"month < 7", or "{ALL}" for every row in the directory',
            )
        )
    return isinstance(where, str) and where == ALL
