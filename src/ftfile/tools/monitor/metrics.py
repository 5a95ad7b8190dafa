"""The metrics of docs/monitoring.md, and their values in memory, so that a scrape does not wait for storage."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


# Bounds of times, in seconds: from a small commit on a disk to a batch on a slow storage system.
BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


Labels = tuple[str, ...]


class Metric(NamedTuple):
    """A row of the table of metrics."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str  # in Prometheus' form: ends with the unit, and a counter with `_total`
    labels: tuple[str, ...]
    help: str
    of: str = ""  # the subject and field of `values_of`, such as `version.rows`; empty if other code sets the value

    @property
    def base_name(self) -> str:
        """Return the name without `_total`, as Prometheus' client library requires it."""
        return self.name.removesuffix("_total")

    @property
    def unit(self) -> str:
        """Return the unit in OpenTelemetry's form; 1 for counts."""
        return {"seconds": "s", "bytes": "By"}.get(self.base_name.rpartition("_")[2], "1")

    @property
    def dotted_name(self) -> str:
        """Return the name in OpenTelemetry's form, without the unit."""
        if self.unit == "1":
            name = self.base_name
        else:
            name = self.base_name.rpartition("_")[0]
        return name.replace("_", ".", 1)


_counter, _gauge, _histogram = partial(Metric, "counter"), partial(Metric, "gauge"), partial(Metric, "histogram")
_DIRECTORY = ("directory",)
_OPERATION = ("directory", "operation")
_QUERY = ("directory", "query")

_TABLE = (
    _counter("ftfile_commits_total", _OPERATION, "Versions created."),
    _counter("ftfile_rows_total", _OPERATION, "Rows added by batches and batch writes.", "version.rows"),
    _counter(
        "ftfile_written_bytes_total", _OPERATION, "Bytes of the files, segments and runs added.", "version.size_bytes"
    ),
    _counter("ftfile_files_total", _OPERATION, "Finished files added, which plain readers see.", "version.files"),
    _counter(
        "ftfile_removed_files_total",
        _OPERATION,
        "Files removed, for example by compaction or an overwrite.",
        "version.files_removed",
    ),
    _counter(
        "ftfile_removed_rows_total",
        _OPERATION,
        "Rows removed, for example by an overwrite or a drop.",
        "version.rows_removed",
    ),
    _counter("ftfile_bad_records_total", _OPERATION, "Records that could not be written.", "version.bad_records"),
    _counter(
        "ftfile_finished_files_total",
        ("directory", "reason"),
        "Finished files that were open over several batches, by the reason why they ended.",
    ),
    _counter(
        "ftfile_merged_runs_total", _DIRECTORY, "Runs of a store that were merged into others.", "metrics.runs_merged"
    ),
    _counter(
        "ftfile_task_retries_total",
        _DIRECTORY,
        "Failed attempts of tasks of committed batches.",
        "metrics.task_retries",
    ),
    _counter(
        "ftfile_recoveries_total",
        _DIRECTORY,
        "Versions published by a later commit, because the original commit had not published them.",
        "metrics.recoveries",
    ),
    _counter(
        "ftfile_replays_total", _DIRECTORY, "Replayed batches that the sink had already committed.", "metrics.replays"
    ),
    _counter(
        "ftfile_orphan_files_total",
        _DIRECTORY,
        "Files of failed attempts, which no version contains.",
        "metrics.orphans",
    ),
    _counter(
        "ftfile_log_reads_total",
        _DIRECTORY,
        "Records and log checkpoints that commits read to find the newest version.",
        "metrics.log_reads",
    ),
    _counter(
        "ftfile_log_cache_hits_total", _DIRECTORY, "Commits that found the newest version without reading the log."
    ),
    _histogram("ftfile_write_seconds", _DIRECTORY, "Time of the slowest task of a batch.", "tasks.write_seconds"),
    _histogram(
        "ftfile_assembly_seconds", _DIRECTORY, "Part of the write time: assembling due files.", "tasks.assembly_seconds"
    ),
    _histogram(
        "ftfile_sync_seconds", _DIRECTORY, "Part of the write time: syncing and closing files.", "tasks.sync_seconds"
    ),
    _histogram(
        "ftfile_prepare_seconds", _DIRECTORY, "Time of a commit until it creates its record.", "metrics.prepare_seconds"
    ),
    _histogram(
        "ftfile_create_seconds", _DIRECTORY, "Time to create the record; known one commit later.", "last.create_seconds"
    ),
    _histogram(
        "ftfile_publish_seconds",
        _DIRECTORY,
        "Time to publish the files; known one commit later.",
        "last.publish_seconds",
    ),
    _gauge("ftfile_up", _DIRECTORY, "1 if the last read of the log succeeded, else 0."),
    _gauge("ftfile_version", _DIRECTORY, "The newest version; -1 if there is no version.", "head.version"),
    _gauge(
        "ftfile_last_commit_timestamp_seconds",
        _DIRECTORY,
        "Time when the newest version was created, by the storage's clock.",
    ),
    _gauge("ftfile_open_files", _DIRECTORY, "Open files; for a store, its runs.", "head.open_files"),
    _gauge("ftfile_open_rows", _DIRECTORY, "Rows in open files or runs.", "head.open_rows"),
    _gauge("ftfile_open_bytes", _DIRECTORY, "Bytes in open files or runs.", "head.open_bytes"),
    _gauge(
        "ftfile_oldest_open_timestamp_seconds",
        _DIRECTORY,
        "Time when the oldest open rows were committed, by the driver's clock.",
        "head.oldest_open_s",
    ),
    _gauge("ftfile_due_files", _DIRECTORY, "Due files; for a store, due compactions.", "head.due"),
    _gauge("ftfile_failing_files", _DIRECTORY, "Due files or compactions whose last attempt failed.", "head.failing"),
    _gauge("ftfile_unpublished_versions", _DIRECTORY, "Versions whose files are not all published."),
    _gauge(
        "ftfile_oldest_unpublished_timestamp_seconds",
        _DIRECTORY,
        "Time when the monitor first saw the oldest unpublished version.",
    ),
    _gauge("ftfile_query_running", _QUERY, "1 while a query of this session runs, 0 after it has ended."),
    _counter("ftfile_query_starts_total", _QUERY, "Starts of a query in this session."),
    _counter("ftfile_query_failures_total", _QUERY, "Runs of a query that ended with an error."),
    _counter("ftfile_query_replays_total", _QUERY, "Replayed batches: the log contained them when their run began."),
    _histogram("ftfile_query_batch_seconds", _QUERY, "Duration of a batch, as reported by Spark."),
    _gauge("ftfile_query_last_batch", _QUERY, "The newest committed batch of a query."),
    _gauge(
        "ftfile_query_last_commit_timestamp_seconds",
        _QUERY,
        "Time when the newest batch was committed, by the storage's clock.",
    ),
    _gauge(
        "ftfile_source_backlog",
        ("directory", "query", "unit"),
        "Unread data of a query's sources, if they report it: `offsets`, `files` or `bytes`.",
    ),
    _gauge(
        "ftfile_source_refused_files",
        _QUERY,
        "Files that the query's sources cannot open, from Spark 4.2 on; the sources try them again.",
    ),
)
METRICS = {metric.name: metric for metric in _TABLE}


def values_of(**subjects: object) -> Iterator[tuple[Metric, Any]]:
    """Yield the metrics of subjects with their values: `values_of(head=facts)`; a subject of None is ignored.

    The subjects are `head`, a `HeadFacts`, and the subjects of a commit: `version`, its `metrics`, the same object as
    `tasks` if tasks wrote the version, and `last`, the times of the previous commit.
    """
    for metric in _TABLE:
        subject, _, name = metric.of.partition(".")
        if subjects.get(subject) is not None:
            yield metric, getattr(subjects[subject], name)


def _empty_buckets() -> list[int]:
    return [0] * (len(BUCKETS_S) + 1)


@dataclass(slots=True)
class Distribution:
    """The times of a histogram."""

    # by bucket; the last bucket has no upper bound
    counts: list[int] = field(default_factory=_empty_buckets)
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


class Tally:
    """Values by metric and labels. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in METRICS}
        self._distributions: dict[str, dict[Labels, Distribution]] = {}
        for name, metric in METRICS.items():
            if metric.kind == "histogram":
                self._distributions[name] = {}
        self.observers: list[Callable[[str, Labels, float], object]] = []  # called for each time of a histogram

    def add(self, name: str, labels: Labels, amount: float = 1) -> None:
        """Increase a counter; with 0, only create it."""
        with self._lock:
            values = self._values[name]
            values[labels] = values.get(labels, 0) + amount

    def set(self, name: str, labels: Labels, value: float | None) -> None:
        """Set a gauge; with None, remove it."""
        with self._lock:
            if value is None:
                self._values[name].pop(labels, None)
            else:
                self._values[name][labels] = value

    def observe(self, name: str, labels: Labels, seconds: float) -> None:
        """Add a time to a histogram."""
        with self._lock:
            self._distributions[name].setdefault(labels, Distribution()).add(seconds)
            observers = list(self.observers)
        for observer in observers:
            observer(name, labels, seconds)

    def forget(self, *beginning: str) -> None:
        """Remove all values whose labels begin with these labels, such as all values of a directory."""
        with self._lock:
            tables: list[dict[Labels, Any]] = [*self._values.values(), *self._distributions.values()]
            for table in tables:
                for labels in list(table):
                    if labels[: len(beginning)] == beginning:
                        del table[labels]

    def values(self, name: str) -> Mapping[Labels, float]:
        """Return the current values of a counter or gauge."""
        with self._lock:
            return dict(self._values[name])

    def distributions(self, name: str) -> Mapping[Labels, Distribution]:
        """Return the current times of a histogram."""
        with self._lock:
            copies = {}
            for labels, distribution in self._distributions[name].items():
                copies[labels] = Distribution(list(distribution.counts), distribution.sum_s)
            return copies
