"""The undoing of a migration, and the moves that it undoes."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ftfile.core.context import SYSTEM
from ftfile.core.errors import AlreadyExists, ConfigError, CorruptData, NameCollision, NotFound
from ftfile.core.logs import get_logger
from ftfile.core.remedies import Advice, Remedy
from ftfile.core.units import names_text
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import file_as_config_error, migration_of, own_export
from ftfile.log.format import layout
from ftfile.log.format.record import SMALL_BYTES_MAX, UNDONE_RECORD, json_value, read_within
from ftfile.log.places import checksum_of, delete_file, list_or_empty, stat_or_none, walk
from ftfile.storage.registry import normalise, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.core.context import Context
    from ftfile.storage.api import FileSystem


# The reason of a file in quarantine begins with this text if `undo_migration` must move the file back.
REASON = "migrated without it: "
_ENDING = ".migrated"
_NOTE_ADVICE = "Restore the note from a copy, or move it and its file out of the quarantine, then undo again"


def move_log(fs: FileSystem, log: str) -> None:
    """Move the other program's log below `_ftfile`, newest entry first. Idempotent.

    Until the last entry is moved, that program's readers see an older version. Entries are moved one by one, because
    not every storage system can rename a directory, and the files are few and small.
    """
    entries = sorted(walk(fs, log))
    directories = set(map(layout.parent, entries))
    _make_directories(fs, {f"{layout.MIGRATED}/{directory}" for directory in directories})
    # Without commits, a directory is not a Delta table, and a second call would not find it. So the first commit is
    # last.
    for place, path in enumerate(entries):
        if path.endswith(".json"):
            entries.insert(0, entries.pop(place))
            break
    for path in reversed(entries):
        _move(fs, path, _hidden_path_of(path))
    remove_empty(fs, log)
    _sync(fs, directories | {f"{layout.MIGRATED}/{log}", layout.MIGRATED, layout.META, ""})


def put_back(fs: FileSystem) -> tuple[str, ...]:
    """Move all hidden files back, and return their paths. Idempotent. `NameCollision` if another file has the path."""
    back: list[str] = []
    moved: dict[str, str] = {}
    for path, info in walk(fs, layout.MIGRATED).items():
        if not info.is_link:
            moved[path] = _place_before(path)
    _make_directories(fs, set(map(layout.parent, moved.values())))
    for path, target in sorted(moved.items()):
        _move(fs, path, target)
        back.append(target)
    for note, target in _notes(fs).items():
        hidden = note.removesuffix(".origin") + ".quarantined"
        with contextlib.suppress(NotFound):  # the file of this note is missing: its move was retried
            _move(fs, hidden, target)
            back.append(target)
    changed: set[str] = set()
    for path in back:
        changed.update(layout.ancestors(layout.parent(path)))
    _sync(fs, changed)
    return tuple(back)


def _hidden_path_of(path: str) -> str:
    """Return the path below `_ftfile` for a file of the other program's log."""
    directory, _, name = path.rpartition("/")
    return f"{layout.MIGRATED}/{directory}/_{name}{_ENDING}"


def _place_before(hidden: str) -> str:
    """Return the path of a hidden file before its move."""
    directory, _, name = hidden.removeprefix(f"{layout.MIGRATED}/").rpartition("/")
    return f"{directory}/{name.removeprefix('_').removesuffix(_ENDING)}"


def foreign_in_quarantine(fs: FileSystem) -> list[str]:
    """Return the files in quarantine that no migration moved there."""
    moved_files = {note.removesuffix(".origin") for note in _notes(fs)}
    foreign_files = []
    for info in list_or_empty(fs, layout.QUARANTINE):
        name = info.path.removesuffix(".quarantined")
        if name != info.path and name not in moved_files:
            foreign_files.append(info.path)
    return foreign_files


def _notes(fs: FileSystem) -> dict[str, str]:
    """Return the notes of files that a migration moved, each with the file's former path."""
    notes: dict[str, str] = {}
    for info in list_or_empty(fs, layout.QUARANTINE):
        if info.path.endswith(".origin"):
            try:
                note = json_value(read_within(fs, info.path, SMALL_BYTES_MAX, _NOTE_ADVICE))
                if _text_in(note, "reason").startswith(REASON):
                    notes[info.path] = _text_in(note, "path")
            except (ValueError, KeyError, TypeError) as error:
                raise CorruptData(info.path, "a note of a file's place", repr(error), _NOTE_ADVICE) from error
    return notes


def _text_in(note: Any, name: str) -> str:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(note[name], str):
        raise TypeError(f"{name} is {note[name]!r:.40}")
    return str(note[name])


def _move(fs: FileSystem, source: str, target: str) -> None:
    try:
        fs.rename(source, target)
    except AlreadyExists as error:
        if _is_copy(fs, source, target):
            # A storage system without atomic rename copied the file, and the process died before it deleted the source.
            delete_file(fs, source)
            return
        raise NameCollision(
            f"{source!r} cannot be moved to {target!r}: this file already exists, because the other program continued "
            "to write. Move the existing file away and try again"
        ) from error


def _make_directories(fs: FileSystem, directories: Iterable[str]) -> None:
    """Create directories with durable names: a durable move is lost if the name of its directory is not durable."""
    for directory in sorted(directories):
        fs.make_directories(directory)
        _sync(fs, layout.ancestors(directory)[1:])


def _is_copy(fs: FileSystem, source: str, target: str) -> bool:
    with fs.open(source) as one, fs.open(target) as other:
        return one.size_bytes == other.size_bytes and checksum_of(one) == checksum_of(other)


def remove_empty(fs: FileSystem, directory: str) -> None:
    """Remove a directory and its subdirectories if they contain no files."""
    for info in list_or_empty(fs, directory):
        if info.is_directory and not info.is_link:
            remove_empty(fs, info.path)
    with contextlib.suppress(NotFound):
        fs.remove_directory(directory)


def _sync(fs: FileSystem, directories: Iterable[str]) -> None:
    for directory in sorted(directories):
        with contextlib.suppress(NotFound):
            fs.sync_directory(directory)


_log = get_logger(__name__)

# The migration is version 0, so the next record is version 1.
_LAST = layout.record_path(1)


@dataclass(frozen=True, slots=True)
class UndoReport:
    """The result of undoing a migration, or of a dry run."""

    put_back: tuple[str, ...]  # files, relative to the directory, that were moved back; none in a dry run
    dry_run: bool = False  # nothing was changed


def undo_migration(
    path: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    storage: Mapping[str, str] | None = None,
    context: Context = SYSTEM,
) -> UndoReport:
    """Restore a migrated directory and the log of the other program, and return the files that were moved back.

    This is possible until the first commit after the migration, whether of rows or of maintenance. Stop all writers of
    the directory before the call: a concurrent commit fails. After an interruption, call it again.

    Args:
        path: the directory.
        dry_run: change nothing, and only check that the migration can be undone.
        storage: see `ftfile.open`.
        context: see `ftfile.open`.

    Raises:
        ConfigError: the directory was not migrated, or there is a later commit; nothing was changed.
        NameCollision: another program has created a file at a former path: move that file away and call again.
    """
    fs = open_filesystem(normalise(os.fspath(path)), context, dict(storage or {}))
    with file_as_config_error(CommitLog(fs), os.fspath(path)):
        info = stat_or_none(fs, _LAST)
        is_begun = (
            info is not None
            and info.size_bytes == len(UNDONE_RECORD)
            and fs.read(_LAST, len(UNDONE_RECORD)) == UNDONE_RECORD
        )
        if not is_begun:
            _require_nothing_since(fs, os.fspath(path))
    if dry_run:
        return UndoReport((), dry_run=True)
    if not is_begun:
        try:
            # After this record, no process can commit or read.
            fs.create_exclusive(_LAST, UNDONE_RECORD)
        except AlreadyExists:
            raise _error_of_too_late(os.fspath(path), 1) from None
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
    head = log.refresh(durable=True)
    migration = migration_of(head)
    if migration is None:
        raise ConfigError(f"path={path!r} was not migrated: no other program wrote its first files")
    if head.version > 0:
        raise _error_of_too_late(path, head.version)
    if name := own_export(fs):
        raise ConfigError(
            f"{name!r} is an export of ftfile, which is not valid without the log: delete it, then undo again"
        )
    foreign_files = foreign_in_quarantine(fs)
    for info in list_or_empty(fs, layout.RETIRED):
        foreign_files.append(info.path)
    if foreign_files:
        raise ConfigError(
            "undoing the migration would delete files that the migration did not create: "
            f"{names_text(foreign_files)}. Move them away, then undo again"
        )


def _delete_log(fs: FileSystem) -> None:
    """Delete everything below `_ftfile`, and last the record that ends the log."""
    for path in walk(fs, layout.META):
        if path != _LAST:
            delete_file(fs, path)
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


def _error_of_too_late(path: str, version: int) -> ConfigError:
    """Return the error of a migrated directory to which a version was committed."""
    return ConfigError(
        Advice(
            f"the migration of {path!r} cannot be undone: version {version} was committed after it. Other programs can "
            "read the directory with an export, such as ",
            Remedy("export", to="delta"),
            ", or a copy made with Spark",
        )
    )
