"""`listen(spark)`, which publishes metrics of a session's streams."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ftfile.core.arguments import check_arguments
from ftfile.core.errors import ConfigError
from ftfile.core.logs import get_logger
from ftfile.core.per_process import PerProcess
from ftfile.spark.listener import execution_of, place_of
from ftfile.tools.monitor.monitor import Monitor, MonitoredDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from pyspark.sql import SparkSession

    from ftfile.tools.monitor.metrics import Labels


_IS_CLIENT = (
    "listen(spark) runs in the driver of the streams, and a Spark Connect session is only a client of the driver: "
    "call ftfile.monitor(path), which follows a directory from any process"
)
_log = get_logger(__name__)

# Maximum number of ended queries whose series are kept. The queries that ended last are kept.
ENDED_SHOWN = 64
# The metrics with which Spark's sources report their lag, and their units.
_BACKLOGS = {
    "maxOffsetsBehindLatest": "offsets",  # of a partition of Kafka
    "numFilesOutstanding": "files",
    "numBytesOutstanding": "bytes",
}


@check_arguments
def listen(
    spark: SparkSession,
    *,
    prometheus_port: int | None = None,
    address: str = "127.0.0.1",
    meter_provider: Any = None,  # noqa: ANN401 - of OpenTelemetry
    interval: str | timedelta = "10s",
) -> Monitor:
    """Follow all ftfile and ftkv streams that this session starts from now on; return the monitor.

    The monitor runs on the driver, reads the log of each directory at each interval, and writes nothing. It logs one
    line for the new versions of an interval. Call it once per session: another call with the same arguments returns the
    same monitor. `unlisten` ends it.

    Args:
        spark: a session that is not a Spark Connect session, whose queries run in another process. For these,
            `ftfile.monitor(path)` provides all metrics that do not come from Spark.
        prometheus_port: see `ftfile.monitor`.
        address: see `ftfile.monitor`.
        meter_provider: see `ftfile.monitor`.
        interval: see `ftfile.monitor`.

    Raises:
        ConfigError: an argument is wrong or differs from the first call, the port is in use, a package is missing,
            or the session is a Spark Connect session.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigError(_IS_CLIENT)
    arguments = (prometheus_port, address, meter_provider, interval)
    listening = _listening.here.get(spark)
    if listening is not None:
        if listening.arguments != arguments:
            raise ConfigError("listen(spark) was called with other arguments: call unlisten(spark) first")
        return listening.monitor
    monitor = Monitor(interval, prometheus_port, address, meter_provider)
    listener = _QueryListener(spark, monitor)
    spark.streams.addListener(listener)
    _listening.here[spark] = _Listening(arguments, monitor, listener)
    return monitor


def unlisten(spark: SparkSession) -> None:
    """Stop the threads and the server of `listen`, and release its port. Without `listen`, nothing happens."""
    if (listening := _listening.here.pop(spark, None)) is not None:
        spark.streams.removeListener(listening.listener)
        listening.monitor.close()


@dataclass(frozen=True)
class _Listening:
    """A call of `listen`, and the objects that it created."""

    arguments: tuple[object, ...]
    monitor: Monitor
    listener: StreamingQueryListener


_listening: PerProcess[WeakKeyDictionary[SparkSession, _Listening]] = PerProcess(WeakKeyDictionary)


@dataclass
class _QueryRun:
    """One run of a query."""

    labels: Labels  # the URL of its directory, and its name
    newest_batch: int  # in the log when the run began: batches up to it are replays


class _QueryListener(StreamingQueryListener):
    """Counts the events of each run. Spark calls it in the driver's process."""

    def __init__(self, spark: SparkSession, monitor: Monitor) -> None:
        self._session, self._monitor, self._tally = spark, monitor, monitor.tally
        self._runs: dict[str, _QueryRun] = {}
        self._ended: dict[Labels, None] = {}  # labels of ended queries, the newest last

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Follow the directory before the first batch. Spark waits for this call."""
        with _log_errors():
            query_id, run_id = str(event.id), str(event.runId)
            written_place = place_of(execution_of(self._session, query_id), query_id)
            if written_place is None:
                return
            options = written_place.options
            place = MonitoredDirectory(
                options.required_path(), options.key_provider, options.options_with_prefix("storage")
            )
            name = event.name or query_id
            follower = self._monitor.follow(place, run_id, {query_id: name})
            if follower is None:
                return
            run = _QueryRun((follower.url, name), follower.last_batch(query_id))
            self._runs[run_id] = run
            self._tally.set("ftfile_query_running", run.labels, 1)
            self._tally.add("ftfile_query_starts_total", run.labels)
            for counter in ("ftfile_query_failures_total", "ftfile_query_replays_total"):
                self._tally.add(counter, run.labels, 0)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record the metrics of a batch."""
        with _log_errors():
            progress = event.progress
            run = self._runs.get(str(progress.runId))
            if run is None:
                return
            if (duration_ms := progress.durationMs.get("triggerExecution")) is not None:
                self._tally.observe("ftfile_query_batch_seconds", run.labels, duration_ms / 1000)
            if progress.batchId <= run.newest_batch:
                self._tally.add("ftfile_query_replays_total", run.labels)
            for unit, behind in _backlog(progress).items():
                self._tally.set("ftfile_source_backlog", (*run.labels, unit), behind)
            if (refused := _refused_files(progress)) is not None:
                self._tally.set("ftfile_source_refused_files", run.labels, refused)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing; the monitor reads the log at each interval."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Record the end of a run. Count a failure if an error ended it."""
        with _log_errors():
            run = self._runs.pop(str(event.runId), None)
            if run is None:
                return
            if event.exception is not None:
                self._tally.add("ftfile_query_failures_total", run.labels)
            # The query may already run again before Spark reports the end of its previous run.
            is_running = any(other.labels == run.labels for other in self._runs.values())
            self._tally.set("ftfile_query_running", run.labels, int(is_running))
            self._monitor.leave(run.labels[0], str(event.runId))
            self._ended.pop(run.labels, None)
            self._ended[run.labels] = None
            if len(self._ended) > ENDED_SHOWN:
                self._drop(next(iter(self._ended)))

    def _drop(self, labels: Labels) -> None:
        """Remove the series of an ended query, unless it runs again."""
        del self._ended[labels]
        if all(run.labels != labels for run in self._runs.values()):
            self._tally.forget(*labels)


@contextlib.contextmanager
def _log_errors() -> Iterator[None]:
    """Log errors of the block. If a listener raised them, the start of a query would fail."""
    try:
        yield
    except Exception:  # an error of a listener must not end the query
        _log.exception("metrics of a query are not complete")


def _backlog(progress: Any) -> dict[str, float]:  # noqa: ANN401 - of any version of Spark
    """Return the backlog of all sources of a query, by unit."""
    backlog: dict[str, float] = {}
    for source in progress.sources:
        for name, text in (source.metrics or {}).items():
            if (unit := _BACKLOGS.get(name)) is not None:
                backlog[unit] = backlog.get(unit, 0) + float(text)
    return backlog


def _refused_files(progress: Any) -> int | None:  # noqa: ANN401 - of any version of Spark
    """Return the number of files that ftfile sources cannot open; None if no source reports it, as before Spark 4.2."""
    counts = []
    for source in progress.sources:
        with contextlib.suppress(TypeError, ValueError):  # no offset, or any text from another source
            report = json.loads(source.latestOffset)
            if isinstance(report, dict) and "refused" in report:
                counts.append(int(report["refused"]))
    if counts:
        return sum(counts)
    return None
