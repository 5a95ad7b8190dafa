"""The kind of a directory: files for any reader, or a keyed store. The kind of a log never changes.

ftfile never writes to a directory of another program's table. Tasks recognise the driver's directory by its marker,
since a local path can be another disk on every host.
"""

from __future__ import annotations

import contextlib
import socket
import weakref
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ftfile.core.checksum import Decoding
from ftfile.core.errors import (
    AlreadyExists,
    ConfigError,
    CorruptData,
    NotADirectory,
    NotFound,
    StorageError,
)
from ftfile.core.options.kinds import columns_text
from ftfile.core.per_process import PerProcess
from ftfile.core.remedies import Advice, Remedy, Wording
from ftfile.log.commit_log import LAYOUT_VERSION
from ftfile.log.format import layout
from ftfile.log.format.model import MIGRATION, Count, Value
from ftfile.log.format.record import FILE_BYTES_MAX, SMALL_BYTES_MAX, read_within, to_checked_text
from ftfile.log.places import list_or_empty, list_own, stat_or_none
from ftfile.storage.calls import parallel
from ftfile.storage.paths import join, parse
from ftfile.storage.registry import normalise, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.state import LogState
    from ftfile.storage.api import FileInfo, FileSystem


_SPARK_LOG = "_spark_metadata"
_DELTA = "_delta_log"
_ICEBERG = "metadata"
_TABLES = {
    _SPARK_LOG: "Spark's own file sink wrote here. Plain readers of Spark follow its log and would not see ftfile's "
    "rows. To continue here with its files, use ftfile.migrate; if the files are not needed, delete the directory of "
    "that log",
    _DELTA: "it is a Delta table. Its readers would not see ftfile's rows, and its VACUUM deletes files that its log "
    "does not name. ftfile.migrate converts it to a directory of ftfile",
    ".hoodie": "it is a Hudi table. Its readers would not see ftfile's rows, and its cleaner deletes files that its "
    "timeline does not name",
    _ICEBERG: "it is an Iceberg table. Its readers would not see ftfile's rows, and its removal of orphan files "
    "deletes files that its metadata does not name",
}
_STORE_ADVICE = Advice(
    "write and read it with the format `ftkv`, or ",
    Wording("open it with ftfile.kv.open", "use the commands for stores, which begin with `ftfile kv`"),
    "; in Python, ftfile.kv.changes returns the keys that changed between two versions",
)
# The endings of the files that make a directory of this name the metadata of a table.
_ENDINGS = {_DELTA: ".json", _ICEBERG: ".metadata.json"}
_OWN_COMMIT = b'"ftfile":'  # is in each commit of ftfile's exports to Delta
_OWN_ICEBERG = "_iceberg"  # only contains ftfile's exports to Iceberg
_looked_into: PerProcess[weakref.WeakSet[CommitLog]] = PerProcess(weakref.WeakSet)


def directory_url(path: str, option: str = "path") -> str:
    """Return the URL of a directory to write to, given by an option.

    Raises:
        ConfigError: it is malformed, or within the log of another directory.
    """
    url = normalise(path)
    _check_outside_log(option, path, url)
    return url


def check_checkpoint_location(checkpoint: str | None) -> None:
    """Raise a ConfigError if a checkpoint is within the log of a directory."""
    _check_outside_log("checkpointLocation", checkpoint, checkpoint or "")


def _check_outside_log(option: str, value: str | None, url: str) -> None:
    above, meta, _ = f"{url}/".partition(f"/{layout.META}/")
    if meta:
        raise ConfigError(
            f"{option}={value!r} lies within {layout.META} of the directory {above!r}, whose vacuum deletes unknown "
            "files there: choose a path outside of it"
        )


def list_new_directory(fs: FileSystem, path: str) -> list[FileInfo]:
    """Return the entries of a directory without a log; an empty list if it does not exist.

    Raises:
        ConfigError: it is a table of another program, see `_TABLES`, or one of its entries is an ftfile directory.
        NotADirectory: it is a file.
    """
    entries = list_own(fs, "")
    names = {info.path for info in entries}
    table = next(filter(names.__contains__, _TABLES), None)
    if table == _ICEBERG and not any(".metadata.json" in info.path for info in list_or_empty(fs, _ICEBERG)):
        table = None
    if table is not None:
        raise _refusal(table, path)
    directories = [info.path for info in entries if info.is_directory]
    for inner, is_ftfile in zip(directories, _have_logs(fs, directories), strict=True):
        if is_ftfile:
            raise ConfigError(
                f"path={path!r} contains the ftfile directory {inner!r}: plain readers would read the rows of both. "
                f"Write to {inner!r} itself, move it out of this path, or choose another path"
            )
    return entries


_BEGINNING = LAYOUT_VERSION.partition(b" layout ")[0]  # in all layouts; logs of plans have another name


def has_log(fs: FileSystem, directory: str = "") -> bool:
    """Return True for an ftfile directory or a store; a StorageError if it cannot be read."""
    with contextlib.suppress(NotFound, NotADirectory):
        return fs.read(join(directory, layout.FORMAT_FILE), len(_BEGINNING)).startswith(_BEGINNING)
    return False


def _have_logs(fs: FileSystem, directories: list[str]) -> list[bool]:
    """Return for each entry if it is an ftfile directory, if this process may read it."""

    def has_one(directory: str) -> bool:
        with contextlib.suppress(StorageError):
            return has_log(fs, directory)
        return False

    return parallel(fs, has_one, directories)


def directory_above(url: str, storage: Mapping[str, str] | None, context: Context) -> str | None:
    """Return the URL of the ftfile directory that contains a path; None if no directory does."""
    parsed = parse(url)
    for parent in PurePosixPath(parsed.path).parents:
        above = replace(parsed, path=str(parent)).url
        try:
            if has_log(open_filesystem(above, context, storage)):
                return above
        except NotADirectory:
            continue
        except Exception:  # drivers of other packages, too, since the user did not ask for the parent directories
            break
    return None


def check_outside_directories(url: str, storage: Mapping[str, str], context: Context) -> None:
    """Raise a ConfigError for a path of a new directory within an ftfile directory or a store."""
    above = directory_above(url, storage, context)
    if above is None:
        return
    names = []
    for name in url[len(above) :].split("/"):
        names.append(name.partition("="))
    columns = columns_text(name for name, equals, _ in names if equals)
    by = ""
    if columns:
        by = f" with the option partitionBy={columns}, which writes rows to these directories"
    raise ConfigError(
        f"path={url!r} lies within {above!r}, a directory or a store of ftfile: plain readers of {above!r} would read "
        f"the rows of both, but ftfile's readers only its rows. Write to {above!r}{by}, or choose a path outside of it"
    )


@contextlib.contextmanager
def file_as_config_error(log: CommitLog, path: str) -> Iterator[None]:
    """Raise a ConfigError if the path of a directory is a file."""
    try:
        yield
    except NotADirectory as error:
        root = stat_or_none(log.fs, "")
        if root is None or root.is_directory:
            raise
        raise ConfigError(f"path={path!r} is a file, not a directory: give the directory") from error


def check_foreign_tables(log: CommitLog, head: LogState, path: str) -> None:
    """Check, once for each log of this process, for tables that other programs created after the first commit.

    Only their directories are listed, since the root can have many files.

    Raises:
        ConfigError: there is one, see `_TABLES`, or the log of the program that wrote the first files is there again.
    """
    if log in _looked_into.here:
        return
    migration = migration_of(head)
    for name in _TABLES:
        if is_foreign(log.fs, name):
            if migration is not None and name == migration.log:
                raise _log_is_back(path, name)
            raise _refusal(name, path)
    _looked_into.here.add(log)


def is_foreign(fs: FileSystem, name: str) -> bool:
    """Return True if the directory `name`, of `_TABLES`, is a table of another program; exports of ftfile are not."""
    if name not in _ENDINGS:
        return fs.exists(name)  # also an empty one, which Spark's readers respect
    return bool(_metadata_of(fs, name)) and not (name == _DELTA and _is_own_delta(fs))


def own_export(fs: FileSystem) -> str | None:
    """Return the directory of an export of ftfile to Delta or Iceberg; None if there is no export."""
    if _is_own_delta(fs):
        return _DELTA
    if fs.exists(_OWN_ICEBERG):
        return _OWN_ICEBERG
    return None


def _is_own_delta(fs: FileSystem) -> bool:
    for path in _metadata_of(fs, _DELTA):
        with contextlib.suppress(NotFound):  # exports delete old commits
            return _OWN_COMMIT in fs.read(path, FILE_BYTES_MAX)
    return False


def _metadata_of(fs: FileSystem, name: str) -> list[str]:
    return sorted(info.path for info in list_or_empty(fs, name) if info.path.endswith(_ENDINGS[name]))


def _refusal(name: str, path: str) -> ConfigError:
    return ConfigError(f"path={path!r} has {name!r}: {_TABLES[name]}. Otherwise, write to a new directory")


def store_of(head: LogState) -> dict[str, Any] | None:
    """Return the definition of the store, see `kv.definition`; None for a directory of files, or without rows.

    Raises:
        CorruptData: the log has no such encoding.
    """
    if head.encoding is None:
        return None
    encoding = head.definitions[head.encoding]
    if not isinstance(encoding, dict):
        raise CorruptData(layout.LOG, "the encoding of new rows", f"{encoding!r:.80}")
    definition: dict[str, Any] | None = encoding.get("store")
    return definition


LogName: TypeAlias = Literal["_spark_metadata", "_delta_log"]  # the logs of other programs that a migration moves away


class Migration(Value, frozen=True):
    """The entry of the table `MIGRATION`: the program that wrote the first files.

    Attributes:
        program: its name in `ftfile.migrate`.
        log: the directory of its log; None if it has none.
        last_entry: the newest entry of its log; None without a log.
    """

    program: str = msgspec.field(name="from")
    log: LogName | None
    last_entry: Count | None


def migration_of(head: LogState) -> Migration | None:
    """Return the record of the program that wrote the first files; None for ftfile."""
    table = head.tables.get(MIGRATION)
    entry = table.get("last") if table is not None else None
    if entry is None:
        return None
    with Decoding(layout.LOG, "the entry of the migration"):
        return msgspec.convert(entry[1], Migration)


def _log_is_back(path: str, name: str) -> ConfigError:
    """Return the error of a migrated directory in which the log `name` of the other program exists again."""
    return ConfigError(
        Advice(
            f"path={path!r} was migrated, but {name!r} exists (again) and hides ftfile's rows from plain readers. If "
            "the migration was interrupted, finish it: ",
            Remedy("migrate", dry_run=False),
            f". If another program was restarted, stop it and move {name!r} away",
        )
    )


def check_is_files(head: LogState, path: str, advice: str = _STORE_ADVICE) -> None:
    """Raise a ConfigError, with the remedy, if the directory is a store."""
    if store_of(head) is not None:
        raise ConfigError(
            Advice(
                f"path={path!r} is a store of keys and values, not a directory of files: ",
                advice,
                ". For files, use another path",
            )
        )


def check_is_store(head: LogState, path: str) -> None:
    """Raise a ConfigError if the directory contains files that do not belong to a store."""
    if head.encoding is not None and store_of(head) is None:
        raise ConfigError(
            Advice(
                f"path={path!r} is a directory of files, not a store of keys and values: ",
                Wording("write and read it with the format `ftfile`", "use the commands without `kv`"),
                ". For a store, use another path",
            )
        )


# Sent to executors, whose ftfile is compared by the fields of dataclasses and Structs.
@dataclass(frozen=True, slots=True)
class DirectoryMarker:
    """The marker of a directory."""

    # Random text, written once; a copy of the directory has the same. Damage that all hosts see is harmless.
    text: str
    host: str  # the driver's host, for messages


def write_marker(fs: FileSystem) -> DirectoryMarker | None:
    """Return the directory's marker, which is written if it is missing; None if all hosts see the same directory.

    It is written before a task reads it, so that no mount caches its absence.
    """
    marker = read_marker(fs)
    if marker is not None or not _may_differ(fs):
        return marker
    for directory in ("", layout.META, layout.DIRECTORY):
        fs.make_directories(directory)
    with contextlib.suppress(AlreadyExists):  # another driver wrote it first, and its marker is valid
        fs.create_exclusive(layout.MARKER, to_checked_text([fs.context.ids.unique().encode()]))
    return read_marker(fs)


def read_marker(fs: FileSystem) -> DirectoryMarker | None:
    """Return the directory's marker, or None if it is not needed or not written."""
    if not _may_differ(fs):
        return None
    try:
        return DirectoryMarker(_marker_text(fs), socket.gethostname())
    except NotFound:
        return None


def _marker_text(fs: FileSystem) -> str:
    return read_within(fs, layout.MARKER, SMALL_BYTES_MAX).decode(errors="backslashreplace")


def check_marker(fs: FileSystem, path: str, marker: DirectoryMarker | None) -> None:
    """Raise a ConfigError unless this process sees the directory with the marker; costs one small read."""
    if marker is None:
        return
    try:
        text = _marker_text(fs)
    except NotFound:
        text = None
    if text != marker.text:
        raise ConfigError(
            f"path={path!r}: an executor on the host {socket.gethostname()!r} sees "
            f"{'no such directory' if text is None else 'another directory'} there, unlike the driver on "
            f"{marker.host!r}. A local path must lead to the same storage on every host. Mount the storage at the same "
            "path on every host (such as NFS), use the URL of a storage system that all hosts reach, or run the "
            "executors on the driver's host"
        )


def _may_differ(fs: FileSystem) -> bool:
    return fs.capabilities.shared_between_processes and not fs.capabilities.shared_between_hosts
