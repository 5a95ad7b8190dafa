"""Files of other programs as a stream, with the offsets and shares for both of Spark's protocols.

Files that were read to their ends can be deleted or moved to an archive if they did not change since.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ftfile.core.errors import AlreadyExists, ConfigError, NotADirectory, NotAFile, NotFound, StorageError
from ftfile.core.logs import get_logger
from ftfile.core.remedies import Advice, Wording
from ftfile.filters.keys import Keys
from ftfile.log.directory import directory_url
from ftfile.log.format import layout
from ftfile.log.places import stat_or_none
from ftfile.rows.spark_types import arrow_schema
from ftfile.source.globs import has_wildcard
from ftfile.source.listing import refuse_rows, refuse_rows_above
from ftfile.source.plan import PlanPosition, position_of, to_offset
from ftfile.source.plan_log import PlanLog
from ftfile.source.planner import Planner
from ftfile.source.settings import SourceSettings, require_columns_beside
from ftfile.storage.api import lasting_identity
from ftfile.storage.paths import Url, join, parse
from ftfile.storage.registry import is_local, open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ftfile.core.context import Context
    from ftfile.core.options.typed import FilesOptions
    from ftfile.source.listing import Listing
    from ftfile.source.plan import FileShare, Range, SourcePlan
    from ftfile.storage.api import FileInfo, FileSystem


_log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """A directory of files of other programs and the options for reading it. Plain data, sent to tasks."""

    state_location: str  # directory of the plan logs
    storage: dict[str, str]
    schema_json: str  # Spark's schema of the columns that are read
    settings: SourceSettings
    clean_source: Literal["off", "archive", "delete"] = "off"
    archive: str | None = None  # directory to which `archive` moves files
    given: dict[str, str] = field(default_factory=dict)  # the user's options, which the plan log keeps

    @classmethod
    def from_options(cls, parsed: FilesOptions, schema_json: str) -> SourceConfig:
        """Return the checked options.

        Raises:
            ConfigError: options contradict each other, or the path or the state location is missing.
        """
        settings = SourceSettings.from_options(parsed)
        if settings.decoding.key_provider is not None:
            Keys.from_reference(settings.decoding.key_provider)
        texts = dict(parsed.texts)
        texts.pop("stateLocation", None)
        return cls(
            state_location=state_location(parsed),
            storage=_storage(parsed, settings),
            schema_json=schema_json,
            settings=settings,
            clean_source=parsed.clean_source,
            archive=parsed.source_archive_dir,
            given=texts,
        )


class SourceStream:
    """The position of one query in a directory of files, in the process that plans the query.

    The first plan creates the name of the query's plan log. Before it, nothing is known of a query. Before 4.2
    (SPARK-55304), Spark requests the latest offset without the end of the last batch. The stream remembers this end
    when Spark requests the partitions. While there is no new content, `latest_offset` waits for a change for up to
    `wait_s` seconds.
    """

    def __init__(self, config: SourceConfig, context: Context, wait_s: float = 0.0) -> None:
        self._config = config
        self._context = context
        root, pattern = config.settings.root, config.settings.pattern
        fs = open_filesystem(root, context, config.storage)
        _require_input(fs, config.settings)
        refuse_rows_above(config.settings, context, config.storage)
        _require_state(open_state(config.state_location, root, config.storage, context), config.state_location)
        below = "" if has_wildcard(pattern) else pattern
        self._cleaner = open_cleaner(
            root, config.clean_source, archive=config.archive, context=context, storage=config.storage, below=below
        )
        self._planner = Planner(fs, config.settings, context, wait_s)
        self._run_id = context.ids.unique()
        self._plans: PlanLog | None = None
        self._position: PlanPosition | None = None
        self._listing: Listing | None = None

    def latest_offset(self, start: dict[str, Any] | None = None, *, limited: bool = True) -> dict[str, Any]:
        """Return the offset of the next plan, which is durable; return `start` if there is nothing to read.

        By default, the plan starts at the end of the last shares.

        Raises:
            ConfigError: `start` does not belong to a source of files, or new files cannot have the requested columns.
            StateLost: the plans after `start` are missing or belong to another query.
        """
        if start is None:
            begin = self._position
        else:
            begin = position_of(start)
        plans = self._plans_of(begin)
        if begin is not None:
            position = begin
        else:
            position = PlanPosition(plans.id, -1, "")
        # While there is no new content, the state is not read: `add` finds plans of other drivers, and `known` may find
        # them.
        known = None
        if plans.head == position:
            known = plans.read_known()
        while known is None or plans.head != position:
            if (found := plans.position_after(position)) is not None:
                return to_offset(found)
            known = plans.read_known()
        plan = self._planner.plan(known, self._listing, limited=limited)
        if plan is not None:
            self._require_columns(plan)
        return to_offset(begin if plan is None else plans.add(position, plan))

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[FileShare]:
        """Return the shares between two offsets, one for each task; the same bytes at every call.

        Raises:
            ConfigError: an offset does not belong to a source of files, or files cannot have the requested columns.
            StateLost: the plan is missing.
        """
        begin, self._position = position_of(start), position_of(end)
        if self._position is None or begin == self._position:
            return []
        plan = self._plans_of(self._position).read(self._position, begin)
        self._require_columns(plan)
        return plan.shares(self._config.settings.decoding.max_partition_bytes)

    def commit(self, end: dict[str, Any]) -> None:
        """Note that batches up to an offset will not be repeated, and clean the files that they read to the end."""
        if (position := position_of(end)) is None:
            return
        plans = self._plans_of(position)
        plans.commit(position)
        if self._cleaner is not None:
            for plan in plans.last_plans(position):
                self._cleaner.clean(plan.ranges)

    def stop_at_head(self) -> None:
        """Read only the files that exist now: all plans use one listing."""
        self._listing = self._planner.list()

    def report(self) -> dict[str, Any] | None:
        """Return the newest plan, and counts of known files and unread content; None before the first plan."""
        head = None
        if self._plans is not None:
            head = self._plans.head
        if head is None:
            return None
        return {"plan": head.plan, **self._planner.report()}

    def _require_columns(self, plan: SourcePlan) -> None:
        columns = arrow_schema(self._config.schema_json)
        paths = [planned.path for planned in plan.ranges]
        require_columns_beside(paths, columns, self._config.settings.decoding)

    def _plans_of(self, position: PlanPosition | None) -> PlanLog:
        """Return the log of a position; for the start, a log of this process with a new name."""
        log_id = None
        if position is not None:
            log_id = position.log_id
        if self._plans is None or log_id not in {None, self._plans.id}:
            log_id = log_id or self._context.ids.unique()
            config = self._config
            state = open_state(
                config.state_location,
                config.settings.root,
                storage=config.storage,
                context=self._context,
                log_id=log_id,
            )
            self._plans = PlanLog(state, log_id, self._run_id, config.given)
        return self._plans


def open_state(location: str, root: str, storage: dict[str, str], context: Context, log_id: str = "") -> FileSystem:
    """Open the directory of a plan log, or of all plan logs.

    `storage` contains settings for the storage of `root`. If the location has another scheme, settings that its driver
    does not know are ignored.
    """
    url = f"{location.rstrip('/')}/{log_id}"
    if parse(url).scheme == parse(root).scheme:
        return open_filesystem(url, context, storage)
    return open_filesystem(url, context, optional_settings=storage)


def _storage(parsed: FilesOptions, settings: SourceSettings) -> dict[str, str]:
    """Return the settings of the storage.

    Raises:
        ConfigError: links must be followed in a storage system without links.
    """
    storage = parsed.options_with_prefix("storage")
    if not settings.follow_links:
        return storage
    if not is_local(settings.root):
        raise ConfigError(f"followLinks=true is only for local directories, not for {settings.root!r}: omit it")
    return storage | {"followLinks": "true"}


def state_location(parsed: FilesOptions) -> str:
    """Return the URL of the directory with the plan logs of sources."""
    if parsed.state_location is not None:
        return directory_url(parsed.state_location, "stateLocation")
    checkpoint = parsed.spark.get("checkpointlocation")
    if not checkpoint:
        raise ConfigError(
            Advice(
                "a stream of files needs a location for its state. To keep the state in the query's checkpoint, also "
                "give the checkpoint to the reader with ",
                Wording("readStream.option('checkpointLocation', '/data/checkpoint')", "--checkpoint /data/checkpoint"),
                ". Or give the state a separate directory with ",
                Wording("readStream.option('stateLocation', '/data/state')", "--option stateLocation=/data/state"),
            )
        )
    return f"{directory_url(checkpoint, 'checkpointLocation').rstrip('/')}/{layout.STATE_IN_CHECKPOINT}"


def _require_input(fs: FileSystem, settings: SourceSettings) -> None:
    """Raise a ConfigError unless an input exists at or below the root `fs` and is not an ftfile directory."""
    is_literal, shown = not has_wildcard(settings.pattern), settings.shown
    named = settings.pattern if is_literal else ""  # files that match a pattern may be created later
    try:
        is_there = fs.stat(named).is_directory or is_literal
    except NotAFile as error:
        raise ConfigError(f"path={shown!r}: {error.detail}. followLinks=true follows links") from error
    except NotFound:
        if not fs.capabilities.implied_directories:
            missing = shown if is_literal else settings.root
            raise ConfigError(
                f"path={missing!r} does not exist, or is a broken link: create the directory before the stream "
                "starts, or correct the path"
            ) from None
        _log.warning("path=%r does not exist yet: the stream waits for the first file", shown)
        is_there = True
    except NotADirectory:
        is_there = False
    if not is_there:
        raise ConfigError(
            f"path={shown!r} leads through a file or a broken link, so nothing can be below it: correct the path"
        )
    refuse_rows(fs, settings, sorted({"", named}))


def _require_state(fs: FileSystem, location: str) -> None:
    """Raise a ConfigError for a directory of rows or a plan log. It may contain the plan logs of other sources."""
    if stat_or_none(fs, layout.FORMAT_FILE) is not None:
        raise ConfigError(
            f"stateLocation={location!r} is already an ftfile directory, with rows or with the plans of one stream: "
            "give the state a separate directory"
        )


_log = get_logger(__name__)


def open_cleaner(
    path: str,
    mode: Literal["off", "archive", "delete"],
    archive: str | None,
    context: Context,
    storage: Mapping[str, str] | None = None,
    *,
    below: str = "",
) -> Cleaner | None:
    """Return the cleaner of the files that a stream reads `below` the directory `path`; None if files are not cleaned.

    Raises:
        ConfigError: the archive is missing, is in another storage system, overlaps the path, or is given without
            `cleanSource=archive`.
    """
    if archive is not None and mode != "archive":
        raise ConfigError(
            "sourceArchiveDir is only for cleanSource=archive: set cleanSource=archive, or omit sourceArchiveDir"
        )
    if mode == "off":
        return None
    source = parse(path)
    if mode == "delete":
        return Cleaner(open_filesystem(source.url, context, storage))
    if archive is None:
        raise ConfigError("cleanSource=archive moves files that were read to sourceArchiveDir: set this option")
    target = parse(archive)
    if (target.scheme, target.authority) != (source.scheme, source.authority):
        raise ConfigError(
            f"sourceArchiveDir={archive!r} is in another storage system than {path!r}: files are moved, not copied"
        )
    read = posixpath.join(source.path, below).rstrip("/")
    if posixpath.commonpath([read, target.path]) in {read, target.path}:
        raise ConfigError(
            f"one of sourceArchiveDir={archive!r} and path={read!r} contains the other: use separate directories"
        )
    common = posixpath.commonpath([source.path, target.path])
    fs = open_filesystem(Url(source.scheme, source.authority, common).url, context, storage)
    if source.path == common:
        above = ""
    else:
        above = posixpath.relpath(source.path, common)
    return Cleaner(fs, above, posixpath.relpath(target.path, common))


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Archives or deletes files. A repeated call changes nothing."""

    fs: FileSystem  # contains the source directory and the archive
    source: str = ""  # the source directory; empty for the root of `fs`
    # directory to which files are moved, with their paths below the source; None to delete them
    archive: str | None = None

    def clean(self, ranges: Iterable[Range]) -> int:
        """Clean the files that these ranges read to the end, and return the number of files that this call cleaned.

        A file that was changed or moved later stays, and also a file that the storage cannot delete or move. Skipped
        files are logged.
        """
        cleaned = 0
        for planned in ranges:
            if _is_to_its_end(planned) and self._clean(planned):
                cleaned += 1
        return cleaned

    def _clean(self, planned: Range) -> bool:
        try:
            info = stat_or_none(self.fs, join(self.source, planned.path))
            if info is None:
                return False
            if not _is_unchanged(info, planned):
                _log.warning("cleanSource skips %s, which changed after it was read", planned.path)
                return False
            if self.archive is None:
                self.fs.delete(info.path)
            else:
                self._move(info, join(self.archive, planned.path))
        except NotFound:
            return False
        except StorageError as error:
            _log.warning("cleanSource skips a file that was read: %s", error)
            return False
        return True

    def _move(self, info: FileInfo, target: str) -> None:
        self.fs.make_directories(target.rpartition("/")[0])
        try:
            self.fs.rename(info.path, target)
        except AlreadyExists:
            there = self.fs.stat(target)
            if there.identity is None or there.identity != info.identity:
                raise
            self.fs.delete(info.path)  # an interrupted move left both files


def _is_to_its_end(planned: Range) -> bool:
    # The length of the plain content of a compressed file is unknown here.
    return planned.whole or (not planned.compression and planned.end == planned.size_bytes)


def _is_unchanged(info: FileInfo, planned: Range) -> bool:
    identity = lasting_identity(info.identity) if planned.identity is not None else None
    now = (info.size_bytes, info.modified_ms, identity)
    return now == (planned.size_bytes, planned.modified_ms, planned.identity)
