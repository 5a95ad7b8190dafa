"""A keyed table on the log: upserts and merges exactly once, point reads, and ranges of keys.

    with ftfile.kv.open("/data/words") as words:
        words.get("hello"), words.multi_get(["hello", "world"])

Importing this package imports nothing else; names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ftfile.kv.feed.changes import changes
    from ftfile.kv.operator.codecs import ArrowRows, Bytes, Codec, Int64, Json, Pairs, Text
    from ftfile.kv.operator.reads import DELETED
    from ftfile.kv.operator.store import KeyValueStore
    from ftfile.kv.reading.open_store import open_store as open  # noqa: A004 - kv.open reads best
    from ftfile.kv.reading.reader import Reader
    from ftfile.kv.reading.verify import verify
    from ftfile.kv.upkeep.compact import compact
    from ftfile.kv.upkeep.purge import purge
    from ftfile.kv.upkeep.rebucket import rebucket

__all__ = (
    "DELETED",
    "ArrowRows",
    "Bytes",
    "Codec",
    "Int64",
    "Json",
    "KeyValueStore",
    "Pairs",
    "Reader",
    "Text",
    "changes",
    "compact",
    "open",
    "purge",
    "rebucket",
    "verify",
)

_HOMES = {
    **{
        name: ("ftfile.kv.operator.codecs", name)
        for name in ("ArrowRows", "Bytes", "Codec", "Int64", "Json", "Pairs", "Text")
    },
    "DELETED": ("ftfile.kv.operator.reads", "DELETED"),
    "KeyValueStore": ("ftfile.kv.operator.store", "KeyValueStore"),
    "Reader": ("ftfile.kv.reading.reader", "Reader"),
    "changes": ("ftfile.kv.feed.changes", "changes"),
    "compact": ("ftfile.kv.upkeep.compact", "compact"),
    "open": ("ftfile.kv.reading.open_store", "open_store"),
    "purge": ("ftfile.kv.upkeep.purge", "purge"),
    "rebucket": ("ftfile.kv.upkeep.rebucket", "rebucket"),
    "verify": ("ftfile.kv.reading.verify", "verify"),
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as many types as names
    if name not in _HOMES:
        raise AttributeError(f"module 'ftfile.kv' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - importing this package imports nothing

    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
