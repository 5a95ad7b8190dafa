"""Processor time of Spark's Python processes, read from the kernel, so that the sink is not touched.

It holds everything Python does for a query: planning, ``write()`` with the decoding of Arrow, ``commit``.
The same figure of the null sink, subtracted, leaves what a sink itself costs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ("Ticks", "java_ticks", "python_s_of_spark", "python_ticks", "ticks_to_s")

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
Ticks = dict[int, int]


@dataclass(frozen=True, slots=True)
class _Process:
    parent_id: int
    name: str
    ticks: int
    child_ticks: int  # of its children that have ended


def python_ticks() -> Ticks:
    """Return the processor time of each living Python process below this one, by process id."""
    return _ticks_below(is_java=False)


def java_ticks() -> Ticks:
    """Return the same of the JVMs below this process."""
    return _ticks_below(is_java=True)


def python_s_of_spark() -> float:
    """Return the processor seconds of all processes that the JVM below this process has started, also of ended ones."""
    processes = _read_processes()
    ticks = 0
    for jvm in _descendants(processes, os.getpid()):
        if processes[jvm].name == "java":
            started = _descendants(processes, jvm)
            ticks += processes[jvm].child_ticks
            ticks += sum(processes[pid].ticks + processes[pid].child_ticks for pid in started)
    return ticks / TICKS_PER_S


def ticks_to_s(before: Ticks, after: Ticks) -> float:
    """Return the seconds used between two readings, in steps of one tick.

    Spark ends workers that nobody used for a minute: those are left out, they had nothing to do.
    """
    return sum(ticks - before.get(pid, 0) for pid, ticks in after.items()) / TICKS_PER_S


def _ticks_below(*, is_java: bool) -> Ticks:
    processes = _read_processes()
    below = _descendants(processes, os.getpid())
    return {pid: processes[pid].ticks for pid in below if (processes[pid].name == "java") == is_java}


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
    user, system, user_of_children, system_of_children = map(int, fields[11:15])
    name = head.partition("(")[2]
    return _Process(int(fields[1]), name, user + system, user_of_children + system_of_children)


def _descendants(processes: dict[int, _Process], root_id: int) -> set[int]:
    found: set[int] = set()
    frontier = {root_id}
    while frontier:
        frontier = {pid for pid, process in processes.items() if process.parent_id in frontier} - found
        found |= frontier
    return found
