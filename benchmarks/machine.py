"""The machine and the versions that gave the figures."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.report import Cell

__all__ = ("machine_facts",)


def machine_facts() -> dict[str, Cell]:
    """Return the facts that a reader needs to judge the figures; the load shows if the machine was quiet."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "load average, 1 min": os.getloadavg()[0],
        "python": platform.python_version(),
        "pyspark": metadata.version("pyspark"),
        "pyarrow": metadata.version("pyarrow"),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
