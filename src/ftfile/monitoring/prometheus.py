"""Metrics for Prometheus: a registry of their own, served over HTTP."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.monitoring.catalogue import BUCKETS_S, METRICS

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigError(
        f"metrics for Prometheus need a package that is not there ({error}): pip install 'ftfile[prometheus]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric as Family

    from ftfile.monitoring.catalogue import Metric
    from ftfile.monitoring.tally import Tally


class PrometheusServer:
    """Serves the values of a tally until it is closed.

    Attributes:
        url: of the metrics.
    """

    def __init__(self, tally: Tally, port: int, address: str) -> None:
        registry = CollectorRegistry()
        registry.register(_TallyCollector(tally))
        try:
            self._server, self._thread = start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"prometheus_port={port}: metrics cannot be served at {address!r}: {error}. Take another port, or 0 "
                "for a free one"
            ) from error
        self.url = f"http://{address}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """End the server and free its port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _TallyCollector(Collector):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Family]:
        for metric in METRICS.values():
            yield _histogram(metric, self._tally) if metric.kind == "histogram" else _plain(metric, self._tally)


def _plain(metric: Metric, tally: Tally) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.base_name, metric.help, labels=metric.labels)
    for labels, value in sorted(tally.values(metric.name).items()):
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, tally: Tally) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, found in sorted(tally.distributions(metric.name).items(), key=lambda item: item[0]):
        buckets = zip([*map(str, BUCKETS_S), "+Inf"], accumulate(found.counts), strict=True)
        family.add_metric(labels, [*buckets], found.sum_s)
    return family
