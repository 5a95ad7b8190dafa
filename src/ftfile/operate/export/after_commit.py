"""Exports that follow commits and operations.

The option `exportTo` of a writer starts them; operations on a directory update its existing exports.

Exports of a writer run in a thread of the driver process, so no batch waits for an export or fails with it. If an
export fails or the process ends, the next export includes the missed versions.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.answers import Answer, wait_for
from ftfile.core.errors import ConfigError, FtfileError, StorageError
from ftfile.core.logs import get_logger
from ftfile.core.per_process import OnePerKey
from ftfile.core.remedies import Remedy
from ftfile.log.opening import maintaining

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ftfile.core.arguments import Access
    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import MaintenanceAuthor
    from ftfile.storage.api import FileSystem
    from ftfile.writing.files.file_options import SinkConfig


# Maximum wait of a batch write for its export.
EXPORT_WAIT_S = 60.0

_log = get_logger(__name__)


@contextlib.contextmanager
def operating(
    operation: str, path: str | os.PathLike[str], access: Access
) -> Iterator[tuple[CommitLog, MaintenanceAuthor]]:
    """Run an operation as `maintaining`, and update the exports of the directory if it recorded anything, even in part.

    An update never raises.

    Raises:
        ConfigError, RolledBack: see `maintaining`.
    """
    with maintaining(operation, path, access) as (log, author):
        start = log.refresh().version
        try:
            yield log, author
        except StorageError:
            raise  # an update would wait for the same storage again
        except Exception:  # any error: records before the failure changed files that exports name
            _renew_if_recorded(path, log, author=author, start=start, storage=access.storage)
            raise
        _renew_if_recorded(path, log, author=author, start=start, storage=access.storage)


def _renew_if_recorded(
    path: str | os.PathLike[str],
    log: CommitLog,
    author: MaintenanceAuthor,
    start: int,
    storage: Mapping[str, str] | None,
) -> None:
    try:
        # Other processes may have committed versions, also during a dry run.
        has_recorded = False
        for version in range(log.refresh().version, start, -1):
            record = log.read_record(version)
            if record is not None and record.author == author:
                has_recorded = True
                break
    except FtfileError as error:
        _log.warning("%s: it is unknown whether exports are behind; ftfile.export updates them: %s", path, error)
        return
    if has_recorded:
        renew(path, log.fs, storage)


def renew(path: str | os.PathLike[str], fs: FileSystem, storage: Mapping[str, str] | None) -> None:
    """Update all existing exports of a directory; failures are logged and never raised."""
    url = os.fspath(path)
    for to in exported_formats(fs):
        if problem := export_now(url, (to,), storage or {}, fs.context):
            _log.warning(
                "the export of %s is behind, and its readers may miss files; `%s` tries again: %s",
                url,
                Remedy("export", to=to).command(url),
                problem,
            )


def exported_formats(fs: FileSystem) -> tuple[str, ...]:
    """Return the formats with metadata in a directory; none, with a warning, if the storage fails."""
    from ftfile.operate.export.limits import LIMITS  # noqa: PLC0415 - most writers export nothing

    formats = []
    try:
        for to, limits in LIMITS.items():
            if fs.exists(limits.directory):
                formats.append(to)
    except StorageError as error:
        _log.warning("it is unknown whether exports exist; ftfile.export updates them: %s", error)
        return ()
    return tuple(formats)


def export_soon(
    path: str, formats: tuple[str, ...], storage: Mapping[str, str], context: Context, *, wait_s: float = 0.0
) -> None:
    """Start an export of a directory to these formats; return at once, or after `wait_s` seconds, or when it is done.

    Calls during a running export lead to one further export, with the settings of the last call. A failure is logged
    once, until an export succeeds.
    """
    if not formats:
        return
    wait_for([_exports.of((path, formats)).ask(storage, context)], wait_s)


def export_now(path: str, formats: tuple[str, ...], storage: Mapping[str, str], context: Context) -> str:
    """Export a directory to these formats; return the error texts, empty if there is no error."""
    errors = []
    for to in formats:
        try:
            from ftfile.operate.export.export import export  # noqa: PLC0415 - most writers export nothing

            export(path, to, storage=storage, context=context)
        except FtfileError as error:
            errors.append(f"{to}: {error}")
        except Exception as error:  # a thread has no caller to raise it to
            _log.exception("an export to %s failed", to)
            errors.append(f"{to}: {error!r}")
    return "; ".join(errors)


def check_exports(config: SinkConfig) -> None:
    """Raise a ConfigError if a format of `exportTo` cannot represent the columns or the encoding."""
    for to in config.publishing.export_to:
        _check_export(config, to)


def _check_export(config: SinkConfig, to: str) -> None:
    from ftfile.operate.export.limits import LIMITS  # noqa: PLC0415 - most writers export nothing

    columns, limits = config.recorded_schema_json, LIMITS[to]
    try:
        limits.refuse_columns(columns)
        limits.refuse_encoding(config.encoding, columns, has_filters=bool(config.chain.filters))
    except ConfigError as error:
        raise ConfigError(f"exportTo={to}: {error}. Or leave exportTo out") from error


def export_batch_write(config: SinkConfig, context: Context) -> None:
    """Export after the commit of a batch write, and wait for it: no later batch can complete it.

    After an overwrite, existing exports still name the replaced files, so they are renewed.
    """
    existing = exported_formats(config.log(context).fs) if config.overwrite else ()
    export_stream(config, context, existing, wait_s=EXPORT_WAIT_S)


def export_stream(config: SinkConfig, context: Context, existing: tuple[str, ...] = (), *, wait_s: float = 0.0) -> None:
    """Export to the formats of `exportTo`, while the next batch runs."""
    settings = dict(config.common.storage.client_settings)
    formats = tuple(dict.fromkeys((*config.publishing.export_to, *existing)))
    export_soon(config.path, formats, settings, context, wait_s=wait_s)


class _DueExport(NamedTuple):
    """An export that has not started."""

    done: Answer[None]
    storage: Mapping[str, str]
    context: Context


class _ExportQueue:
    """The exports of one directory, one at a time."""

    def __init__(self, path: str, formats: tuple[str, ...]) -> None:
        self._path, self._formats = path, formats
        self._lock = threading.Lock()
        self._wanted: _DueExport | None = None
        self._is_running = False
        self._reported_error = ""

    def ask(self, storage: Mapping[str, str], context: Context) -> Answer[None]:
        """Start an export; return the event of its end."""
        with self._lock:
            done: Answer[None] = Answer()
            if self._wanted is not None:
                done = self._wanted.done
            # Credentials of an earlier call, such as tokens, may have expired.
            self._wanted = _DueExport(done, storage, context)
            if not self._is_running:
                self._is_running = True
                # A daemon thread, so that the end of the process does not wait for a storage system.
                threading.Thread(target=self._run, name="ftfile-export", daemon=True).start()
        return done

    def _run(self) -> None:
        while True:
            with self._lock:
                request, self._wanted = self._wanted, None
                if request is None:
                    self._is_running = False
                    return
            failed = export_now(self._path, self._formats, request.storage, request.context)
            if failed and failed != self._reported_error:
                _log.error("%s is not exported; the next commit, or ftfile.export, tries again: %s", self._path, failed)
            self._reported_error = failed
            request.done.set_result(None)


def _queue(key: tuple[str, tuple[str, ...]]) -> _ExportQueue:
    path, formats = key
    return _ExportQueue(path, formats)


_exports = OnePerKey(_queue)
