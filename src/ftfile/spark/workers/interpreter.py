"""The program that Spark should start for its Python processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import zlib

from ftfile.core.interpreter import LAUNCHER, command_of_spark, is_plain, launcher_of, setting
from ftfile.core.logs import get_logger

__all__ = ("python",)

_log = get_logger(__name__)


def python() -> str:
    """Return the path for Spark's Python processes: `ftfile-python`, which starts this interpreter faster for Spark.

    Set both variables before the session is created, because Spark prefers the second one for data sources:
    `os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = ftfile.spark.python()`. If the launcher is
    not installed next to this interpreter, or starts another one, this is the path of this interpreter.
    `spark-submit` starts the JVM before the program. If it starts another Python then, a warning contains the
    settings for `spark-submit`.

    Spark finds no data source if the path contains a space. Then this is the path of a link to the launcher, which is
    created on this machine below `~/.cache/ftfile`. If that is not possible, a warning contains settings that work.
    """
    program = launcher_of(sys.executable)
    if _is_submitted() and not _is_started(program):
        variable, command = command_of_spark()
        _log.warning(
            "the JVM of Spark is already running, and starts %s=%s for data sources. Start the application with %s",
            variable,
            command,
            setting(program),
        )
    if is_plain(program):
        return program
    link = _follow_link(program) if os.path.basename(program) == LAUNCHER else None  # an interpreter needs its own path
    if link is None:
        _log.warning(
            "Spark finds no data source, because the path of its Python contains a space or another special character: "
            "%r. Start the program with %s",
            program,
            setting(program),
        )
    return link or program


def _is_submitted() -> bool:
    """Return True if the JVM has started this program: variables that it sets have no effect on the JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _is_started(program: str) -> bool:
    """Return True if Spark starts a program for data sources, perhaps by a relative path of another host."""
    _, command = command_of_spark()
    found = shutil.which(command)
    is_same = found is not None and os.path.samefile(found, program)
    return is_same or os.path.basename(command) == os.path.basename(program)


def _follow_link(program: str) -> str | None:
    """Return the path of a link to a program, or None if no link can be created."""
    home = os.environ.get("HOME")
    cache = os.environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    link = os.path.join(cache, "ftfile", f"python-{zlib.crc32(os.fsencode(program)):08x}")
    if not is_plain(link) or not os.path.isabs(link):
        return None
    try:
        os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # an earlier application created the link
            os.symlink(program, link)
        is_linked = os.readlink(link) == program
    except OSError:  # such as a home that cannot be written
        return None
    if is_linked:
        return link
    return None
