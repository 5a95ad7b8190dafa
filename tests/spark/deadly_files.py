"""A driver for `deadly+<scheme>:` URLs: the driver of the scheme, which kills the committing process at a record.

It kills once, on demand, at a second record. Until then the log of ftfile is written to the standard error.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ftfile.log.format.layout import record_path
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import open_filesystem
from tests.demos.files.process import session_members

if TYPE_CHECKING:
    from ftfile.storage.paths import Location

# Names the file of the order.
ORDER = "FTFILE_TEST_DEATH"
SCHEMES = ("abfs", "file", "hdfs", "s3", "webhdfs")


@dataclass(frozen=True)
class Death:
    """The extent and the time of a kill.

    Attributes:
        when: `before` or `after` the record.
        whole: the whole application is killed, or only the committing process.
    """

    when: str
    whole: bool

    def order(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))


class DeadlyFileSystem(WrapperFileSystem):
    def create_exclusive(self, path: str, content: bytes) -> None:
        death = ordered() if path == record_path(1) else None
        if death is None or death.when == "after":
            super().create_exclusive(path, content)
        if death is not None:
            die(whole=death.whole)


def ordered() -> Death | None:
    """Return the order and delete its file, if there is one."""
    file = Path(os.environ[ORDER])
    if not file.exists():
        return None
    death = Death(**json.loads(file.read_text()))
    file.unlink()
    return death


def die(*, whole: bool) -> NoReturn:
    """SIGKILL this process; if `whole`, first all other processes of its application."""
    for process in {*session_members(os.getsid(0))} - {os.getpid()} if whole else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process survived its SIGKILL")


def open_location(location: Location) -> DeadlyFileSystem:
    logging.basicConfig()
    logging.getLogger("ftfile").setLevel(logging.DEBUG)
    url = location.url.removeprefix("deadly+")
    return DeadlyFileSystem(open_filesystem(url, settings=location.settings, clock=location.context.clock))


def install(directory: Path) -> None:
    """Install the driver for every process with `directory` on its path, like an installed package."""
    information = directory / "deadly_files-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly-files\nVersion: 1\n")
    entries = "".join(f"deadly+{scheme} = {__name__}:open_location\n" for scheme in SCHEMES)
    (information / "entry_points.txt").write_text(f"[ftfile.filesystems]\n{entries}")
