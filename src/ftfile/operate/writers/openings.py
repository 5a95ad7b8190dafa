"""The opening of a directory by an application, which fences the previous process of the application."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import ConfigError
from ftfile.log.directory import check_foreign_tables, check_is_files, check_outside_directories, list_new_directory
from ftfile.log.format.model import Application, Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.writing.applications import ApplicationBatch, application_of
from ftfile.writing.files.file_writer import warn_of_foreign_entries

if TYPE_CHECKING:
    from ftfile.core.options.parsing import Settings
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.policy import Policy
    from ftfile.log.state import LogState

_OPERATION = "openWriter"
# Staged files are in a directory with this name.
_APP_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_app_id(app_id: str) -> None:
    """Raise a ConfigError for a name that is not portable as a directory name."""
    if not _APP_ID.fullmatch(app_id):
        raise ConfigError(
            f"app_id={app_id!r}: it must have at most 100 letters, digits, points, hyphens and underscores, and begin "
            "with a letter or digit"
        )


def check_new_directory(log: CommitLog, path: str, client_settings: Settings) -> None:
    """Check a directory before its first record, and warn about files of other programs.

    Raises:
        ConfigError: it is within an ftfile directory, contains one, or is a table of another program.
    """
    head = log.refresh()
    if head.version >= 0:
        check_foreign_tables(log, head, path)
        return
    check_outside_directories(path, dict(client_settings), log.fs.context)
    warn_of_foreign_entries(path, list_new_directory(log.fs, path))


class RecordedOpening(NamedTuple):
    """A recorded opening."""

    batch: ApplicationBatch  # the first batch after it
    version: int  # of the last batch before it; -1 if there is none


def open_application(
    log: CommitLog, path: str, app_id: str, run_id: str, policy: Policy, before: ApplicationBatch | None = None
) -> RecordedOpening:
    """Record an opening with a unique id. From then on, older openings cannot commit.

    With `before`, the process opens the directory again, unless another process has opened it since. If the call fails,
    the opening may be recorded; a repeated call with the same id does not count it as another process.

    Raises:
        ConfigError: the directory is a store, or the app_id is the id of a query or a `txnAppId`.
        Fenced: another process has opened the directory since `before`.
        CommitError, StorageError: see `log.protocol.commit`.
    """
    openings: list[RecordedOpening] = []
    opened_ms = log.clock.now_ms()

    def prepare(head: LogState, _: object) -> Body:
        check_is_files(head, path)
        newest = application_of(head, app_id)
        is_repeated = newest is not None and newest.run_id == run_id
        if before is not None and not is_repeated:
            before.check(head)
        if newest is None:
            _refuse_other_writer(head, app_id)
            newest = Application(0, "", 0)
        application = Application(
            epoch=newest.epoch + 1,
            run_id=run_id,
            opened_ms=opened_ms,
            process=log.fs.context.writer,
            position=newest.position,
        )
        batch = ApplicationBatch(app_id, next_batch(head, app_id), application)
        openings[:] = [RecordedOpening(batch, last_version(head, app_id))]
        return Body(tables=batch.table_change)

    with log.lock:
        commit(log, MaintenanceAuthor(_OPERATION, log.ids.unique()), prepare, policy)
    return openings[0]


def next_batch(head: LogState, app_id: str) -> int:
    """Return the number of the next batch of an application."""
    query = head.queries.get(app_id)
    if query is None:
        return 0
    return query.last_batch + 1


def last_version(head: LogState, app_id: str) -> int:
    """Return the version of the last batch of an application; -1 if it has none."""
    query = head.queries.get(app_id)
    if query is None:
        return -1
    return query.version


def _refuse_other_writer(head: LogState, app_id: str) -> None:
    """Raise a ConfigError for a new application with the id of a query of Spark, or with a `txnAppId`."""
    if app_id in head.queries:
        raise ConfigError(
            f"app_id={app_id!r} is the id of a query of Spark that writes to this directory: give another app_id"
        )
    if app_id in head.transactions:
        raise ConfigError(
            f"app_id={app_id!r} is the identity of batch writes to this directory (txnAppId in Spark, app_id of "
            "ftfile.write), whose versions are other numbers: give another app_id"
        )
