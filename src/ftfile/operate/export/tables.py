"""A table of another format over the files of a directory, and the changes that its commits contain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from ftfile.operate.export.limits import TableLimits


# Files after which an export reports its progress.
COUNTED = 10_000


class Exported(NamedTuple):
    """The version of a directory that a commit of a table represents."""

    commit: int  # number of the table's commit, from 0 on
    version: int  # of the directory
    nonce: str  # of its record
    schema: str  # key of its columns in the log
    partition_by: list[str]  # its partition columns
    table: str  # the table's id, 32 hex digits
    statistics: list[str]  # `ExportTable.statistics_columns` when the commit was created


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A finished part."""

    path: str  # relative to the directory
    size_bytes: int
    rows: int
    values: Mapping[str, pa.Scalar]  # of the partition columns, typed
    is_change: bool  # True if its rows are new to readers
    statistics: Mapping[str, Sequence[Any]]  # as in the log
    columns: pa.Schema  # the same object for all files of an encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """The content of a commit of a table."""

    exported: Exported
    operation: str  # operation on the directory
    time_ms: int  # when the version was created, since 1970 UTC
    table_time_ms: int  # creation time of the oldest kept version
    columns: str  # of the rows, as Spark's JSON
    is_redefined: bool = False  # True if the columns or partition columns may differ from the previous commit
    is_change: bool = True  # False if rows were only moved to other files
    file_columns: list[str]  # of the added files, which may have more columns, as Spark's JSON
    adds: list[ExportedFile]
    removes: list[str]  # paths of the removed files, relative to the directory


class ExportTable(ABC):
    """A table of another format over the files of a directory, with a commit for each version."""

    limits: ClassVar[TableLimits]

    def statistics_columns(self, columns: str, recorded: Sequence[str]) -> list[str]:
        """Return the keys of the columns whose statistics the definition of the table names.

        If they change, the commit contains all live files again. `columns` is Spark's JSON, `recorded` contains the
        keys of the columns with statistics in the log.
        """
        del columns, recorded
        return []

    @abstractmethod
    def newest(self) -> Exported | None:
        """Return the version of the newest commit, if any; ConfigError if another program wrote the commit."""

    @abstractmethod
    def live_paths(self) -> set[str]:
        """Return the paths of the files of the newest commit, relative to the directory."""

    @abstractmethod
    def refuse(self, whole: TableChange) -> None:
        """Raise a ConfigError if the table cannot be changed to contain exactly these live files."""

    @abstractmethod
    def append(self, change: TableChange, done: Callable[[int], object] | None) -> None:
        """Create a commit atomically.

        If `done` is given, it is called with the number of files that were added since the last call.

        Raises:
            AlreadyExists: another process created this commit.
            ConfigError: the format does not support the change.
        """

    @abstractmethod
    def follow_up(self, exported: Exported, whole: Callable[[], TableChange]) -> None:
        """Run idempotent work after the newest commit that helps readers. `whole` returns all live files."""
