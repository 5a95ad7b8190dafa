"""The values of all metrics of a process's monitor, kept here so that a scrape waits for no storage."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ftfile.monitoring.catalogue import BUCKETS_S, METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Labels = tuple[str, ...]


@dataclass(slots=True)
class Distribution:
    """The times of a histogram."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))  # by bucket, the last without end
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


class Tally:
    """Values by metric and labels. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in METRICS}
        self._distributions: dict[str, dict[Labels, Distribution]] = {
            name: {} for name, metric in METRICS.items() if metric.kind == "histogram"
        }
        self.observers: list[Callable[[str, Labels, float], object]] = []  # called for each time of a histogram

    def add(self, name: str, labels: Labels, amount: float = 1) -> None:
        """Let a counter grow; by 0, it exists."""
        with self._lock:
            values = self._values[name]
            values[labels] = values.get(labels, 0) + amount

    def set(self, name: str, labels: Labels, value: float | None) -> None:
        """Set a gauge; with None, it is not shown."""
        with self._lock:
            if value is None:
                self._values[name].pop(labels, None)
            else:
                self._values[name][labels] = value

    def observe(self, name: str, labels: Labels, seconds: float) -> None:
        """Count a time in a histogram."""
        with self._lock:
            self._distributions[name].setdefault(labels, Distribution()).add(seconds)
            observers = list(self.observers)
        for observer in observers:
            observer(name, labels, seconds)

    def forget(self, *beginning: str) -> None:
        """Drop all values whose labels begin so, such as those of a directory."""
        with self._lock:
            tables: list[dict[Labels, Any]] = [*self._values.values(), *self._distributions.values()]
            for table in tables:
                for labels in [labels for labels in table if labels[: len(beginning)] == beginning]:
                    del table[labels]

    def values(self, name: str) -> Mapping[Labels, float]:
        """Return the values of a counter or gauge at this moment."""
        with self._lock:
            return dict(self._values[name])

    def distributions(self, name: str) -> Mapping[Labels, Distribution]:
        """Return the times of a histogram at this moment."""
        with self._lock:
            return {
                labels: Distribution(list(found.counts), found.sum_s)
                for labels, found in self._distributions[name].items()
            }
