"""The publisher of metrics to Prometheus."""

from __future__ import annotations

from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError
from ftfile.tools.monitor.metrics import BUCKETS_S, METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric as Family

    from ftfile.tools.monitor.metrics import Metric, Tally


try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigError(
        f"metrics for Prometheus need a package that is not installed ({error}): pip install 'ftfile[prometheus]'"
    ) from error


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
                f"prometheus_port={port}: metrics cannot be served at {address!r}: {error}. Give another port, or 0 "
                "for a free port"
            ) from error
        self.url = f"http://{address}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Stop the server and free its port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _TallyCollector(Collector):
    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Family]:
        for metric in METRICS.values():
            yield _histogram(metric, self._tally) if metric.kind == "histogram" else _family_of(metric, self._tally)


def _family_of(metric: Metric, tally: Tally) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.base_name, metric.help, labels=metric.labels)
    for labels, value in sorted(tally.values(metric.name).items()):
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, tally: Tally) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, distribution in sorted(tally.distributions(metric.name).items(), key=itemgetter(0)):
        buckets = zip([*map(str, BUCKETS_S), "+Inf"], accumulate(distribution.counts), strict=True)
        family.add_metric(labels, [*buckets], distribution.sum_s)
    return family
