"""Opening of an existing directory."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError, CorruptData, KeysRequired, NotADirectory, NotFound
from ftfile.core.logs import log_context
from ftfile.core.remedies import Advice, Remedy
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import directory_above
from ftfile.log.format import layout
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.sealed import SealedFileSystem, open_with_keys
from ftfile.storage.registry import normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.core.arguments import Access
    from ftfile.core.options import Settings
    from ftfile.log.state import LogState


_NO_DIRECTORY = "not an ftfile directory: it has no log. Nothing was ever committed there, or the path is wrong"
NO_STORE = "no store: nothing was ever committed there, or the path is wrong"
NO_ROWS = Advice(
    "no store yet: nothing was committed there. If it has contained rows, its log is lost: see ", Remedy("status")
)
_WRITE_FORMAT = Advice(Remedy("repair", dry_run=False), " writes it again")
_RESTORE_FORMAT = "Restore it from a copy: no other file contains the id of an encrypted directory"


def open_log(
    path: str | os.PathLike[str], access: Access, otherwise: str = _NO_DIRECTORY, *, repairs: bool = False
) -> CommitLog:
    """Return a separate log of a directory; see `open_with_keys`. If there is no log, errors add `otherwise`.

    Reading the log raises `RolledBack` if its head is before the required version.

    Raises:
        ConfigError: it has no log, or its keys are not known.
        CorruptData: its format file is lost or damaged; not raised for a caller that `repairs` it, unless the directory
            is encrypted.
    """
    url = normalise(os.fspath(path))
    try:
        fs = open_with_keys(url, access.context, access.key_provider, access.settings.items())
        log = CommitLog(fs, at_least_version=access.at_least_version)
        _check_layout(log, repairs=repairs)
    except NotFound as error:
        raise ConfigError(f"{url!r} is {otherwise}{_advice(url, access)}") from error
    except NotADirectory as error:
        advice = _advice(url, access)
        reason = f"no directory: {error.detail}. Give the directory that contains {layout.META}"
        raise ConfigError(f"{url!r} is {f'a file, or lies below one{advice}' if advice else reason}") from error
    return log


def _advice(url: str, access: Access) -> str:
    """Return a sentence with the directory that contains a path; empty if none does."""
    above = directory_above(url, access.storage, access.context)
    if above is None:
        return ""
    chosen = ""
    if "=" in url[len(above) :]:
        chosen = ", and choose rows by a condition on partition columns"
    return f". It lies within {above!r}: give that directory{chosen}"


def _check_layout(log: CommitLog, *, repairs: bool) -> None:
    """Check the format file; NotFound if there is no log either."""
    try:
        log.check_layout()
    except (NotFound, CorruptData) as error:
        newest = _newest_version(log)
        if newest is None and isinstance(error, NotFound):
            raise
        sealed = _is_sealed(log, newest)
        if repairs and not sealed:
            return
        actual = error.found if isinstance(error, CorruptData) else "no such file"
        advice = _RESTORE_FORMAT if sealed else _WRITE_FORMAT
        raise CorruptData(layout.FORMAT_FILE, "the layout of the log", actual, advice) from None


def _newest_version(log: CommitLog) -> int | None:
    """Return the newest version that has a file; None if there is none."""
    try:
        listed = []
        for name in log.fs.names_after(layout.LOG, ""):
            listed.append(layout.parse_log_name(name))
    except NotFound:
        return None
    return max((name.version for name in listed if name is not None), default=None)


def _is_sealed(log: CommitLog, version: int | None) -> bool:
    """Return True if the record of a version ends with a MAC, or keys were given."""
    if isinstance(log.fs, SealedFileSystem):
        return True
    if version is None:
        return False
    try:
        log.read_record(version)
    except ConfigError as error:
        return isinstance(error, KeysRequired)
    except CorruptData:
        pass
    return False


def open_with_written_settings(
    path: str | os.PathLike[str], access: Access, settings: Settings | None = None, otherwise: str = _NO_DIRECTORY
) -> CommitLog:
    """Return a log of a directory that is opened to write files like its writers; see `open_log`.

    `settings` are additional settings of the file system, such as permissions; by default those of the newest writer
    with settings. Settings of the caller override them.

    Raises:
        ConfigError, RolledBack: see `open_log`.
    """
    log = open_log(path, access, otherwise)
    if settings is None:
        settings = written_settings(log.refresh())
    if not settings:
        return log
    settings = (*settings, *access.settings.items())
    fs = open_with_keys(normalise(os.fspath(path)), access.context, access.key_provider, settings)
    return CommitLog(fs, at_least_version=access.at_least_version)


def written_settings(head: LogState) -> Settings:
    """Return the file-system settings of the newest writer that has any, such as permissions."""
    for definition in reversed(head.definitions.values()):
        if isinstance(definition, dict) and "storage" in definition:
            return file_settings(definition["storage"])
    return ()


# The settings for stored files that a record can contain, with their allowed texts; no settings of a client, an address
# or a secret.
_FILE_SETTINGS = {
    "filePermission": re.compile(r"0{0,2}[0-7]{1,3}", re.ASCII),
    "directoryPermission": re.compile(r"0?[0-7]{1,4}", re.ASCII),
    "replication": re.compile(r"[1-9][0-9]{0,2}", re.ASCII),
    "blockSize": re.compile(r"[1-9][0-9]{0,11}", re.ASCII),
}


def file_settings(recorded: object) -> Settings:
    """Return the settings of a record that are about files and within bounds; other settings are omitted."""
    if isinstance(recorded, dict):
        texts = recorded
    else:
        texts = {}
    settings = []
    for name, text in texts.items():
        if name in _FILE_SETTINGS and isinstance(text, str) and _FILE_SETTINGS[name].fullmatch(text):
            settings.append((name, text))
    return tuple(settings)


@contextlib.contextmanager
def maintaining(
    operation: str,
    path: str | os.PathLike[str],
    access: Access,
    opener: Callable[[str | os.PathLike[str], Access], CommitLog] = open_with_written_settings,
) -> Iterator[tuple[CommitLog, MaintenanceAuthor]]:
    """Return the log of a directory, and the author of the records of one operation; log lines contain its job id.

    Raises:
        ConfigError: see `opener`.
        RolledBack: the newest version is before the required version; nothing was written.
    """
    log = opener(path, access)
    author = MaintenanceAuthor(operation, access.context.ids.unique())
    with log_context(job=author.job_id):
        yield log, author
