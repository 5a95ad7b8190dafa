"""The result of a target, from the log of its process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

TABLE_HEAD = "| target | seconds | executions | edges | findings |\n|---|---|---|---|---|"
_PROGRESS = re.compile(r"^#(\d+)\s+\S+\s+cov: (\d+)", re.MULTILINE)
_EXECUTED = re.compile(r"^stat::number_of_executed_units: (\d+)", re.MULTILINE)
_SECONDS = re.compile(r"^Done \d+ runs in (\d+) second", re.MULTILINE)


class Run(NamedTuple):
    """The result of a target."""

    name: str
    seconds: int | None  # None if the target ended at a finding
    executions: int
    edges: int
    found: list[str]  # the names of files
    error: str  # the last line of a process that ended without a finding, before its time

    def row(self) -> str:
        """Return the row of the table."""
        found = ", ".join(self.found) or self.error or "none"
        seconds = "-" if self.seconds is None else f"{self.seconds:,}"
        return f"| {self.name} | {seconds} | {self.executions:,} | {self.edges:,} | {found} |"


def run_of(name: str, folder: Path) -> Run:
    """Return the result of a target, given the folder with its log and its findings."""
    log = folder / "log"
    text = log.read_text(errors="replace") if log.exists() else "not started"
    progress, executed, done = _PROGRESS.findall(text), _EXECUTED.search(text), _SECONDS.search(text)
    executions = int(executed[1]) if executed else 0
    found = sorted(path.name for path in (folder / "found").glob("*"))
    error = "" if done or found else text.strip().rpartition("\n")[2]
    edges = int(progress[-1][1]) if progress else 0
    return Run(name, int(done[1]) if done else None, executions, edges, found, error)
