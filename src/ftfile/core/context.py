"""The environment of a process, such as its clock, random names and identity.

No other module draws random names, so tests can replace them.
"""

from __future__ import annotations

import getpass
import os
import platform
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ftfile.core.clock import SystemClock
from ftfile.core.errors import ConfigError

if TYPE_CHECKING:
    from ftfile.core.clock import Clock
    from ftfile.core.retries import RetryPolicy


__all__ = (
    "SYSTEM",
    "Context",
    "IdSource",
    "SystemIds",
    "absolute_path",
    "cores",
    "is_worker",
    "main_module",
    "process_owner",
    "random_bytes",
)


class IdSource(Protocol):
    """The source of unique names; tests use a seeded one."""

    def unique(self) -> str:
        """Return 32 lower-case hex digits that no process has returned before."""


class SystemIds:
    """Names of 128 random bits from the operating system; forked processes draw different ones."""

    def unique(self) -> str:
        """Return 32 random hex digits."""
        return os.urandom(16).hex()


def random_bytes(count: int) -> bytes:
    """Return unpredictable bytes from the operating system; forked processes draw different ones."""
    return os.urandom(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The environment that an opened file system uses; entry points of Spark and maintenance calls choose it."""

    clock: Clock
    ids: IdSource
    retry: RetryPolicy | None = None  # None for the default: one attempt if the storage driver retries on its own
    threads: int | None = None  # of maintenance; None for one per core
    writer: str = ""  # `user@host` of the process, for records; empty to omit it


def process_owner() -> str:
    """Return `user@host` of this process in ASCII; a user without a name is a number."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # the user of a container can be missing in its /etc/passwd
        user = "unknown"
        if hasattr(os, "getuid"):
            user = str(os.getuid())
    return f"{user}@{platform.node()}".encode("ascii", "replace").decode("ascii")


def main_module() -> str:
    """Return the module that this process runs as its program; empty if it runs a script."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if spec is None else spec.name


def is_worker() -> bool:
    """Return True in a Python process that Spark started; a driver program of a user is not such a process."""
    return main_module().startswith("pyspark.")


# The environment of the machine.
SYSTEM = Context(clock=SystemClock(), ids=SystemIds(), writer=process_owner())


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return a path that is valid in other processes: `~` is expanded, and a relative path becomes absolute.

    URLs, absolute paths and blank texts are unchanged.

    Raises:
        ConfigError: the path begins with `~` and the name of an unknown user.
    """
    text = os.fspath(path)
    if text.startswith("~"):
        text = os.path.expanduser(text)
        if text.startswith("~"):
            raise ConfigError(
                f"the path {text!r} names the home directory of an unknown user; write './{text}' for a directory with "
                "this name"
            )
    is_relative = text.strip() and not text.startswith("/") and ":" not in text.split("/", 1)[0]
    if is_relative:
        return os.path.abspath(text)
    return text
