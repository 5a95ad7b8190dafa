"""A driver for `deadly+<scheme>:` URLs: that of the scheme, whose application is killed at its second record.

It comes to that before the record or after it, as the environment says. On the way there the log of ftfile goes to the
standard error.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from typing import TYPE_CHECKING, NoReturn

from ftfile.commit.layout import record_path
from ftfile.fs.registry import open_filesystem
from ftfile.fs.wrapper import WrapperFileSystem
from tests.demo.process import session_members

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.fs.location import Location

WHEN = "FTFILE_TEST_DEATH"
SCHEMES = ("abfs", "hdfs", "s3", "webhdfs")


class DeadlyFileSystem(WrapperFileSystem):
    def create_exclusive(self, path: str, content: bytes) -> None:
        deadly = path == record_path(1)
        if not deadly or os.environ[WHEN] == "after":
            super().create_exclusive(path, content)
        if deadly:
            die()


def die() -> NoReturn:
    """SIGKILL the application that this process is of, and this process with it."""
    for process in {*session_members(os.getsid(0))} - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("there is no way back")


def open_location(location: Location) -> DeadlyFileSystem:
    logging.basicConfig()
    logging.getLogger("ftfile").setLevel(logging.DEBUG)
    url = location.url.removeprefix("deadly+")
    return DeadlyFileSystem(open_filesystem(url, settings=location.settings, clock=location.clock))


def install(directory: Path) -> None:
    """Make the driver known to every process that has `directory` on its path, as an installed package would."""
    information = directory / "deadly_files-1.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly-files\nVersion: 1\n")
    entries = "".join(f"deadly+{scheme} = {__name__}:open_location\n" for scheme in SCHEMES)
    (information / "entry_points.txt").write_text(f"[ftfile.filesystems]\n{entries}")
