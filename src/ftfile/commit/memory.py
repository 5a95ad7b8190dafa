"""What a use case remembers in the log: small tables by key, changed by records, bounded in age and number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("ENTRIES_MAX", "Memory", "remember")

Memory = dict[str, dict[str, list[Any]]]  # by table and key: when it was last set, in milliseconds, and the value

ENTRIES_MAX = 100_000  # of a table


def remember(memory: Memory, changes: Mapping[str, Any], now_ms: int) -> None:
    """Apply the changes of a record; whatever was not set for longest is forgotten first.

    Args:
        memory: changed in place; each table is in the order in which its entries were set.
        changes: by table, `set` (values by key), `drop` (keys) and `ttlMs` (how old an entry may be), each optional.
        now_ms: the record's time: what is forgotten too early or too late must do no harm.
    """
    for name, change in changes.items():
        table = memory.setdefault(name, {})
        for key in change.get("drop", ()):
            table.pop(key, None)
        for key, value in change.get("set", {}).items():
            table.pop(key, None)
            table[key] = [now_ms, value]
        oldest_ms = now_ms - change["ttlMs"] if "ttlMs" in change else None
        forgotten: list[str] = []
        # One pass: each new beginning would go over all the places that are empty by now.
        for key, (set_ms, _) in table.items():
            if len(table) - len(forgotten) <= ENTRIES_MAX and (oldest_ms is None or set_ms >= oldest_ms):
                break
            forgotten.append(key)
        for key in forgotten:
            del table[key]
        if not table:
            del memory[name]
