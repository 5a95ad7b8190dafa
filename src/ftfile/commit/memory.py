"""What a use case remembers in the log: small tables by key, changed by records, bounded in age and number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ftfile.commit.shared_map import SharedMap

__all__ = ("ENTRIES_MAX", "Memory", "remember")

# By table and key: when it was last set, in milliseconds, and the value.
Memory = Mapping[str, SharedMap[str, list[Any]]]

ENTRIES_MAX = 100_000  # of a table


def remember(memory: Memory, changes: Mapping[str, Any], now_ms: int) -> Memory:
    """Return the tables after a record; whatever was not set for longest is forgotten first.

    Args:
        memory: each table is in the order in which its entries were set.
        changes: by table, `set` (values by key), `drop` (keys) and `ttlMs` (how old an entry may be), each optional.
        now_ms: the record's time: what is forgotten too early or too late must do no harm.
    """
    changed = {name: _changed(memory.get(name) or SharedMap(), change, now_ms) for name, change in changes.items()}
    return {name: table for name, table in {**memory, **changed}.items() if table} if changes else memory


def _changed(table: SharedMap[str, list[Any]], change: Mapping[str, Any], now_ms: int) -> SharedMap[str, list[Any]]:
    draft = table.draft()
    for key in change.get("drop", ()):
        draft.drop(key)
    for key, value in change.get("set", {}).items():
        draft.set(key, [now_ms, value])
    oldest_ms = now_ms - change["ttlMs"] if "ttlMs" in change else None
    forgotten: list[str] = []
    # One pass: each new beginning would go over all the places that are empty by now.
    for key, (set_ms, _) in draft.items():
        if len(draft) - len(forgotten) <= ENTRIES_MAX and (oldest_ms is None or set_ms >= oldest_ms):
            break
        forgotten.append(key)
    for key in forgotten:
        draft.drop(key)
    return draft.finish()
