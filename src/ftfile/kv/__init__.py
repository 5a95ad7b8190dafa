"""A keyed table on the log: upserts and merges exactly once, point reads, and ranges of keys.

    with ftfile.kv.open("/data/words") as words:
        words.get("hello"), words.multi_get(["hello", "world"])

Importing this package imports nothing else; names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftfile.kv.reading.reader import Reader
    from ftfile.kv.reading.reader import open_store as open  # noqa: A004 - kv.open reads best

__all__ = ("Reader", "open")

_HOMES = {
    "Reader": ("ftfile.kv.reading.reader", "Reader"),
    "open": ("ftfile.kv.reading.reader", "open_store"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as many types as names
    if name not in _HOMES:
        raise AttributeError(f"module 'ftfile.kv' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - importing this package imports nothing

    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
