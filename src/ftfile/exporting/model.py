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
    """The version of a directory that a commit of a table stands for."""

    commit: int  # number of the table's own commit, from 0 on
    version: int  # of the directory
    nonce: str  # of its record
    schema: str  # key of its columns in the log
    partition_by: list[str]  # its partition columns
    table: str  # the table's id, 32 hex digits


@dataclass(frozen=True, slots=True)
class File:
    """A finished part."""

    path: str  # relative to the directory
    size_bytes: int
    rows: int
    values: Mapping[str, pa.Scalar]  # of the partition columns, typed
    is_change: bool = True  # its rows are new to readers


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The content of a commit of a table."""

    exported: Exported
    operation: str  # what was done to the directory
    time_ms: int  # when the version was created, since 1970 UTC
    table_time_ms: int  # when the oldest kept version was
    columns: str  # of the rows, as Spark's JSON
    is_redefined: bool = False  # the columns, or those of the partitions, may be other ones than in the commit before
    is_change: bool = True  # rows came or went; False where they are only in other files
    adds: list[File]
    removes: list[str]  # paths of the files that go, relative to the directory


class Table(ABC):
    """A table of another format over the files of a directory, with a commit for each version."""

    limits: ClassVar[Limits]
    directory: ClassVar[str]  # of its metadata

    @abstractmethod
    def newest(self) -> Exported | None:
        """Return the version that the newest commit stands for, if any; ConfigError if another program wrote it."""

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
    def follow_up(self, exported: Exported, whole: Callable[[], Change]) -> None:
        """Do what only saves work of readers after a commit; idempotent. `whole` returns all that is live then."""
