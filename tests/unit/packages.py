"""Packages of users as `pip` would install them, on a path of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("install",)


def install(directory: Path, name: str, entry_points: str, code: str | None = None) -> None:
    """Install a distribution of one module, with entry points; without code, of none."""
    metadata = directory / f"{name}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    if code is not None:
        (directory / f"{name}.py").write_text(code)
