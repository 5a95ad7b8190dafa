"""Snapshots: what a reader sees is a version; and where the bytes of an add lie at this moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ftfile.commit import layout
from ftfile.core.errors import ConfigError, CorruptData, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.commit.log import CommitLog
    from ftfile.commit.model import Add, Record

__all__ = ("Snapshot", "open_add", "read_records", "take_snapshot")

_Opened = TypeVar("_Opened")


@dataclass(slots=True)
class Snapshot:
    """The live adds of a version, in the order of their records.

    Attributes:
        version: -1 for a log without records.
        schema: key of the newest schema, None when no record had one.
    """

    version: int = -1
    schema: str | None = None
    definitions: dict[str, Any] = field(default_factory=dict)
    adds: dict[str, Add] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Take in the next record."""
        for remove in record.removes:
            del self.adds[remove.id]
        self.adds.update((add.id, add) for add in record.adds)
        self.version, self.schema = record.version, record.schema or self.schema
        self.definitions.update(record.definitions)


def read_records(log: CommitLog) -> Iterator[Record]:
    """Yield all records from the first to the head.

    Raises:
        CorruptData: one is missing.
    """
    version = 0
    while True:
        while (record := log.read_record(version)) is not None:
            yield record
            version += 1
        if not log.is_hole(version):
            return


def take_snapshot(log: CommitLog, version: int | None = None) -> Snapshot:
    """Return the snapshot of a version, by default of the head.

    Raises:
        ConfigError: the log has no such version.
    """
    snapshot = Snapshot()
    for record in read_records(log):
        if version is not None and record.version > version:
            break
        snapshot.apply(record)
    if version is not None and snapshot.version != version:
        raise ConfigError(f"versionAsOf={version}: the newest version is {snapshot.version}, the oldest 0")
    return snapshot


def open_add(add: Add, opener: Callable[[str], _Opened]) -> _Opened:
    """Open an add where it lies now: it may move from staged to final and from there to retired while we look.

    Args:
        add: what to open.
        opener: called with a path; raises NotFound to have the next place tried.

    Raises:
        CorruptData: it is nowhere.
    """
    final = [add.final_path] if add.final_path is not None else []
    for place in (*final, add.path, *final, layout.retired_path(add.id)):
        try:
            return opener(place)
        except NotFound:
            continue
    raise CorruptData(
        add.final_path or add.path,
        f"a file of {add.length} bytes",
        "nothing, neither staged nor published nor retired",
        "Of an old version, it was vacuumed, and a newer one can be read; or another program moved or deleted it: "
        "restore it from a copy",
    )
