"""The types of the log's definitions and of its tables' entries, checked where they are read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from ftfile.core.errors import CorruptData
from ftfile.log.format import layout
from ftfile.log.format.model import MIGRATION, Count, convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ftfile.log.format.model import AssemblyTask


class _Format(Struct):
    name: str


class _Encoding(Struct, rename="camel"):
    """The fields of all encodings; their format, their filters and the store read the rest."""

    format: _Format = field(default_factory=lambda: _Format(""))
    filters: list[Any] = []
    partition_by: list[str] = []
    schema: str = ""
    store: dict[str, Any] = {}


class _Change(Struct, rename="camel"):
    """The changes of a table."""

    set: dict[str, Any] = {}
    drop: list[str] = []
    ttl_ms: Count = 0


class _Migration(Struct, rename="camel"):
    program: Literal["files", "spark", "flink", "kafka-connect", "apex", "delta"] = field(name="from")
    log: Literal["_spark_metadata", "_delta_log"] | None
    last_entry: Count | None


class _FilesPlan(Struct, rename="camel"):
    """The plan of a task that makes files of segments."""

    max_bytes_per_file: Count | None
    max_records_per_file: Count | None
    strict_file_size: bool
    keep_tail: bool
    task_count: Count


class _CompactionPlan(Struct, rename="camel"):
    """The plan of a task that compacts runs of a store."""

    directory: str = field(name="bucket")
    task_count: Count
    last: Count = 0
    not_before: Count = 0


# By the table: the value of an entry. Other tables have any.
TABLES: dict[str, Any] = {
    "checkpoints": str,
    "columns": tuple[str, Count, str],  # name, bytes and checksum of a file
    MIGRATION: _Migration,
    "operators": tuple[Count, Count, str],  # epoch, that of windows, and an id
    "partNumbers": Count,
    "restores": Count,
    "unmarkedDirectories": None,
    "unreportedFlushes": str,
}
_BY_VERSION = ("columns", "unreportedFlushes")
_VERSION = re.compile(r"[0-9]{1,19}", re.ASCII)


class Definition(dict[str, Any]):
    """A definition that is an object, as read from the log; CorruptData for a field that it lacks."""

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - JSON
        raise CorruptData(layout.LOG, f"the field {name!r} of a definition", f"{', '.join(self):.200}")


def check_definitions(definitions: dict[str, Any]) -> None:
    """Make each object a `Definition`; a ValueError for one that is neither a schema nor an object, or no encoding."""
    for key, definition in definitions.items():
        if not isinstance(convert(definition, str | _Encoding, f"definition {key!r:.40}"), str):
            definitions[key] = Definition(definition)


def check_tasks(tasks: Sequence[AssemblyTask]) -> None:
    """Raise a ValueError for a plan of which no task could be done; those of a store name their runs by id alone."""
    for task in tasks:
        kind = _FilesPlan if task.inputs else _CompactionPlan
        convert(task.payload, kind, f"the plan of the task {task.id!r:.40}")


def check_tables(tables: dict[str, Any]) -> None:
    """Raise a ValueError for changes that no table has."""
    for table, change in tables.items():
        for key, value in convert(change, _Change, f"the table {table!r:.40}").set.items():
            check_entry(table, key, value)


def check_entry(table: str, key: str, value: object) -> None:
    """Raise a ValueError for an entry that a table of `TABLES` cannot have; other tables have any."""
    convert(value, TABLES.get(table, Any), f"an entry of the table {table!r:.40}")
    if table in _BY_VERSION and not _VERSION.fullmatch(key):
        raise ValueError(f"the table {table} has the key {key!r:.80}")
