"""The functions for Spark users, in the package that uses pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.extensions import lazy_names

if TYPE_CHECKING:
    from ftfile.spark.listener import attach, detach
    from ftfile.spark.maintenance import compact, delete, flush, verify
    from ftfile.spark.native_load import load, load_plan
    from ftfile.spark.query_metrics import listen, unlisten
    from ftfile.spark.store_lookup import lookup
    from ftfile.spark.workers.interpreter import python


__all__ = (
    "attach",
    "compact",
    "delete",
    "detach",
    "flush",
    "listen",
    "load",
    "load_plan",
    "lookup",
    "python",
    "unlisten",
    "verify",
)


# Python workers import this package, but do not need these modules.
_HOMES = {
    "workers.interpreter": ("python",),
    "listener": ("attach", "detach"),
    "maintenance": ("compact", "delete", "flush", "verify"),
    "native_load": ("load", "load_plan"),
    "query_metrics": ("listen", "unlisten"),
    "store_lookup": ("lookup",),
}


def _modules() -> dict[str, str]:
    """Return the module of each name."""
    modules = {}
    for module, names in _HOMES.items():
        modules.update(dict.fromkeys(names, f"{__name__}.{module}"))
    return modules


__getattr__ = lazy_names(__name__, _modules())


def __dir__() -> list[str]:
    return sorted(__all__)
