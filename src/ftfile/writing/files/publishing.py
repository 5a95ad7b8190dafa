"""The steps when finished files become visible: success files, and the calls of `onPublish`.

If a batch fails before its function was called, Spark runs the batch again. The batch is already in the log, so only
its function is called. A flush is not run again, and neither is a batch of an application whose process died. Their
records note that their parts are unreported. A later flush or batch, or the next opening of the application, reports
them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from ftfile.core.errors import ConfigError, NotFound, StorageError, UserCodeError
from ftfile.core.extensions import load
from ftfile.core.logs import get_logger
from ftfile.log.format import layout
from ftfile.log.format.layout import directory_of
from ftfile.log.format.model import UNREPORTED_BATCHES, UNREPORTED_FLUSHES, Add, Body, MaintenanceAuthor
from ftfile.storage.paths import join
from ftfile.writing.files.naming import Naming, name_fault
from ftfile.writing.files.rolling_rules import RollingSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ftfile.core.options.typed import SinkOptions
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add
    from ftfile.log.state import LogState
    from ftfile.storage.api import Capabilities, FileSystem
    from ftfile.writing.options import Encryption


__all__ = (
    "UNMARKED",
    "PublishedPart",
    "Publishing",
    "SuccessFile",
    "call_on_publish",
    "check_hook",
    "mark_unreported",
    "named_code",
    "queries_with_unreported",
    "report_pending",
    "report_pending_flushes",
)


# A table of the log: the written directories that have no newer marker.
UNMARKED = "unmarkedDirectories"

_HIDING = "_."
_log = get_logger(__name__)

_OUT = "leave publish out"
_OPTION = "onPublish"


@dataclass(frozen=True, slots=True)
class SuccessFile:
    """Options of the marker in completed directories of a stream, and in the root directory after a batch write.

    A directory is complete if all of its parts are published and `successDelay` has passed since the last commit to it.
    With `directoryPattern`, the delay must also have passed since the end of the directory's time. The next commit
    writes the marker and records it. Later rows do not delete the marker; it is written again when the directory is
    complete again.
    """

    name: str
    delay_ms: int

    @classmethod
    def from_options(cls, name: str, delay_s: float, extension: str) -> SuccessFile:
        """Return the checked options. If readers would read the marker as data, a ConfigError is raised."""
        hidden = name[:1] in _HIDING and name != layout.META and "/" not in name and not name.endswith(extension)
        if not name or not hidden or name_fault(name[1:]) is not None:
            raise ConfigError(
                f"successFile={name!r}: give a name that readers ignore, starting with `_` or `.`, such as _SUCCESS"
            )
        return cls(name, int(delay_s * 1000))

    def mark(
        self, log: CommitLog, head: LogState, adds: Iterable[Add], end_ms: Callable[[str], int | None]
    ) -> dict[str, Any]:
        """Mark the complete directories before a record with these adds, and return its changes of the log's tables.

        `end_ms` returns the end of a directory's time, or None.
        """
        now_ms = log.clock.now_ms()
        busy = {layout.directory_of(add.directory_key) for add in adds}
        open_directories = set()
        for segment in head.segments.values():
            open_directories.add(layout.directory_of(segment.directory_key))
        unpublished = chain.from_iterable(entry.adds for entry in head.unpublished.values())
        waiting = set()
        for add in unpublished:
            waiting.add(layout.directory_of(add.directory_key))
        marked = []
        for directory, (written_ms, _) in head.tables.get(UNMARKED, {}).items():
            if written_ms + self.delay_ms > now_ms:
                break  # all later directories are too new as well
            end = end_ms(directory)
            is_over = end is None or end + self.delay_ms <= now_ms
            if is_over and directory not in busy | open_directories | waiting and self._mark(log.fs, directory, head):
                marked.append(directory)
        if busy or marked:
            return {UNMARKED: {"set": dict.fromkeys(sorted(busy)), "drop": marked}}
        return {}

    def _mark(self, fs: FileSystem, directory: str, head: LogState) -> bool:
        try:
            self.put(fs, directory, head.version)
        except NotFound:
            _log.info("the directory %r no longer exists: no %s is written into it", directory, self.name)
        except StorageError as error:
            _log.warning("could not write %s into %r, the next commit tries again: %s", self.name, directory, error)
            return False
        return True

    def put(self, fs: FileSystem, directory: str, version: int) -> None:
        """Write the marker with this version into a directory."""
        fs.put(join(directory, self.name), json.dumps({"version": version}).encode() + b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """The checked options. The log keeps the first two for a flush."""

    naming: Naming
    on_publish: str | None  # `module:function`
    success: SuccessFile | None = None
    publish: str | None = None  # as requested
    export_to: tuple[str, ...] = ()  # table formats

    @classmethod
    def from_options(
        cls, parsed: SinkOptions, extension: str, encryption: Encryption | None, time_zone: str
    ) -> Publishing:
        """Check the options that need no storage; see `check_storage`. Names contain times of this zone."""
        if (on_publish := parsed.on_publish) is not None:
            check_hook(on_publish)
        naming = Naming.from_options(parsed, extension, time_zone)
        return cls(
            naming=naming,
            on_publish=on_publish,
            success=_success(parsed, extension),
            publish=_publish(parsed, naming, encryption),
            export_to=parsed.export_to,
        )

    def check_storage(self, storage: Capabilities) -> None:
        """Raise a ConfigError if the storage does not support the requested way to publish."""
        how = self.publish
        if how == "rename" and not storage.atomic_rename:
            raise ConfigError(f"publish=rename: the file system {storage.driver!r} has no atomic rename; {_OUT}")
        if how == "copy" and storage.atomic_rename:
            raise ConfigError(f"publish=copy: the file system {storage.driver!r} renames atomically; {_OUT}")
        if how == "direct" and storage.visible_at != "at_close":
            raise ConfigError(
                f"publish=direct: the file system {storage.driver!r} shows files before they are complete; {_OUT}"
            )

    @property
    def direct(self) -> bool:
        """Return True if files are written under their final names."""
        return self.publish == "direct"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON for the log."""
        return {"naming": self.naming.to_json(), "onPublish": self.on_publish}

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> Publishing:
        """Build from `to_json()`."""
        return cls(naming=Naming.from_json(text["naming"]), on_publish=text["onPublish"])


def named_code(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the user code that a query's settings in the log name, by option. Nothing is imported."""
    publishing = Publishing.from_json(settings)
    names = {
        "onPublish": publishing.on_publish,
        "partFileName": publishing.naming.function,
        "rollingPolicy": msgspec.convert(settings["rolling"], RollingSettings).policy,
    }
    return {option: name for option, name in names.items() if name is not None}


def _success(parsed: SinkOptions, extension: str) -> SuccessFile | None:
    if parsed.success_file is not None:
        return SuccessFile.from_options(parsed.success_file, parsed.success_delay, extension)
    if parsed.is_given("successDelay"):
        raise ConfigError("successDelay is only for successFile, which is not set: set successFile=_SUCCESS")
    return None


def _publish(parsed: SinkOptions, naming: Naming, encryption: Encryption | None) -> str:
    how: str = parsed.publish
    if how != "direct":
        return how
    if encryption is not None:
        raise ConfigError(
            "publish=direct and encryption: encrypted content is bound to the staged name of its file; leave out one"
        )
    if naming.if_exists == "fail":
        raise ConfigError(
            "publish=direct and ifExists=fail: files have their names before the commit checks them; leave out one"
        )
    if naming.uses_numbers:
        raise ConfigError(
            "publish=direct and partFileName: files are named before the commit, so {number} and the facts that a "
            "function needs are not known yet; write a template without {number}"
        )
    return how


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPart:
    """One finished file."""

    url: str
    path: str  # relative to the root directory
    directory: str  # relative; empty for the root directory
    rows: int
    size_bytes: int
    query_id: str  # the streaming query that wrote it, or the id of a batch write
    batch_id: int  # the last micro-batch with records in the file; 0 for a batch write
    version: int  # of the commit


def check_hook(name: str) -> None:
    """Raise a ConfigError if the function does not exist."""
    if not callable(load(_OPTION, name)):
        raise ConfigError(f"{_OPTION}={name!r} is not a function")


def call_on_publish(name: str, url: str, version: int, adds: Iterable[Add]) -> None:
    """Call the function with the parts of a published record, if there are any.

    `url` is the URL of the sink's directory.
    """
    parts = tuple(
        PublishedPart(
            url=f"{url}/{add.final_path}",
            path=add.final_path,
            directory=directory_of(add.directory_key),
            rows=add.rows,
            size_bytes=add.length,
            query_id=add.origin.query_id,
            batch_id=add.origin.last_batch,
            version=version,
        )
        for add in adds
        if add.final_path is not None
    )
    if not parts:
        return
    try:
        load(_OPTION, name)(parts)
    except Exception as error:
        raise UserCodeError(
            f"{_OPTION}={name!r} raised {error!r}. Its batch is committed in version {version}. A streaming query "
            "calls the function again with the same files when it is restarted"
        ) from error


def mark_unreported(table: str, version: int, owner: str) -> dict[str, Any]:
    """Return the change of one of the log's tables of unreported parts by the record of a flush or batch."""
    return {table: {"set": {str(version): owner}}}


def queries_with_unreported(head: LogState) -> set[str]:
    """Return the queries and applications with flushed parts for which their functions were not called."""
    queries: set[str] = set()
    for _, query_id in head.tables.get(UNREPORTED_FLUSHES, {}).values():
        queries.add(query_id)
    return queries


def report_pending(log: CommitLog, name: str, url: str, owner: str, reported: Collection[int] = ()) -> list[int]:
    """Call the function with the unreported parts of a query or an application; return the versions of these parts.

    Parts that are not published yet are reported later. The caller records the call, or gives the versions as
    `reported` until it does; otherwise the call is repeated.
    """
    from ftfile.log.read.snapshot import added_by  # noqa: PLC0415 - for the driver, and only with a hook

    head = log.refresh()
    waiting = []
    unreported = chain.from_iterable(
        head.tables.get(table, {}).items() for table in (UNREPORTED_FLUSHES, UNREPORTED_BATCHES)
    )
    for text, (_, reported_by) in unreported:
        version = int(text)
        if reported_by == owner and version not in head.unpublished and version not in reported:
            waiting.append(version)
    for version in sorted(waiting):
        call_on_publish(name, url, version, added_by(log, version))
    return sorted(waiting)


def report_pending_flushes(log: CommitLog, name: str, url: str, query_id: str) -> None:
    """Call the function with the unreported parts of flushes, and record the call; see `report_pending`."""
    from ftfile.log.protocol import commit  # noqa: PLC0415 - for the driver, and only with a hook

    reported = report_pending(log, name, url, query_id)
    if reported:
        change = {"drop": [str(version) for version in reported]}
        body = Body(tables={UNREPORTED_FLUSHES: change, UNREPORTED_BATCHES: change})
        commit(log, MaintenanceAuthor(_OPTION, log.ids.unique()), lambda *_: body)
