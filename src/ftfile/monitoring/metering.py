"""Metrics for OpenTelemetry: counters and gauges are asked for their values, times are recorded one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.core.errors import ConfigError
from ftfile.core.version import __version__
from ftfile.monitoring.catalogue import BUCKETS_S, METRICS

try:
    from opentelemetry.metrics import Observation
except ImportError as error:
    raise ConfigError(
        f"metrics for OpenTelemetry need a package that is not there ({error}): pip install 'ftfile[opentelemetry]'"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import MeterProvider

    from ftfile.monitoring.catalogue import Metric
    from ftfile.monitoring.tally import Labels, Tally


def meter(tally: Tally, provider: MeterProvider) -> Callable[[], None]:
    """Give the values of a tally to a provider of meters, else ConfigError; return the function that ends it."""
    if not hasattr(provider, "get_meter"):
        raise ConfigError(
            f"meter_provider={provider!r}: it takes one of OpenTelemetry, such as "
            "opentelemetry.metrics.get_meter_provider()"
        )
    found = provider.get_meter("ftfile", __version__)
    # A meter keeps its instruments for good: once this is over, they have no values.
    is_over = False

    def values(metric: Metric) -> Callable[[Any], Iterable[Observation]]:
        def observe(_: object) -> list[Observation]:
            current = {} if is_over else tally.values(metric.name)
            return [Observation(value, _attributes(metric, labels)) for labels, value in current.items()]

        return observe

    times = {}
    for metric in METRICS.values():
        texts = {"unit": metric.unit, "description": metric.help}
        if metric.kind == "counter":
            found.create_observable_counter(metric.dotted_name, [values(metric)], **texts)
        elif metric.kind == "gauge":
            found.create_observable_gauge(metric.dotted_name, [values(metric)], **texts)
        else:
            times[metric.name] = found.create_histogram(
                metric.dotted_name, explicit_bucket_boundaries_advisory=BUCKETS_S, **texts
            )

    def record(name: str, labels: Labels, seconds: float) -> None:
        times[name].record(seconds, _attributes(METRICS[name], labels))

    def stop() -> None:
        nonlocal is_over
        if not is_over:
            is_over = True
            tally.observers.remove(record)

    tally.observers.append(record)
    return stop


def _attributes(metric: Metric, labels: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))
