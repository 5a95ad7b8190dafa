"""The memory of this process, as the kernel tells it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("memory_mib", "peak_mib")


def memory_mib(name: str) -> float:
    """Return a figure of the process in MiB, such as `VmRSS`."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"the kernel does not tell {name}")


def peak_mib(work: Callable[[], object]) -> float:
    """Return by how many MiB the resident memory rises during a call, at most."""
    before = memory_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
    work()
    return memory_mib("VmHWM") - before
