"""The memory of a use case in the log: small tables by key, changed by records, bounded in age and number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ftfile.commit.log.shared_map import Draft, SharedMap

__all__ = ("ENTRIES_MAX", "Tables", "TablesDraft")

# By table and key: when it was last set, in milliseconds, and the value.
Tables = Mapping[str, SharedMap[str, list[Any]]]

ENTRIES_MAX = 100_000  # of a table


class TablesDraft:
    """Changes of the tables; those that it begins with stay as they are."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._changed: dict[str, Draft[str, list[Any]]] = {}

    def apply(self, changes: Mapping[str, Any], now_ms: int) -> None:
        """Apply the changes of a record at its time; the entries that were not set for longest are forgotten first.

        By table there are, each optional: `set` (values by key), `drop` (keys), `ttlMs` (how old an entry may be).
        """
        for name, change in changes.items():
            if name not in self._changed:
                self._changed[name] = self._tables.get(name, SharedMap[str, list[Any]]()).draft()
            _change(self._changed[name], change, now_ms)

    def finish(self) -> Tables:
        """Return the changed tables; do not use the draft afterwards."""
        if not self._changed:
            return self._tables
        changed = {name: draft.finish() for name, draft in self._changed.items()}
        return {name: table for name, table in {**self._tables, **changed}.items() if table}


def _change(table: Draft[str, list[Any]], change: Mapping[str, Any], now_ms: int) -> None:
    for key in change.get("drop", ()):
        table.drop(key)
    for key, value in change.get("set", {}).items():
        table.set(key, [now_ms, value])
    oldest_ms = now_ms - change["ttlMs"] if "ttlMs" in change else None
    forgotten: list[str] = []
    # One pass: each new beginning would go over all the places that are empty by now.
    for key, (set_ms, _) in table.oldest():
        if len(table) - len(forgotten) <= ENTRIES_MAX and (oldest_ms is None or set_ms >= oldest_ms):
            break
        forgotten.append(key)
    for key in forgotten:
        table.drop(key)
