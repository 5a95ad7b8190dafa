"""Undoing a migration before the first new commit: the log ends, and everything is where it was."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.attempt.kind_of_directory import migration_of, own_export, refusing_file
from ftfile.commit.files import delete_file, list_or_empty, stat_or_none, walk
from ftfile.commit.format import layout
from ftfile.commit.format.record import UNDONE_RECORD
from ftfile.commit.log.log import CommitLog
from ftfile.core.context import SYSTEM
from ftfile.core.errors import AlreadyExists, ConfigError, NotFound
from ftfile.core.human_text import names_text
from ftfile.core.logs import get_logger
from ftfile.fs.registry import normalise, open_filesystem
from ftfile.maintenance.migrate.aside import foreign_in_quarantine, put_back, remove_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ftfile.core.context import Context
    from ftfile.fs.api import FileSystem

_log = get_logger(__name__)

# The record after the one of the migration, which is the first.
_LAST = layout.record_path(1)


@dataclass(frozen=True, slots=True)
class UndoReport:
    """The result of undoing a migration, or of a dry run."""

    put_back: tuple[str, ...]  # files, relative to the directory, that are where they were before; none in a dry run
    dry_run: bool = False  # nothing was changed


def undo_migration(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> UndoReport:
    """Make a migrated directory what it was before, with the log of the other program; return what was moved back.

    This is possible until the first commit after the migration, of rows or of maintenance. Stop what writes to the
    directory before: a commit that comes while it is undone fails. After an interruption, call it again.

    Args:
        path: of the directory.
        dry_run: change nothing, and only check that the migration can be undone.
        storage: see `ftfile.open`.
        context: likewise.

    Raises:
        ConfigError: the directory was not migrated, or something was committed since; nothing was changed.
        NameCollision: another program has written where a file was; once that is moved away, it goes on.
    """
    fs = open_filesystem(normalise(os.fspath(path)), context, dict(storage or {}))
    with refusing_file(CommitLog(fs), os.fspath(path)):
        info = stat_or_none(fs, _LAST)
        is_begun = info is not None and info.size_bytes == len(UNDONE_RECORD) and fs.read(_LAST) == UNDONE_RECORD
        if not is_begun:
            _require_nothing_since(fs, os.fspath(path))
    if dry_run:
        return UndoReport((), dry_run=True)
    if not is_begun:
        try:
            # From here on, nobody can commit or read.
            fs.create_exclusive(_LAST, UNDONE_RECORD)
        except AlreadyExists:
            raise ConfigError(_TOO_LATE.format(path=os.fspath(path), version=1)) from None
        fs.sync_directory(layout.LOG)
    back = put_back(fs)
    _delete_log(fs)
    _log.info("undid the migration of %s: %d files are back", path, len(back))
    return UndoReport(back)


def _require_nothing_since(fs: FileSystem, path: str) -> None:
    log = CommitLog(fs)
    try:
        log.check_layout()
    except NotFound:
        raise ConfigError(f"path={path!r} was not migrated: it has no log of ftfile") from None
    head = log.read_on(durable=True)
    migration = migration_of(head)
    if migration is None:
        raise ConfigError(f"path={path!r} was not migrated: no other program wrote its first files")
    if head.version > 0:
        raise ConfigError(_TOO_LATE.format(path=path, version=head.version))
    if name := own_export(fs):
        raise ConfigError(f"{name!r} is an export of ftfile, which would outlive its log: delete it, then undo again")
    if others := [*foreign_in_quarantine(fs), *(info.path for info in list_or_empty(fs, layout.RETIRED))]:
        raise ConfigError(
            f"the migration did not put them there, and undoing it deletes them: {names_text(others)}. Move them away, "
            "then undo again"
        )


def _delete_log(fs: FileSystem) -> None:
    """Delete all below `_ftfile`, last of all the record that ends the log."""
    for found in walk(fs, layout.META):
        if found != _LAST:
            delete_file(fs, found)
    if not fs.capabilities.implied_directories:
        for info in list_or_empty(fs, layout.META):
            if info.is_directory and info.path != layout.LOG:
                remove_empty(fs, info.path)
        fs.sync_directory(layout.LOG)
        fs.sync_directory(layout.META)
    delete_file(fs, _LAST)
    if not fs.capabilities.implied_directories:
        remove_empty(fs, layout.META)
        fs.sync_directory("")


_TOO_LATE = (
    "the migration of {path!r} cannot be undone: version {version} was committed since. Other programs read the "
    "directory by an export, such as `ftfile export PATH --to delta`, or by a copy that Spark makes"
)
