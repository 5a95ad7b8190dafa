"""The only code that knows pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.lazy import lazy_names

if TYPE_CHECKING:
    from ftfile.spark.listener import attach, detach
    from ftfile.spark.maintenance.calls import compact, flush, verify
    from ftfile.spark.native.load import load, load_plan
    from ftfile.spark.query_metrics import listen, unlisten
    from ftfile.spark.store_lookup import lookup

__all__ = ("attach", "compact", "detach", "flush", "listen", "load", "load_plan", "lookup", "unlisten", "verify")

# Workers import this package and never need what is here.
_LISTENER = "ftfile.spark.listener"
_LOAD = "ftfile.spark.native.load"
_MAINTENANCE = "ftfile.spark.maintenance.calls"
_METRICS = "ftfile.spark.query_metrics"
__getattr__ = lazy_names(
    __name__,
    {
        "attach": _LISTENER,
        "compact": _MAINTENANCE,
        "detach": _LISTENER,
        "flush": _MAINTENANCE,
        "listen": _METRICS,
        "load": _LOAD,
        "load_plan": _LOAD,
        "lookup": "ftfile.spark.store_lookup",
        "unlisten": _METRICS,
        "verify": _MAINTENANCE,
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
