"""The program that Spark should start for its Python processes."""

from __future__ import annotations

import contextlib
import os
import sys
import zlib

from ftfile.core.interpreter import LAUNCHER, is_plain, launcher_of

__all__ = ("python",)


def python() -> str:
    """Return the path for `PYSPARK_PYTHON`: `ftfile-python`, which starts this interpreter faster for Spark.

    Set it before the session is created, `os.environ["PYSPARK_PYTHON"] = ftfile.spark.python()`. If the launcher is
    not installed next to this interpreter, or starts another one, this is the path of this interpreter.

    Spark finds no data source if the path contains a space. Then this is the path of a link to the launcher, which is
    created on this machine below `~/.cache/ftfile`.
    """
    program = launcher_of(sys.executable)
    if is_plain(program) or os.path.basename(program) != LAUNCHER:  # a link to an interpreter leaves its environment
        return program
    return _linked(program)


def _linked(program: str) -> str:
    """Return the path of a link to a program; the path of the program if there can be no link."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    link = os.path.join(cache, "ftfile", f"python-{zlib.crc32(os.fsencode(program)):08x}")
    if not is_plain(link):
        return program
    try:
        os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # an earlier application created the link
            os.symlink(program, link)
        is_linked = os.readlink(link) == program
    except OSError:  # such as a home that cannot be written
        return program
    return link if is_linked else program
