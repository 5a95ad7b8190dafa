"""The interface of a place: a deployment of Spark and a storage, whose directories live as long as the soak."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from tests.demos.files.process import SparkApp
from tests.soak.processes import roles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.demos.files.hdfs_path import HdfsPath
    from tests.demos.files.process import SessionApp
    from tests.guarded import Guarded
    from tests.soak.check import RemotePath

__all__ = ("DIRECTORIES", "JOB", "NO_SETTINGS", "VICTIMS", "After", "Place", "Server", "Size", "guarded_server")

# Of the queries, which have the same names.
DIRECTORIES = ("rows", "words", "followed")
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
JOB = Path(__file__).with_name("job.py")


class After(Enum):
    """What the application does after one of its processes was killed.

    - `CONTINUES`: it continues.
    - `ENDS`: its other processes are killed, and it is started again.
    - `OVERLAPS`: the same, but its other processes live for a while beside the next application, as on another host.
    - `PAUSES`: the same, but they live for a while before the next application. Only one driver may use a checkpoint.
    """

    CONTINUES = "continues"
    ENDS = "ends"
    OVERLAPS = "overlaps"
    PAUSES = "pauses"


# The JVM ends some time after its script.
VICTIMS: Mapping[str, After] = MappingProxyType(
    {
        "driver": After.PAUSES,
        "jvm": After.OVERLAPS,
        "application": After.ENDS,
        "python": After.CONTINUES,
        "all pythons": After.CONTINUES,
    }
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that can be struck.

    Attributes:
        kill: SIGKILL it.
        start: start it with the same data, without waiting until it is ready; nothing if it runs.
        freeze: stop it by SIGSTOP; nothing if it does not run.
        thaw: resume it; nothing if it does not run.
    """

    kill: Callable[[], object]
    start: Callable[[], object]
    freeze: Callable[[], object]
    thaw: Callable[[], object]


def guarded_server(guarded: Guarded, name: str, start: Callable[[], object]) -> Server:
    """Return one of the servers of a system, which `start` starts."""

    def if_running(act: Callable[[str], object]) -> None:
        if name in guarded.processes:
            act(name)

    def start_if_killed() -> None:
        if name not in guarded.processes:
            start()

    return Server(
        kill=partial(guarded.kill, name),
        start=start_if_killed,
        freeze=partial(if_running, guarded.freeze),
        thaw=partial(if_running, guarded.thaw),
    )


NO_SERVERS: Mapping[str, Server] = MappingProxyType({})


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
        servers: that can be struck, by name; set by `start`.
        server_share: of the strikes that hit a server, if there are servers.
        patience_s: after this time without its moment, a strike is made at once. It is longer than a start of the
            application.
        victims: processes of the application that can be struck: a role, all processes of a role, or `application`.
        master: of Spark.
        size: of a round.
        settings: more settings of Spark.
        environment: more variables of the application.
        storage: settings of the storage of all directories.
        kafka: options of Kafka's source, from which the input comes; by default it comes from files.
        is_plain: Spark starts each Python process itself, instead of as a fork of a prepared process.
        vacuum_interval_s: of both directories of files while the queries run; 0 for never.
        is_one_life: the round is one life of the application: a run that was interrupted begins again, with new rows.

    Args:
        home: an existing directory for all files of the place.
    """

    name: ClassVar[str] = "local"
    servers: Mapping[str, Server] = NO_SERVERS
    server_share: ClassVar[float] = 0.4
    patience_s: ClassVar[float] = 30.0
    victims: ClassVar[Mapping[str, After]] = VICTIMS
    master: str = "local[2,4]"
    size: ClassVar[Size] = Size((30, 60), (500, 12_000), (8, 16))
    settings: Mapping[str, str] = NO_SETTINGS
    environment: Mapping[str, str] = NO_SETTINGS
    storage: Mapping[str, str] = NO_SETTINGS
    kafka: Mapping[str, str] = NO_SETTINGS
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

    def feed(self) -> None:
        """Hand new input files to the source of the queries; idempotent. Nothing if it reads the files."""

    def start_application(self, argument: Path, log: Path, environment: Mapping[str, str]) -> SessionApp:
        """Start the application.

        Args:
            argument: JSON file with the settings of `job.py`.
            log: the output is appended to this file.
            environment: of its processes.
        """
        return SparkApp(JOB, argument, log, environment)

    def roles(self, app: SessionApp) -> dict[str, list[int]]:
        """Return the living processes of an application by role. The first role is the one that starts the others."""
        return roles_of(app)

    def checkpoint(self, query: str) -> Path:
        """Return the checkpoint of a query, which is on the local disk."""
        return self.home / "checkpoints" / query

    def url(self, directory: str) -> str:
        """Return the URL of a directory for the application."""
        return str(self.directory(directory))

    def directory(self, directory: str) -> Path | RemotePath:
        """Return the path of a directory for an independent reader."""
        return self.home / directory

    def log(self, query: str) -> Path | HdfsPath:
        """Return the log of a query's sink."""
        return self.home / query / "_ftfile/log"

    def settle(self) -> None:
        """Wait until all servers are ready."""
