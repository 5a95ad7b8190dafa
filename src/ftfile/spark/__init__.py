"""The only code that knows pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftfile.spark.listener import attach, detach
    from ftfile.spark.store_lookup import lookup

__all__ = ("attach", "detach", "lookup")


def __getattr__(name: str) -> Any:  # noqa: ANN401 - workers import this package and never need what is here
    if name not in __all__:
        raise AttributeError(f"module 'ftfile.spark' has no attribute {name!r}")
    if name == "lookup":
        from ftfile.spark import store_lookup  # noqa: PLC0415

        return store_lookup.lookup
    from ftfile.spark import listener  # noqa: PLC0415

    return getattr(listener, name)
