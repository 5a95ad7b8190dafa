"""The values of an export: the changes of a version, for the tables of every format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from ftfile.exporting.limits import Limits


# Files after which an export tells how far it is.
COUNTED = 10_000


class Exported(NamedTuple):
    """The version of a directory that a commit of a table stands for.

    Attributes:
        commit: number of the table's own commit, from 0 on.
        version: of the directory.
        nonce: of its record.
        schema: key of its columns in the log.
        partition_by: its partition columns.
        table: the table's id, 32 hex digits.
    """

    commit: int
    version: int
    nonce: str
    schema: str
    partition_by: list[str]
    table: str


@dataclass(frozen=True, slots=True)
class File:
    """A finished part.

    Attributes:
        path: relative to the directory.
        values: of the partition columns, typed.
        is_change: its rows are new to readers.
    """

    path: str
    size_bytes: int
    rows: int
    values: Mapping[str, pa.Scalar]
    is_change: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The content of a commit of a table.

    Attributes:
        operation: what was done to the directory.
        time_ms: when the version was created, since 1970 UTC.
        table_time_ms: when the oldest kept version was.
        columns: of the rows, as Spark's JSON.
        is_redefined: the columns, or those of the partitions, may be other ones than those of the commit before.
        is_change: rows came or went; False where they are only in other files.
        removes: paths of the files that go, relative to the directory.
    """

    exported: Exported
    operation: str
    time_ms: int
    table_time_ms: int
    columns: str
    is_redefined: bool = False
    is_change: bool = True
    adds: list[File]
    removes: list[str]


class Table(ABC):
    """A table of another format over the files of a directory, with a commit for each version."""

    limits: ClassVar[Limits]
    directory: ClassVar[str]  # of its metadata

    @abstractmethod
    def newest(self) -> Exported | None:
        """Return the version that the newest commit stands for; None without any.

        Raises:
            ConfigError: another program wrote it.
        """

    @abstractmethod
    def live_paths(self) -> set[str]:
        """Return the paths of the files of the newest commit, relative to the directory."""

    @abstractmethod
    def append(self, change: Change, done: Callable[[int], object]) -> None:
        """Create a commit, whole, in one step.

        `done` is called with the number of files that were added since the last call.

        Raises:
            AlreadyExists: somebody else did.
        """

    @abstractmethod
    def follow_up(self, change: Change, whole: Callable[[], Change]) -> None:
        """Do what only helps readers after a commit; idempotent. `whole` returns all that is live then."""
