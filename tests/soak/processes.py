"""The processes of an application by role, and signals to them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from tests.demos.files.process import list_processes, session_members

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable

    from tests.demos.files.process import SessionApp

__all__ = ("roles_of", "send")


def roles_of(app: SessionApp) -> dict[str, list[int]]:
    """Return the processes of an application by role: `driver`, `jvm`, `python`."""
    roles: dict[str, list[int]] = {"driver": [], "jvm": [], "python": []}
    direct = {each.number for each in list_processes() if each.parent == app.session}
    for member in session_members(app.session):
        if member == app.session:
            roles["driver"].append(member)
        elif member in direct:
            # The others are the process that forks Spark's Pythons, and programs that end at once.
            if _program(member) == "java":
                roles["jvm"].append(member)
        else:
            roles["python"].append(member)
    return roles


def send(processes: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes, of which some may have ended."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def _program(process: int) -> str:
    try:
        return Path(f"/proc/{process}/exe").resolve().name
    except OSError:
        return ""
