"""The migration of a directory: one record names the unchanged files of another program."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import to_builtins

from ftfile.core.context import SYSTEM
from ftfile.core.errors import CommitError, ConfigError, NotFound
from ftfile.core.logs import get_logger, log_context
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.core.remedies import Advice, Argument, Remedy
from ftfile.core.units import names_text
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import (
    LogName,
    Migration,
    check_outside_directories,
    directory_url,
    file_as_config_error,
    is_foreign,
    migration_of,
)
from ftfile.log.format.model import MIGRATION, BatchWriteAuthor, Body, StreamAuthor
from ftfile.log.policy import Policy
from ftfile.log.protocol import commit
from ftfile.log.read.snapshot import take_snapshot
from ftfile.operate.repair_actions import set_aside
from ftfile.storage.registry import normalise, open_filesystem
from ftfile.tools.migrate.inventory import SPARK_LOG, LeftOut
from ftfile.tools.migrate.sources import recorded_program, require_stopped, still_there, take_inventory
from ftfile.tools.migrate.table import MigratedTable, Request, bytes_of, rows_of, table_of
from ftfile.tools.migrate.undo import REASON, move_log, remove_empty
from ftfile.writing.spark_checkpoint import read_offsets, read_query_id
from ftfile.writing.workers import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Literal

    from ftfile.core.context import Context
    from ftfile.core.progress import OnProgress
    from ftfile.log.format.model import Author
    from ftfile.log.read.snapshot import Snapshot
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileSystem
    from ftfile.tools.migrate.inventory import Inventory


_log = get_logger(__name__)

# If a query has no batch in ftfile's log yet, its first batch follows the last batch in Spark's log.
_POLICY = Policy.from_options(parse_options({"onGap": "accept"}, SinkOptions))


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateReport:
    """The result of a migration, or of a dry run."""

    version: int | None  # of the record; None if nothing is recorded
    source: str  # the program that wrote the files
    file_format: str
    schema: str  # all columns, as Spark's JSON
    partition_by: tuple[str, ...]
    files: int  # number of committed files
    rows: int
    size_bytes: int
    left_out: tuple[LeftOut, ...]  # files whose rows are not committed
    moved_log: str | None  # directory of the other program's log, which is moved below `_ftfile`
    query_id: str | None  # the query that continues with ftfile's sink and the same checkpoint
    last_batch: int | None  # the query's last batch in the files
    dry_run: bool = False  # nothing was changed
    already_migrated: bool = False  # an earlier call recorded the migration, and this call recorded nothing


def migrate(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    from_: Literal["auto", "files", "spark", "flink", "kafka-connect", "apex", "delta"] = "auto",
    file_format: str | None = None,
    schema: object = None,
    partition_by: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    leave_unfinished: bool = False,
    dry_run: bool = True,
    confirm: Callable[[MigrateReport], bool] | None = None,
    threads: int | None = None,
    progress: OnProgress | None = None,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> MigrateReport:
    """Convert a directory that another program wrote to a directory of ftfile, and return its content.

    One record names the files. No file is copied or changed, and each file is read once. Stop the other program before
    the call. After an interruption, call it again: it completes the migration, and records nothing twice.
    `ftfile.undo_migration` undoes the migration.

    Args:
        path: the directory.
        from_: the program; by default detected by logs and names.
        file_format: by default derived from the extension of the names.
        schema: of the files: a `StructType`, its JSON, a `pyarrow.Schema`, or a text such as "id long, at timestamp".
        partition_by: columns in the paths, outermost first, with their types, such as `{"day": "date"}`.
        options: of the format, with the names of the sink's options, such as `header`.
        checkpoint: of the stopped query that wrote to Spark's sink, so that it can continue with ftfile's sink.
        leave_unfinished: leave out files that the program has not finished; otherwise they raise an error.
        dry_run: read and check all files, and change nothing.
        confirm: called with the report before a change; if it returns False, the call ends.
        threads: see `ftfile.compact`.
        progress: see `ftfile.compact`.
        storage: see `ftfile.open`.
        context: see `ftfile.open`.

    Raises:
        ConfigError: the committed rows are not certain, or an argument is wrong. Nothing was changed.
        SchemaError: the columns of the files are not compatible. Nothing was changed.
        CommitError: as for a batch write, or the other program continued to write.
    """
    fs = _open(os.fspath(path), dict(storage or {}), context)
    request = Request(
        from_=from_,
        file_format=file_format,
        schema=schema,
        partition_by=partition_by,
        options=options or {},
        checkpoint=checkpoint,
        leave_unfinished=leave_unfinished,
        dry_run=dry_run,
        confirm=confirm,
        workers=Threads.of("migrate", threads, context),
        progress=progress,
    )
    with log_context(operation=context.ids.unique()), file_as_config_error(CommitLog(fs), os.fspath(path)):
        return _migrate(fs, os.fspath(path), request)


def _open(path: str, storage: Mapping[str, str], context: Context) -> FileSystem:
    url = normalise(directory_url(path))
    check_outside_directories(url, storage, context)
    return open_filesystem(url, context, storage)


def _migrate(fs: FileSystem, path: str, request: Request) -> MigrateReport:
    log = CommitLog(fs)
    with contextlib.suppress(NotFound):
        log.check_layout()
    head = log.refresh()
    if head.version >= 0:
        return _finish(log, head, path, request)
    inventory = take_inventory(fs, path, request.from_, leave_unfinished=request.leave_unfinished)
    author = _author(inventory, request.checkpoint, fs.context)
    table = table_of(fs, directory_url(path), inventory=inventory, author=author, request=request)
    report = _report(inventory, table, author)
    if request.dry_run or (request.confirm is not None and not request.confirm(report)):
        return report
    _require_unchanged(fs, path, inventory, leave_unfinished=request.leave_unfinished)
    version = _commit(log, author, inventory, table)
    _move(fs, path, log=inventory.log, last_entry=inventory.last_entry, left_out=inventory.left_out)
    _log.info("migrated %s: %d files of %d rows are version %d", path, len(table.adds), report.rows, version)
    return replace(report, version=version, dry_run=False)


def _require_unchanged(fs: FileSystem, path: str, inventory: Inventory, *, leave_unfinished: bool) -> None:
    """Raise a `CommitError` if files were added, deleted or changed since the listing.

    Reading the files takes long, and a migration would silently leave out files that were added meanwhile.
    """
    now = take_inventory(fs, path, inventory.source, leave_unfinished=leave_unfinished)
    before, after = _list_left_out(inventory), _list_left_out(now)
    if before != after or inventory.last_entry != now.last_entry:
        changed = []
        for file in sorted({*before, *after}):
            if before.get(file) != after.get(file):
                changed.append(file)
        raise CommitError(
            f"path={path!r} was changed while its files were read{f' ({names_text(changed)})' if changed else ''}: "
            "its writer is still running, or was started again. Stop the writer and migrate again. Nothing was changed"
        )


def _list_left_out(inventory: Inventory) -> dict[str, tuple[int, ...]]:
    """Return the size of each file by path; for committed files also the modification time."""
    listed: dict[str, tuple[int, ...]] = {}
    for info in inventory.files:
        listed[info.path] = info.size_bytes, info.modified_ms
    for file in inventory.left_out:
        listed[file.path] = (file.size_bytes,)
    return listed


def _move(fs: FileSystem, path: str, log: LogName | None, last_entry: int | None, left_out: Iterable[LeftOut]) -> None:
    """Move the files that plain readers would read below `_ftfile`, and last the other program's log."""
    if log is not None:
        require_stopped(fs, log, last_entry, path)
    for file in left_out:
        if file.moved:
            set_aside(fs, file.path, REASON + file.why)
    if log is not None:
        require_stopped(fs, log, last_entry, path)
        move_log(fs, log)


def _author(inventory: Inventory, checkpoint: str | os.PathLike[str] | None, context: Context) -> Author:
    """Return the author: the checkpoint's query with the last batch in the files, or a batch write."""
    operation_id = context.ids.unique()
    if checkpoint is None:
        if inventory.source == "spark" and inventory.last_entry is not None:
            _log.warning(
                "no checkpoint is given: the query that wrote %s, up to batch %d, cannot write here again; only a new "
                "query can. To continue the query, give its checkpointLocation as the checkpoint",
                SPARK_LOG,
                inventory.last_entry,
            )
        return BatchWriteAuthor(operation_id)
    if inventory.source != "spark" or inventory.last_entry is None:
        raise ConfigError(
            Advice(
                Argument("checkpoint"),
                f": only a directory of Spark's own sink has a checkpoint, and this directory has no {SPARK_LOG}: "
                "omit it",
            )
        )
    where = os.fspath(checkpoint)
    query_id = read_query_id(where, context)
    if query_id is None:
        raise ConfigError(
            Advice(
                Argument("checkpoint", where),
                " has no file `metadata` with the id of a query: give the checkpointLocation of the query",
            )
        )
    offsets = read_offsets(where, inventory.last_entry, context)
    if offsets is None:
        raise ConfigError(
            Advice(
                Argument("checkpoint", where),
                f" has no offsets of batch {inventory.last_entry}, the newest one in {SPARK_LOG}: it belongs to "
                "another query or is an older copy, and a query that continues with it would write rows again",
            )
        )
    return StreamAuthor(
        query_id, operation_id, batch_id=inventory.last_entry, offsets_hash=offsets.hash, offsets=offsets.offsets
    )


def _commit(log: CommitLog, author: Author, inventory: Inventory, table: MigratedTable) -> int:
    migration = Migration(inventory.source, inventory.log, inventory.last_entry)

    def prepare(head: LogState, _: object) -> Body:
        if head.version >= 0:
            raise ConfigError(
                Advice(
                    "another process created an ftfile log in this directory during the migration: see ",
                    Remedy("history"),
                )
            )
        return Body(
            adds=table.adds,
            schema=table.schema_key,
            encoding=table.encoding_key,
            definitions=table.definitions,
            metrics={"rows": rows_of(table.adds), "bytes": bytes_of(table.adds)},
            tables={MIGRATION: {"set": {"last": to_builtins(migration)}}},
        )

    done = commit(log, author, prepare, _POLICY)
    if done.record is None:
        raise ConfigError(Advice("another migration created an ftfile log in this directory: see ", Remedy("history")))
    return done.version


def _finish(log: CommitLog, head: LogState, path: str, request: Request) -> MigrateReport:
    """Complete an interrupted migration, if necessary, and return the recorded migration."""
    migration = migration_of(head)
    if migration is None:
        raise ConfigError(
            f"path={path!r} has been an ftfile directory since its first commit: there is nothing to migrate"
        )
    name, program = migration.log, recorded_program(migration)
    is_in_place = name is not None and is_foreign(log.fs, name)
    if head.version > 0 and not is_in_place:
        raise ConfigError(
            f"path={path!r} was already migrated, as version 0, and the newest version is {head.version}: there is "
            "nothing to migrate"
        )
    if name is not None and is_in_place:
        require_stopped(log.fs, name, migration.last_entry, path)
    snapshot = take_snapshot(log)
    left_out: list[LeftOut] = []
    if is_in_place or name is None:
        live = {add.final_path for add in snapshot.adds.values()}
        left_out = still_there(log.fs, program, live, leave_unfinished=request.leave_unfinished)
    report = _report_of_recorded(head, snapshot, migration, left_out)
    is_done = not left_out and not is_in_place
    if request.dry_run or (request.confirm is not None and not is_done and not request.confirm(report)):
        return report
    _move(log.fs, path, log=name if is_in_place else None, last_entry=migration.last_entry, left_out=left_out)
    if name is not None:
        remove_empty(log.fs, name)
    return replace(report, dry_run=False)


def _report_of_recorded(
    head: LogState, snapshot: Snapshot, migration: Migration, left_out: Sequence[LeftOut]
) -> MigrateReport:
    """Return the report of a recorded migration, in the form of a dry run."""
    assert snapshot.schema is not None, "a migration records columns"
    adds = snapshot.adds.values()
    encoding = head.definitions[head.encoding or ""]
    query = next(iter(head.queries.items()), None)
    return MigrateReport(
        version=0,
        source=migration.program,
        file_format=encoding["format"]["name"],
        schema=snapshot.definitions[snapshot.schema],
        partition_by=tuple(encoding["partitionBy"]),
        files=len(adds),
        rows=rows_of(adds),
        size_bytes=bytes_of(adds),
        left_out=tuple(left_out),
        moved_log=migration.log,
        query_id=query[0] if query is not None else None,
        last_batch=query[1].last_batch if query is not None else None,
        dry_run=True,
        already_migrated=True,
    )


def _report(inventory: Inventory, table: MigratedTable, author: Author) -> MigrateReport:
    """Return the report of a dry run."""
    return MigrateReport(
        version=None,
        source=inventory.source,
        file_format=table.file_format,
        schema=table.definitions[table.schema_key],
        partition_by=table.partition_by,
        files=len(table.adds),
        rows=rows_of(table.adds),
        size_bytes=bytes_of(table.adds),
        left_out=tuple(inventory.left_out),
        moved_log=inventory.log,
        query_id=author.query_id if isinstance(author, StreamAuthor) else None,
        last_batch=author.batch_id if isinstance(author, StreamAuthor) else None,
        dry_run=True,
    )
