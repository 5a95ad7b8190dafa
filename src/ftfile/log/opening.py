"""Functions that open the log of an existing directory."""

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
    from ftfile.core.options.parsing import Settings
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
    """Open the log of a directory, as an object of its own; see `open_with_keys`.

    Reading the log raises `RolledBack` if its head is before the version that `access` requires.

    Args:
        path: the path or URL of the directory.
        access: the settings and keys of the caller.
        otherwise: the end of the error text if the directory has no log.
        repairs: True if the caller repairs the format file, unless the directory is encrypted.

    Raises:
        ConfigError: the directory has no log, or its keys are not known.
        CorruptData: the format file is lost or damaged, and the caller does not repair it.
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
        if advice:
            reason = f"a file, or lies below one{advice}"
        else:
            reason = f"no directory: {error.detail}. Give the directory that contains {layout.META}"
        raise ConfigError(f"{url!r} is {reason}") from error
    return log


def _advice(url: str, access: Access) -> str:
    """Return a sentence that names the ftfile directory above a path; empty if there is none."""
    above = directory_above(url, access.storage, access.context)
    if above is None:
        return ""
    chosen = ""
    if "=" in url[len(above) :]:
        chosen = ", and choose rows by a condition on partition columns"
    return f". It lies within {above!r}: give that directory{chosen}"


def _check_layout(log: CommitLog, *, repairs: bool) -> None:
    """Check the format file; raise NotFound if the format file and the log are missing."""
    error = _layout_error(log)
    if error is None:
        return
    newest = _newest_version(log)
    if isinstance(error, NotFound):
        if newest is None:
            raise error
        # Another process may have created the directory after the first look: it writes the format file first.
        error = _layout_error(log)
        if error is None:
            return
    sealed = _is_sealed(log, newest)
    if repairs and not sealed:
        return
    actual = error.found if isinstance(error, CorruptData) else "no such file"
    advice = _RESTORE_FORMAT if sealed else _WRITE_FORMAT
    raise CorruptData(layout.FORMAT_FILE, "the layout of the log", actual, advice)


def _layout_error(log: CommitLog) -> NotFound | CorruptData | None:
    """Return the error of a missing or damaged format file; None if it is right."""
    try:
        log.check_layout()
    except (NotFound, CorruptData) as error:
        return error
    return None


def _newest_version(log: CommitLog) -> int | None:
    """Return the newest version that has a file in the log; None if no version has one."""
    versions = []
    try:
        for text in log.fs.names_after(layout.LOG, ""):
            name = layout.parse_log_name(text)
            if name is not None:
                versions.append(name.version)
    except NotFound:
        return None
    return max(versions, default=None)


def _is_sealed(log: CommitLog, version: int | None) -> bool:
    """Return True if the directory is encrypted: keys were given, or the record of a version needs keys."""
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
    """Open the log of a directory with the file settings of its writers, such as permissions; see `open_log`.

    By default, these are the settings of the newest writer that has settings; `settings` replaces them. The caller's
    settings in `access` have priority.

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


# The settings for stored files that a record can contain, with their allowed texts. Settings of a client, addresses and
# secrets are not among them.
_FILE_SETTINGS = {
    "filePermission": re.compile(r"0{0,2}[0-7]{1,3}", re.ASCII),
    "directoryPermission": re.compile(r"0?[0-7]{1,4}", re.ASCII),
    "replication": re.compile(r"[1-9][0-9]{0,2}", re.ASCII),
    "blockSize": re.compile(r"[1-9][0-9]{0,11}", re.ASCII),
}


def file_settings(recorded: object) -> Settings:
    """Return the settings of a record that concern stored files and have allowed texts; omit all other settings."""
    if not isinstance(recorded, dict):
        return ()
    settings = []
    for name, text in recorded.items():
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
    """Yield the log of a directory and the author of an operation's records; log lines contain the author's job id.

    Raises:
        ConfigError: see `opener`.
        RolledBack: the newest version is before the version that `access` requires; nothing was written.
    """
    log = opener(path, access)
    author = MaintenanceAuthor(operation, access.context.ids.unique())
    with log_context(operation=author.operation_id):
        yield log, author
