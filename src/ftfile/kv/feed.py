"""The change feed of a store, in plain Python and as a stream, planned by bucket into shares for tasks.

A position within a version is a bucket number: all lower buckets were read.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError, HistoryGone, NotFound, StaleFiles
from ftfile.core.tasks import TASK_BYTES, pack_things
from ftfile.kv.definition import BUCKETS_MAX
from ftfile.kv.feed_rows import (
    FeedShare,
    VersionChange,
    apply_change,
    as_requested,
    by_bucket,
    change_of,
    changed_rows,
    feed_schema,
    stored_columns,
)
from ftfile.kv.planning.runs import by_id, definition_of_runs, segments_of
from ftfile.kv.reading.reader import open_store
from ftfile.kv.run_files import OpenFiles
from ftfile.log.directory import read_marker
from ftfile.log.format.adds import ids_of, total_bytes
from ftfile.log.read.snapshot import take_snapshot
from ftfile.read.log_planner import FollowSettings, LogPlan, LogPlanner, LogStream, Unit
from ftfile.read.log_positions import InLog, InSnapshot, record_or_gone
from ftfile.rows.spark_types import arrow_schema
from ftfile.storage.calls import parallel
from ftfile.writing.schema_change import check_requested

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from typing_extensions import Unpack

    from ftfile.core.arguments import AccessArguments
    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Add, Record
    from ftfile.log.state import LogState
    from ftfile.read.log_planner import FollowConfig


_ADVICE = (
    "These changes are lost for this query: start it with a new checkpointLocation, which begins with all rows of the "
    "newest version. Changes can be read for the `grace` of the store's writers: set a longer `grace` than a query "
    "may pause"
)


@contextmanager
def _advising() -> Iterator[None]:
    try:
        yield
    except HistoryGone as error:
        raise StaleFiles(f"{error.fact}. {_ADVICE}") from error


class FeedPlanner(LogPlanner[FeedShare]):
    """Plans batches of changes of one store, bucket by bucket; for arguments see `LogPlanner`.

    Raises `StaleFiles` where `LogPlanner` raises `HistoryGone`.
    """

    def __init__(
        self, log: CommitLog, settings: FollowSettings, columns: pa.Schema, code: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(log, settings, columns)
        self._code = code  # classes that the caller names
        self._live = _LiveRuns(log)

    plan = _advising()(LogPlanner.plan)
    shares = _advising()(LogPlanner.shares)

    @_advising()
    def shares_of_version(self, version: int) -> list[FeedShare]:
        """Return the change of one version, in the same way as `shares`."""
        return self._shares_of_records(
            self._log.refresh(), InLog(version=version - 1, nonce=""), InLog(version=version, nonce="")
        )

    def _units_of(self, record: Record) -> Iterable[Unit]:
        return map(Unit._make, by_bucket(change_of(record, (0, BUCKETS_MAX)).new_runs).items())

    def _units_of_snapshot(self, begin: InSnapshot) -> Iterable[Unit]:
        buckets = by_bucket(self._live.runs_at(begin.version).values())
        units = []
        for place, adds in buckets.items():
            if place >= begin.read:
                units.append(Unit(place, adds))
        return units

    def _require_files(self, head: LogState, begin: InSnapshot | InLog, plan: LogPlan) -> None:
        adds = [*self._live.runs_at(begin.version).values()]
        for record in plan.records:
            adds += record.adds
        paths = {add.path for add in adds if add.id not in head.segments}
        try:
            parallel(self._log.fs, self._log.fs.stat, sorted(paths))
        except NotFound as error:
            raise HistoryGone(f"{error.path!r} must be read, and vacuum has deleted it") from error

    def _shares_of_snapshot(self, head: LogState, start: InSnapshot, behind: int | None) -> list[FeedShare]:
        record = record_or_gone(self._log, head, start.version)
        adds = tuple(self._live.runs_at(start.version).values())
        last = BUCKETS_MAX if behind is None else behind
        whole = VersionChange(
            version=record.version,
            time_ms=record.time_ms,
            adds=adds,
            removes=(),
            scope="all",
            buckets=(start.read, last),
        )
        return _shares({}, [whole], self._live.definitions, self._code)

    def _shares_of_records(self, head: LogState, start: InLog, end: InLog) -> list[FeedShare]:
        records = []
        changes: list[VersionChange] = []
        for record, first, behind in self._records_between(head, start, end):
            records.append(record)
            changes.append(change_of(record, (first, BUCKETS_MAX if behind is None else behind)))
        if not records:
            return []
        live = self._live.runs_at(start.version)
        adds = _adds_of(changes)
        definitions = self._live.definitions | self._definitions_of(head, records, adds)
        shares = _shares(live, changes, definitions, self._code)
        for change in changes:
            live = apply_change(live, change)
        self._live.keep(records[-1].version, live, definitions)
        return shares


class _LiveRuns:
    """A cache of the live runs of one version: the last version that was requested."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._version = -1
        self._adds: dict[str, Add] = {}
        self.definitions: dict[str, Any] = {}

    def runs_at(self, version: int) -> dict[str, Add]:
        """Return the live runs of a version by id; empty before the first version."""
        if version < 0:
            return {}
        if version != self._version:
            try:
                snapshot = take_snapshot(self._log, version)
            except ConfigError as error:
                raise HistoryGone(f"version {version} cannot be compared with the next one: {error}") from error
            self._adds = by_id(segments_of(snapshot.adds.values()))
            self._version, self.definitions = version, snapshot.definitions
        return self._adds

    def keep(self, version: int, adds: dict[str, Add], definitions: dict[str, Any]) -> None:
        """Cache the live runs of a version that is likely to be requested next."""
        self._version, self._adds, self.definitions = version, adds, definitions


def _shares(
    live: Mapping[str, Add], changes: list[VersionChange], definitions: Mapping[str, Any], code: frozenset[str]
) -> list[FeedShare]:
    """Return shares of about equal size, each with neighbouring buckets in all versions."""
    everything = [*live.values(), *_adds_of(changes)]
    # An overwrite may redefine the store: then earlier runs do not determine the definition.
    lasting: Iterable[Add] = everything
    for number, change in enumerate(changes):
        if change.scope == "all":
            lasting = _adds_of(changes[number:])
    definition = definition_of_runs(lasting, definitions) or definition_of_runs(everything, definitions)
    if definition is None:
        return []
    # The runs whose keys are looked up.
    new: set[str] = set()
    for change in changes:
        new |= ids_of(change.adds if change.scope == "all" else change.new_runs)
    buckets = by_bucket(everything)

    def size_bytes(number: int) -> int:
        return total_bytes(add for add in buckets[number] if add.id in new)

    shares = []
    for numbers in map(frozenset, pack_things(buckets, size_bytes, TASK_BYTES)):
        bucket_adds = _of_buckets(live.values(), numbers)
        ids = ids_of(bucket_adds)
        narrowed = []
        has_changes = False
        for change in changes:
            adds = _of_buckets(change.adds, numbers)
            removes = tuple(add_id for add_id in change.removes if add_id in ids)
            ids |= ids_of(adds)
            bucket_change = replace(change, adds=adds, removes=removes)
            narrowed.append(bucket_change)
            has_changes |= bucket_change.scope == "all" or bool(bucket_change.new_runs)
        if has_changes:
            shares.append(
                FeedShare(live=bucket_adds, changes=tuple(narrowed), definition=definition.to_json(), code=code)
            )
    return shares


def _adds_of(changes: Iterable[VersionChange]) -> Iterator[Add]:
    """Yield the adds of changes, in order."""
    for change in changes:
        yield from change.adds


def _of_buckets(adds: Iterable[Add], numbers: frozenset[int]) -> tuple[Add, ...]:
    bucket_adds: list[Add] = []
    for number, group in by_bucket(adds).items():
        if number in numbers:
            bucket_adds += group
    return tuple(bucket_adds)


class FeedStream(LogStream[FeedShare]):
    """The position of one query in the change feed; raises SchemaError if requested types differ from the feed's."""

    def __init__(self, config: FollowConfig, context: Context) -> None:
        super().__init__()
        reader = open_store(
            config.path,
            merge=config.merge,
            key_provider=config.key_provider,
            storage=config.storage,
            context=context,
        )
        requested = arrow_schema(config.schema_json)
        # Widened types are reported when their versions are read.
        check_requested(feed_schema(reader.definition), requested, narrower=True)
        stored = stored_columns(requested, reader.definition)
        self.marker = read_marker(reader.log.fs)
        self._planner = FeedPlanner(reader.log, config.settings, stored, reader.definition.code)

    def _open(self) -> FeedPlanner:
        return self._planner


def changes(
    path: str | os.PathLike[str],
    start: int = 0,
    end: int | None = None,
    *,
    merge: str | Mapping[str, str] | None = None,
    **access: Unpack[AccessArguments],
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each key whose row a version changes, in version order; repeated calls yield the same rows.

    The columns are the key columns, `old` and `new` (structs of the value columns, null if the key has no row),
    `_change_type` (`insert`, `update`, `delete`), `_commit_version` and `_commit_timestamp` (of the writer's clock).
    The newest version defines key and value columns. `new` contains merged values. Writing a key with its current
    values is not a change.

    The first version is `start`, the last one is `end`, by default the newest version. For the other arguments see
    `ftfile.kv.open`.

    Raises:
        ConfigError: the store or the version does not exist; raised by the call itself.
        StaleFiles: vacuum has deleted the files of these versions.
        CorruptData, EncodingError, UserCodeError, StorageError: see `Reader`.
    """
    reader = open_store(path, merge=merge, **access)
    last = reader.version if end is None else end
    # A caller who has read all changes continues with the version after the newest one.
    if not (0 <= start <= reader.version + 1 and last <= reader.version):
        raise ConfigError(f"changes from version {start} to {last}: the newest version is {reader.version}")
    planner = FeedPlanner(reader.log, FollowSettings(), reader.definition.schema, reader.definition.code)
    files, schema = OpenFiles(reader.log.fs), feed_schema(reader.definition)

    def rows() -> Iterator[pa.RecordBatch]:
        for version in range(start, last + 1):
            for share in planner.shares_of_version(version):
                for batch in changed_rows(files, share):
                    yield as_requested(batch, schema)

    return rows()
