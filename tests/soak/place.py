"""The interface of a place: a deployment of Spark and a storage, whose directories live as long as the soak."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.demos.files.hdfs_path import HdfsPath

__all__ = ("DIRECTORIES", "Place", "Size")

# Of the queries, which have the same names.
DIRECTORIES = ("rows", "words", "followed")
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Size:
    """The least and the greatest number of input files and of their rows in a round, and of strikes."""

    files: tuple[int, int]
    rows: tuple[int, int]
    strikes: tuple[int, int]


class Place:
    """A place on the local disk, without servers: the base of the others.

    Attributes:
        name: of the option `--places`.
        servers: names of the servers that can be struck.
        size: of a round.
        task_attempts: failures of a task after which its query fails.
        settings: more settings of Spark.
        is_plain: Spark starts each Python process itself, instead of as a fork of a prepared process.
        vacuum_interval_s: of both directories of files while the queries run; 0 for never.
        is_one_life: the round is one life of the application: a run that was interrupted begins again, with new rows.

    Args:
        home: an existing directory for all files of the place.
    """

    name: ClassVar[str] = "local"
    servers: tuple[str, ...] = ()
    size: ClassVar[Size] = Size((30, 60), (500, 12_000), (8, 16))
    task_attempts: ClassVar[int] = 4
    settings: Mapping[str, str] = NO_SETTINGS
    is_plain: ClassVar[bool] = False
    vacuum_interval_s: ClassVar[float] = 0.0
    is_one_life: ClassVar[bool] = False

    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self) -> None:
        """Start the servers, with the data of earlier runs.

        Raises:
            CannotStart: the text contains what is missing.
        """

    def stop(self) -> None:
        """End the servers; idempotent."""

    def url(self, directory: str) -> str:
        """Return the URL of a directory for the application."""
        return str(self.directory(directory))

    def directory(self, directory: str) -> Path | HdfsPath:
        """Return the path of a directory for an independent reader."""
        return self.home / directory

    def kill_server(self, server: str) -> None:
        """SIGKILL a server."""
        raise NotImplementedError

    def start_server(self, server: str) -> None:
        """Start a killed server with the same data, without waiting until it is ready. Nothing if it runs."""
        raise NotImplementedError

    def freeze_server(self, server: str) -> None:
        """Stop a running server by SIGSTOP."""
        raise NotImplementedError

    def thaw_server(self, server: str) -> None:
        """Resume a stopped server."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all servers are ready."""
