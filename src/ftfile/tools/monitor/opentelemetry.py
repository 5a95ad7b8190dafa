"""The publisher of metrics to OpenTelemetry."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ftfile.core import __version__
from ftfile.core.errors import ConfigError
from ftfile.tools.monitor.metrics import BUCKETS_S, METRICS

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from ftfile.tools.monitor.metrics import Labels, Metric, Tally


try:
    from opentelemetry.metrics import Observation
except ImportError as error:
    raise ConfigError(
        f"metrics for OpenTelemetry need a package that is not installed ({error}): pip install 'ftfile[opentelemetry]'"
    ) from error


class Meter:
    """Publishes the values of a tally to a meter provider until it is closed; `ConfigError` for another object."""

    def __init__(self, tally: Tally, provider: MeterProvider) -> None:
        if not hasattr(provider, "get_meter"):
            raise ConfigError(
                f"meter_provider={provider!r}: it must be a meter provider of OpenTelemetry, such as "
                "opentelemetry.metrics.get_meter_provider()"
            )
        self._tally = tally
        meter = provider.get_meter("ftfile", __version__)
        # A meter never removes its instruments, so closed instruments return no values.
        self._is_over = False
        self._times = {}
        for metric in METRICS.values():
            texts = {"unit": metric.unit, "description": metric.help}
            observe = partial(self._values, metric)
            if metric.kind == "counter":
                meter.create_observable_counter(metric.dotted_name, [observe], **texts)
            elif metric.kind == "gauge":
                meter.create_observable_gauge(metric.dotted_name, [observe], **texts)
            else:
                self._times[metric.name] = meter.create_histogram(
                    metric.dotted_name, explicit_bucket_boundaries_advisory=BUCKETS_S, **texts
                )
        tally.observers.append(self._record)

    def _values(self, metric: Metric, _: object) -> list[Observation]:
        observations: list[Observation] = []
        if not self._is_over:
            for labels, value in self._tally.values(metric.name).items():
                observations.append(Observation(value, _attributes(metric, labels)))
        return observations

    def _record(self, name: str, labels: Labels, seconds: float) -> None:
        self._times[name].record(seconds, _attributes(METRICS[name], labels))

    def close(self) -> None:
        """Stop publishing. Idempotent."""
        if not self._is_over:
            self._is_over = True
            self._tally.observers.remove(self._record)


def _attributes(metric: Metric, labels: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))
