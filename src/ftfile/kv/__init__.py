"""A keyed table on the log, with exactly-once upserts and merges, point reads, and scans of key ranges.

    with ftfile.kv.open("/data/words") as words:
        words.get("hello"), words.multi_get(["hello", "world"])

Importing this package is cheap: the modules of the names below are imported when a name is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.extensions import lazy_names

if TYPE_CHECKING:
    from ftfile.kv.feed import changes
    from ftfile.kv.operator.codecs import ArrowRows, Bytes, Codec, Int64, Json, Pairs, Text
    from ftfile.kv.operator.opening import read_windows
    from ftfile.kv.operator.store import KeyValueStore
    from ftfile.kv.operator.windows import DELETED
    from ftfile.kv.reading.reader import Reader
    from ftfile.kv.reading.reader import open_store as open  # noqa: A004 - kv.open reads best
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
    "read_windows",
    "rebucket",
    "verify",
)


__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("ArrowRows", "Bytes", "Codec", "Int64", "Json", "Pairs", "Text"), "ftfile.kv.operator.codecs"),
        "DELETED": "ftfile.kv.operator.windows",
        "KeyValueStore": "ftfile.kv.operator.store",
        "Reader": "ftfile.kv.reading.reader",
        "changes": "ftfile.kv.feed",
        "compact": "ftfile.kv.upkeep.compact",
        "open": "ftfile.kv.reading.reader:open_store",
        "purge": "ftfile.kv.upkeep.purge",
        "read_windows": "ftfile.kv.operator.opening",
        "rebucket": "ftfile.kv.upkeep.rebucket",
        "verify": "ftfile.kv.reading.verify",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
