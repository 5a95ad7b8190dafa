"""The only code that knows pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.lazy import lazy_names

if TYPE_CHECKING:
    from ftfile.spark.listener import attach, detach
    from ftfile.spark.native.load import load, load_plan
    from ftfile.spark.store_compact import compact
    from ftfile.spark.store_lookup import lookup

__all__ = ("attach", "compact", "detach", "load", "load_plan", "lookup")

# Workers import this package and never need what is here.
_LISTENER = "ftfile.spark.listener"
_LOAD = "ftfile.spark.native.load"
_HOMES = {"compact": "ftfile.spark.store_compact", "lookup": "ftfile.spark.store_lookup"}
__getattr__ = lazy_names(
    __name__, {"attach": _LISTENER, "detach": _LISTENER, "load": _LOAD, "load_plan": _LOAD, **_HOMES}
)


def __dir__() -> list[str]:
    return sorted(__all__)
