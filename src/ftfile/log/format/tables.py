"""The types of the log's definitions and of its tables' entries, checked where they are read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ftfile.log.format import model
from ftfile.log.format.model import LIST, NUMBER, OBJECT, OR_NULL, TEXT, Field, Fields

if TYPE_CHECKING:
    from collections.abc import Callable

# Of an encoding, with a value of the right type; its format, its filters and the store read the rest.
_ENCODING: dict[str, Any] = {"format": {"name": ""}, "filters": [], "partitionBy": [], "schema": "", "store": {}}
_TYPES = (*map(type, _ENCODING.values()),)


def texts_from_json(texts: list[Any]) -> tuple[str, ...]:
    """Return texts as a tuple; a ValueError for what is none."""
    if not set(map(type, texts)) <= {str}:
        raise ValueError(f"a list of texts is {texts!r:.80}")
    return tuple(texts)


def definitions_from_json(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return definitions by key; a ValueError for one that is neither a schema nor an object, or no encoding."""
    for key, definition in definitions.items():
        is_right = type(definition) is str
        if type(definition) is dict:
            values: tuple[Any, ...] = (*map(definition.get, _ENCODING, _ENCODING.values()),)
            is_right = (*map(type, values),) == _TYPES
            is_right = is_right and type(values[0].get("name")) is str and set(map(type, values[2])) <= {str}
        if not is_right:
            raise ValueError(f"definition {key!r:.40} is {definition!r:.80}")
    return definitions


def check_entry(table: str, key: str, value: object) -> None:
    """Raise a ValueError for an entry that a table of `TABLES` cannot have; other tables have any."""
    row = TABLES.get(table)
    if row is not None:
        row.check(value)
        if row.decode is not None:
            row.decode(value)
    if table in _BY_VERSION and not _VERSION.fullmatch(key):
        raise ValueError(f"the table {table} has the key {key!r:.80}")


def tables_from_json(tables: dict[str, Any]) -> dict[str, Any]:
    """Return changes of tables by name; a ValueError for what no table has."""
    for table, change in tables.items():
        for name, value in change.items():
            if name in _TABLE_CHANGE:
                _TABLE_CHANGE[name].check(value)
        texts_from_json(change.get("drop", []))
        for key, value in change.get("set", {}).items():
            check_entry(table, key, value)
    return tables


def _items(*rows: Field) -> Callable[[list[Any]], None]:
    """Return the check of an array whose items are these."""

    def check(values: list[Any]) -> None:
        for row, value in zip(rows, values, strict=True):
            row.check(value)

    return check


_TABLE_CHANGE = {"set": Field("set", "", OBJECT), "drop": Field("drop", "", LIST), "ttlMs": Field("ttlMs", "", NUMBER)}
# By the table: the value of an entry.
TABLES = {
    "checkpoints": Field("the URL of a checkpoint", "", TEXT),
    "columns": Field(
        "a columns file",
        "",
        LIST,
        decode=_items(Field("its name", "", TEXT), Field("its bytes", "", NUMBER), Field("its checksum", "", TEXT)),
    ),
    model.MIGRATION: Field(
        "a migration",
        "",
        OBJECT,
        decode=Fields(
            dict,
            Field("from", "from", TEXT),
            Field("log", "log", TEXT + OR_NULL),
            Field("lastEntry", "lastEntry", NUMBER + OR_NULL),
        ).from_json,
    ),
    "operators": Field(
        "an opening",
        "",
        LIST,
        decode=_items(Field("its epoch", "", NUMBER), Field("that of windows", "", NUMBER), Field("an id", "", TEXT)),
    ),
    "partNumbers": Field("the number of a part", "", NUMBER),
    "restores": Field("the version of a restore", "", NUMBER),
    "unmarkedDirectories": Field("an unmarked directory", "", OR_NULL),
    "unreportedFlushes": Field("the query of a flush", "", TEXT),
}
_BY_VERSION = ("columns", "unreportedFlushes")
_VERSION = re.compile(r"[0-9]{1,19}", re.ASCII)
