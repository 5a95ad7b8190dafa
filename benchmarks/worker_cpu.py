"""Processor time of Spark's Python processes, read from the kernel, so that the sink is not touched.

It holds everything Python does for a query: planning, ``write()`` with the decoding of Arrow, ``commit``.
The same figure of the null sink, subtracted, leaves what a sink itself costs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ("python_worker_cpu_s",)

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Process:
    parent_id: int
    name: str
    own_ticks: int
    reaped_ticks: int


def python_worker_cpu_s() -> float:
    """Return the seconds used so far by all Python processes below this one, in steps of one tick.

    A worker that ends is still counted, as reaped by its daemon. What the JVM reaped is left out: on a local
    disk that is mostly the ``chmod`` processes which Hadoop starts for Spark's own files.
    """
    processes = _read_processes()
    total_ticks = 0
    for process_id in _descendants(processes, os.getpid()):
        process = processes[process_id]
        if process.name != "java":
            total_ticks += process.own_ticks + process.reaped_ticks
    return total_ticks / TICKS_PER_S


def _read_processes() -> dict[int, _Process]:
    processes = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            processes[int(entry.name)] = _parse_stat((entry / "stat").read_text(encoding="utf-8"))
        except (FileNotFoundError, ProcessLookupError):  # it ended between the listing and the reading
            continue
    return processes


def _parse_stat(text: str) -> _Process:
    # The name stands in parentheses and may itself hold blanks and parentheses.
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    user, system, reaped_user, reaped_system = (int(field) for field in fields[11:15])
    return _Process(int(fields[1]), head.partition("(")[2], user + system, reaped_user + reaped_system)


def _descendants(processes: dict[int, _Process], root_id: int) -> set[int]:
    found: set[int] = set()
    frontier = {root_id}
    while frontier:
        frontier = {pid for pid, process in processes.items() if process.parent_id in frontier} - found
        found |= frontier
    return found
