"""The new rows of each version of a directory, once, for streams and for `ftfile.open(path).follow()`."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ChangedRows, ConfigError, CorruptData, HistoryGone
from ftfile.core.logs import get_logger
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import DirectoryFollowOptions
from ftfile.log.commit_log import CommitLog
from ftfile.log.directory import check_is_files, read_marker
from ftfile.log.format import layout
from ftfile.log.format.layout import original_id
from ftfile.log.format.model import MaintenanceAuthor, Origin, StreamAuthor
from ftfile.log.places import list_or_empty, open_add, stat_or_none
from ftfile.log.read.snapshot import last_restore, moved_since, take_snapshot
from ftfile.log.sealed import open_with_keys
from ftfile.read.log_planner import FollowSettings, LogPlan, LogPlanner, LogStream, Unit
from ftfile.read.log_positions import START, InLog, InSnapshot, check_kept, position_of
from ftfile.read.shares import Share, pack, read_share
from ftfile.rows.spark_types import arrow_schema
from ftfile.storage.calls import parallel
from ftfile.storage.registry import open_filesystem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ftfile.core.context import Context
    from ftfile.log.format.model import Add, Record
    from ftfile.log.state import LogState
    from ftfile.read.log_planner import FollowConfig
    from ftfile.read.log_positions import Begun, Position


_log = get_logger(__name__)


class FollowPlanner(LogPlanner[Share]):
    """Plans batches of new rows of one directory, add by add; errors name its path.

    `plan` also raises `ChangedRows` if the next version replaces or removes rows.
    """

    def __init__(self, log: CommitLog, settings: FollowSettings, columns: pa.Schema, path: str) -> None:
        super().__init__(log, settings, columns)
        self._path = path
        self._first = FirstSnapshot(log)
        self._last_reported = -1
        self.skipped = 0  # number of versions that `skipChangeCommits` skipped

    def refresh(self) -> LogState:
        """Return the log's state at its head, which is durable; a ConfigError if the directory is a store."""
        head = super().refresh()
        check_is_files(head, self._path)
        return head

    def _units_of(self, record: Record) -> Iterable[Unit]:
        for place, add in enumerate(new_rows_of(record)):
            yield Unit(place, (add,))

    def _units_of_snapshot(self, begin: InSnapshot) -> Iterable[Unit]:
        adds = self._first.adds(begin.version)
        for place in range(begin.read, len(adds)):
            yield Unit(place, (adds[place],))

    def _refusal(self, record: Record) -> Exception | None:
        """Return the error for a record that cannot be followed, or None. A skipped record is counted and logged."""
        if record.is_change:
            if not self._settings.skip_changes:
                return ChangedRows(
                    f"{describe(record)} that may have been read. To read later rows, set skipChangeCommits=true, "
                    "which skips such versions and the rows that they add"
                )
            if record.version > self._last_reported:
                _log.warning("skipped: %s", describe(record))
                self._last_reported = record.version
                self.skipped += 1
        return super()._refusal(record)

    def _require_files(self, head: LogState, begin: Begun, plan: LogPlan) -> None:
        # A file at a version that vacuum has deleted can be a dead record.
        check_kept(self._log.refresh(), begin.needed)
        removed = [add for version, add in plan.taken if not head.is_live(add, version)]
        removed = self._as_moved(head, begin.version, removed)
        try:
            parallel(self._log.fs, lambda add: open_add(add, self._log.fs.stat, is_old=True), removed)
        except CorruptData as error:
            raise HistoryGone(
                f"{error.path!r} must be read, but a later version replaced it and vacuum has deleted it",
                "Start the query with a new checkpointLocation, and vacuum with a longer retention",
            ) from error

    def _shares_of_snapshot(self, head: LogState, start: InSnapshot, behind: int | None) -> Iterator[Share]:
        check_kept(head, start.version)
        adds = self._first.adds(start.version)
        return iter(pack(adds[start.read : behind], self._first.definitions))

    def _shares_of_records(self, head: LogState, start: InLog, end: InLog) -> Iterator[Share]:
        self._first.forget()
        records: list[Record] = []
        adds: list[Add] = []
        for record, first, behind in self._records_between(head, start, end):
            adds += new_rows_of(record)[first:behind]
            records.append(record)
        # A file at a version that vacuum has deleted can be a dead record.
        check_kept(self._log.refresh(), start.version + 1)
        adds = self._as_moved(head, start.version, adds)
        return iter(pack(adds, self._definitions_of(head, records, adds)))

    def _as_moved(self, head: LogState, version: int, adds: list[Add]) -> list[Add]:
        """Return the adds of versions after `version` with their current paths: restores move files."""
        if adds:
            moved = moved_since(self._log, head, version)
        else:
            moved = {}
        if moved:
            return [moved.get(original_id(add.id), add) for add in adds]
        return adds


def new_rows_of(record: Record) -> tuple[Add, ...]:
    """Return the adds of a record whose rows are in no earlier record, in the record's order.

    The result is empty for a change. Parts and remaining segments of rows of earlier batches have an older origin.
    """
    author = record.author
    if isinstance(author, MaintenanceAuthor) or record.is_change:
        return ()
    if isinstance(author, StreamAuthor):
        origin = Origin(author.query_id, author.batch_id, author.batch_id)
    else:
        origin = Origin(author.operation_id, 0, 0)
    return tuple(add for add in record.adds if add.origin == origin)


def describe(record: Record) -> str:
    """Return the effect of a record that removes rows, for messages."""
    author = record.author
    if record.restored is not None:
        changes = f"removes {len(record.removes)} files, and restores {len(record.adds)},"
        return f"version {record.version}, a restore of version {record.restored}, {changes}"
    if isinstance(author, MaintenanceAuthor):
        return f"version {record.version}, a {author.operation}, removes {len(record.removes)} files"
    return f"version {record.version}, an overwrite, replaces {len(record.removes)} files"


class FirstSnapshot:
    """The adds of one version, cached while they are read slice by slice."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._version: int | None = None
        self._restored = -1
        self._adds: tuple[Add, ...] = ()
        self.definitions: dict[str, Any] = {}

    def adds(self, version: int) -> Sequence[Add]:
        """Return the live adds of a version by first batch and id, in the same order at every call."""
        # A restore moves files, so the cached paths are wrong after it.
        restored = last_restore(self._log.refresh())
        if (self._version, self._restored) != (version, restored):
            self._restored = restored
            snapshot = take_snapshot(self._log, version)
            ordered = sorted(snapshot.adds.values(), key=attrgetter("origin.first_batch", "id"))
            self._version, self._adds, self.definitions = version, tuple(ordered), snapshot.definitions
        return self._adds

    def forget(self) -> None:
        """Drop the cached adds."""
        self._version, self._adds, self.definitions = None, (), {}


class FollowStream(LogStream[Share]):
    """The position of one query in a directory. The stream waits for a directory that does not exist yet."""

    def __init__(self, config: FollowConfig, context: Context) -> None:
        super().__init__()
        self._config = config
        self._context = context
        self._planner: FollowPlanner | None = None
        self._fs = open_filesystem(config.path, context, config.storage)

    def shares(self, start: dict[str, Any], end: dict[str, Any]) -> list[Share]:
        """Return the new rows between two offsets; see `LogStream.shares`."""
        shares = super().shares(start, end)
        if shares and self.marker is None:
            self.marker = read_marker(self._fs)
        return shares

    def report(self) -> dict[str, Any] | None:
        """Return the newest version, the number of versions after the last plan, and the number of skipped versions."""
        if self._planner is None or (progress := super().report()) is None:
            return None
        return progress | {"versionsSkipped": self._planner.skipped}

    def _open(self) -> FollowPlanner:
        """Return the planner of the directory; a temporary planner of an empty log until the directory exists."""
        if self._planner is not None:
            return self._planner
        config = self._config
        is_there = self._is_there()
        if is_there:  # whether the directory is encrypted is only known once it exists
            self._fs = open_with_keys(config.path, self._context, config.key_provider, config.storage.items())
        log = CommitLog(self._fs)
        if is_there:
            log.check_layout()
        planner = FollowPlanner(log, config.settings, arrow_schema(config.schema_json), config.path)
        self._planner = planner if is_there else None
        return planner

    def _is_there(self) -> bool:
        """Return True if the directory has a log, and False if it is empty; a ConfigError if it has other files."""
        if stat_or_none(self._fs, layout.FORMAT_FILE) is not None:
            return True
        paths = [info.path for info in list_or_empty(self._fs, "") if info.path != layout.META]
        # Another process may have created the directory after the first look.
        if not paths or stat_or_none(self._fs, layout.FORMAT_FILE) is not None:
            return bool(paths)
        raise ConfigError(
            f"{self._config.path!r} is not an ftfile directory: it has no log, but has other files, such as "
            f"{paths[0]!r}. To read files of another program, set fileFormat"
        )


def follow_log(
    log: CommitLog, path: str, columns: pa.Schema, offset: dict[str, Any] | None, options: Mapping[str, object]
) -> Iterator[tuple[dict[str, Any], Iterator[pa.RecordBatch]]]:
    """Yield the new rows after an offset, plan by plan, each with the next offset; see `Directory.follow`."""
    planner = FollowPlanner(log, _settings(options), columns, path)
    position = position_of(START if offset is None else offset)
    end_version = planner.refresh().version

    def rows(start: Position, end: Position) -> Iterator[pa.RecordBatch]:
        for share in planner.shares(start, end):
            yield from read_share(log.fs, share, columns)

    while (end := planner.plan(position, end_version)) != position:
        yield end.to_offset(), rows(position, end)
        position = end


def _settings(options: Mapping[str, object]) -> FollowSettings:
    texts = {}
    for name, value in options.items():
        texts[name] = value.isoformat() if isinstance(value, datetime) else str(value)
    parsed = parse_options(texts, DirectoryFollowOptions)
    for name in ("path", "keyProvider", *parsed.own):
        if name in parsed.given or name in parsed.own:
            raise ConfigError(f"{name} is an argument of ftfile.open, not an option of follow")
    return FollowSettings.from_options(parsed)
