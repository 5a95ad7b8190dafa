"""The monitor of directories, which counts new versions and publishes metrics."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from ftfile.core.arguments import Access, check_arguments
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, FtfileError, NotFound
from ftfile.core.logs import get_logger
from ftfile.core.units import parse_duration_s
from ftfile.log.opening import open_log
from ftfile.log.publish import skip_published
from ftfile.log.read.history import WRITES, last_commit_of, version_of
from ftfile.log.read.times import version_time_ms
from ftfile.log.state import LogState
from ftfile.operate.status import facts_of
from ftfile.storage.registry import normalise
from ftfile.tools.monitor.metrics import METRICS, Tally, values_of
from ftfile.writing.files.rolling_rules import POLICY, REASONS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from ftfile.core.context import Context
    from ftfile.log.commit_log import CommitLog
    from ftfile.log.format.model import Record
    from ftfile.log.state import QueryState
    from ftfile.tools.monitor.metrics import Labels
    from ftfile.tools.monitor.opentelemetry import Meter
    from ftfile.tools.monitor.prometheus import PrometheusServer

__all__ = ("DIRECTORIES_MAX", "QUERIES_SHOWN", "Follower", "Monitor", "MonitoredDirectory", "monitor")


# The maximum number of queries of a directory with series: the queries that wrote last.
QUERIES_SHOWN = 16

_log = get_logger(__name__)


class MonitoredDirectory(NamedTuple):
    """A directory, and the options that open it."""

    path: str
    key_provider: str | None = None
    storage: Mapping[str, str] | None = None

    @property
    def url(self) -> str:
        """Return the URL, the directory's label in metrics."""
        return normalise(self.path)


class Follower:
    """Counts the versions of a directory that are created after the first `look`, in a separate thread.

    If the directory has no commits at the first `look`, every version counts. A follower never writes.
    """

    def __init__(self, place: MonitoredDirectory, tally: Tally, context: Context, interval_s: float) -> None:
        self.url = place.url
        self.users: set[str] = set()  # runs of queries that write to the directory, and other users
        self.names: dict[str, str] = {}  # of queries, by id
        self._place, self._tally, self._context, self._interval_s = place, tally, context, interval_s
        self._opened: CommitLog | None = None
        self._head = LogState()
        self._is_new = False
        self._next = 0  # the first version that is not counted yet
        self._is_up = True
        self._unpublished: dict[int, float] = {}  # when each version was first seen unpublished
        self._times: dict[int, float | None] = {}  # creation times of the versions in gauges
        self._shown: set[Labels] = set()  # queries with series
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ftfile-monitor", daemon=True)

    def start(self) -> None:
        """Start the thread; versions that are created after the first `look` are counted."""
        # Counters start at 0, because `increase()` of Prometheus ignores the first value of a series.
        for metric in METRICS.values():
            if metric.kind == "counter" and metric.labels == ("directory",):
                self._tally.add(metric.name, (self.url,), 0)
            elif metric.kind == "counter" and metric.labels == ("directory", "operation"):
                self._tally.add(metric.name, (self.url, "stream"), 0)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread after a last `look`."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(self._interval_s):
            self.look()
        self.look()

    def look(self) -> None:
        """Update the values. A failure is logged once, and the next `look` tries again."""
        with self._lock:
            try:
                self._look()
            except Exception as error:  # an unexpected error must not end the thread
                self._tally.set("ftfile_up", (self.url,), 0)
                if self._is_up:
                    trace = None if isinstance(error, FtfileError) else error
                    _log.warning("the log of %s cannot be read: %s", self.url, error, exc_info=trace)
                self._is_up = False

    def last_batch(self, query_id: str) -> int:
        """Return the newest batch of a query in the log at the last `look`; -1 if there is no batch."""
        query = self._head.queries.get(query_id)
        if query is None:
            return -1
        return query.last_batch

    def _look(self) -> None:
        log = self._opened
        if log is None:
            try:
                log = open_log(
                    self._place.path, Access(self._place.key_provider, self._place.storage, context=self._context)
                )
            except ConfigError as error:
                if not isinstance(error.__cause__, NotFound):
                    raise
                self._is_new = True
                self._tally.set("ftfile_up", (self.url,), 1)
                self._tally.set("ftfile_version", (self.url,), -1)
                return
            head = log.refresh()
            if self._is_new:
                self._next = 0
            else:
                self._next = head.version + 1
            self._opened = log
        # A refresh decodes each record. The decoded records are kept, so that `_records` need not read them again.
        log.recent.is_kept = True
        self._head = head = log.refresh()
        records = list(self._records(log, head))
        log.recent.clear()
        for record in records:
            self._count(record)
        self._show(log, head)
        if records:
            self._log_versions(records)
        self._tally.set("ftfile_up", (self.url,), 1)
        self._is_up = True

    def _records(self, log: CommitLog, head: LogState) -> Iterator[Record]:
        """Yield the kept records that are not counted yet."""
        # If the directory was deleted and created again, its newest version can be older than the last counted version.
        first = 0
        if self._next <= head.version + 1:
            first = self._next
        for version in range(max(first, head.log_start), head.version + 1):
            record = log.recent.records.get(version) or log.read_record(version)
            if record is not None:
                yield record
        self._next = head.version + 1

    def _count(self, record: Record) -> None:
        version, tally, here = version_of(record, None), self._tally, (self.url,)
        metrics, by_operation = version.metrics, (self.url, version.operation)
        tally.add("ftfile_commits_total", by_operation)
        tally.add("ftfile_log_cache_hits_total", here, not metrics.log_reads)
        for reason, files in metrics.files_by_reason.items():
            label = reason if reason in REASONS else POLICY.reason
            tally.add("ftfile_finished_files_total", (self.url, label), files)
        tasks = metrics if version.operation in WRITES else None
        for metric, value in values_of(version=version, metrics=metrics, tasks=tasks, last=last_commit_of(record)):
            change = tally.add if metric.kind == "counter" else tally.observe
            change(metric.name, by_operation if "operation" in metric.labels else here, value)

    def _show(self, log: CommitLog, head: LogState) -> None:
        """Set the gauges."""
        here, tally = (self.url,), self._tally
        for metric, value in values_of(head=facts_of(head)):
            tally.set(metric.name, here, value)
        self._show_unpublished(log, head)
        newest = sorted(head.queries.items(), key=_last_version)[-QUERIES_SHOWN:]
        versions = {head.version, *map(_last_version, newest)}
        times = {}
        for version in versions:
            if version >= 0:
                times[version] = self._created_s(log, version)
        self._times = times
        tally.set("ftfile_last_commit_timestamp_seconds", here, self._times.get(head.version))
        shown = {}
        for query_id, query in newest:
            shown[self.url, self.names.get(query_id, query_id)] = query
        for labels in self._shown - shown.keys():
            tally.set("ftfile_query_last_batch", labels, None)
            tally.set("ftfile_query_last_commit_timestamp_seconds", labels, None)
        for labels, query in shown.items():
            tally.set("ftfile_query_last_batch", labels, query.last_batch)
            tally.set("ftfile_query_last_commit_timestamp_seconds", labels, self._times.get(query.version))
        self._shown = set(shown)

    def _created_s(self, log: CommitLog, version: int) -> float | None:
        if version in self._times:
            return self._times[version]
        time_ms = version_time_ms(log, version)
        if time_ms is None:
            return None
        return time_ms / 1000

    def _show_unpublished(self, log: CommitLog, head: LogState) -> None:
        skip_published(log, head)
        now_s = self._context.clock.now_ms() / 1000
        before, self._unpublished = self._unpublished, {}
        for version in head.unpublished:
            self._unpublished[version] = before.get(version, now_s)
        self._tally.set("ftfile_unpublished_versions", (self.url,), len(self._unpublished))
        oldest = min(self._unpublished.values(), default=None)
        self._tally.set("ftfile_oldest_unpublished_timestamp_seconds", (self.url,), oldest)

    def _log_versions(self, records: list[Record]) -> None:
        """Log one line for all new versions together."""
        rows = files = size_bytes = recoveries = replays = bad_records = 0
        for record in records:
            version = version_of(record, None)
            rows += version.rows
            files += version.files
            size_bytes += version.size_bytes
            recoveries += version.metrics.recoveries
            replays += version.metrics.replays
            bad_records += version.bad_records
        _log.info(
            "%s: %d versions up to %d added %d rows, %d files, %d bytes; %d recoveries, %d replays, %d bad records",
            self.url,
            len(records),
            records[-1].version,
            rows,
            files,
            size_bytes,
            recoveries,
            replays,
            bad_records,
        )


def _last_version(query: tuple[str, QueryState]) -> int:
    return query[1].version


# The maximum number of directories with series. Beyond it, a directory without a running query is removed.
DIRECTORIES_MAX = 64


class Monitor:
    """Follows directories until it is closed. Also a context manager. Thread-safe.

    Attributes:
        url: where Prometheus reads the metrics; None without a port.
    """

    def __init__(
        self,
        interval: str | timedelta = "10s",
        prometheus_port: int | None = None,
        address: str = "127.0.0.1",
        meter_provider: Any = None,  # noqa: ANN401 - of OpenTelemetry
        context: Context = SYSTEM,
    ) -> None:
        self.tally = Tally()
        self._interval_s = _check_interval_s(interval)
        self._context = context
        self._followers: dict[str, Follower] = {}
        self._lock = threading.Lock()
        self._server: PrometheusServer | None = None
        self._meter: Meter | None = None
        if meter_provider is not None:
            from ftfile.tools.monitor.opentelemetry import Meter  # noqa: PLC0415 - an extra

            self._meter = Meter(self.tally, meter_provider)
        if prometheus_port is not None:
            from ftfile.tools.monitor.prometheus import PrometheusServer  # noqa: PLC0415 - an extra

            self._server = PrometheusServer(self.tally, prometheus_port, address)
        if self._server is None:
            self.url = None
        else:
            self.url = self._server.url

    @check_arguments
    def watch(
        self, path: str | os.PathLike[str], *, key_provider: str | None = None, storage: Mapping[str, str] | None = None
    ) -> None:
        """Follow another directory; does nothing if the directory is already followed. See `ftfile.monitor`."""
        self.follow(MonitoredDirectory(str(path), key_provider, storage), "watch")

    def follow(self, place: MonitoredDirectory, user: str, names: Mapping[str, str] | None = None) -> Follower | None:
        """Return the follower of a directory, for a user until `leave`; None if too many directories have users.

        `names` contains the names of queries by id.
        """
        removed: Follower | None = None
        with self._lock:
            follower = self._followers.get(place.url)
            if follower is None:
                if len(self._followers) >= DIRECTORIES_MAX:
                    unused = self._find_unused()
                    if unused is None:
                        _log.warning(
                            "%s is not monitored: %d directories already are, which is the maximum",
                            place.url,
                            len(self._followers),
                        )
                        return None
                    removed = self._followers.pop(unused)
                follower = self._followers[place.url] = Follower(place, self.tally, self._context, self._interval_s)
                follower.start()
            follower.names.update(names or {})
            follower.users.add(user)
        # Storage can be slow, so it is called without the lock, and does not delay calls for other directories.
        if removed is not None:
            removed.close()
            self.tally.forget(removed.url)
        follower.look()
        return follower

    def _find_unused(self) -> str | None:
        """Return a directory without users."""
        for url, follower in self._followers.items():
            if not follower.users:
                return url
        return None

    def leave(self, url: str, user: str) -> None:
        """Remove a user of a directory. The values stay until another directory needs the place."""
        with self._lock:
            if (follower := self._followers.get(url)) is not None:
                follower.users.discard(user)
        if follower is not None:
            follower.look()

    def look(self) -> None:
        """Update all values now, before the next interval."""
        with self._lock:
            followers = list(self._followers.values())
        for follower in followers:
            follower.look()

    def close(self) -> None:
        """Stop all threads and the server. Idempotent."""
        with self._lock:
            followers, self._followers = list(self._followers.values()), {}
        for follower in followers:
            follower.close()
        if self._meter is not None:
            self._meter.close()
        if self._server is not None:
            self._server.close()
            self._server = None

    def __enter__(self) -> Monitor:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@check_arguments
def monitor(  # noqa: PLR0913 - all by name
    path: str | os.PathLike[str],
    *,
    prometheus_port: int | None = None,
    address: str = "127.0.0.1",
    meter_provider: Any = None,  # noqa: ANN401 - of OpenTelemetry
    interval: str | timedelta = "10s",
    key_provider: str | None = None,
    storage: Mapping[str, str] | None = None,
) -> Monitor:
    """Follow a directory or a store from any process, and publish metrics for Prometheus or OpenTelemetry.

    The monitor counts the versions that any process creates from now on. It reads the log at each interval, never
    writes, and logs one line for the new versions of an interval. `Monitor.watch(path)` adds directories, `close()`
    ends the monitor. For the streams of a session, `ftfile.spark.listen(spark)` publishes more metrics.

    Args:
        path: as in `ftfile.open`; the directory need not exist yet.
        prometheus_port: the port that serves metrics at `/metrics`; 0 selects a free port, see `Monitor.url`. It needs
            `ftfile[prometheus]`. By default, metrics are not served.
        address: the address to listen on; by default only this host can connect.
        meter_provider: of OpenTelemetry, such as `opentelemetry.metrics.get_meter_provider()`, with
            `ftfile[opentelemetry]`.
        interval: a duration with its unit, such as "10s", or a timedelta.
        key_provider: see `ftfile.open`.
        storage: see `ftfile.open`.

    Raises:
        ConfigError: an argument is wrong, the port is in use, or a package is not installed.
    """
    new_monitor = Monitor(interval, prometheus_port, address, meter_provider)
    new_monitor.watch(path, key_provider=key_provider, storage=storage)
    return new_monitor


def _check_interval_s(interval: str | timedelta) -> float:
    try:
        if isinstance(interval, timedelta):
            seconds = interval.total_seconds()
        else:
            seconds = parse_duration_s(interval)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigError(f"interval={interval!r}: it must be a duration with a unit, such as '10s', or a timedelta")
    return seconds
