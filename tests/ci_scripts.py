"""Runs the scripts of `.ci` where the tools that they look for are missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ("run_script",)

CI = Path(__file__).parents[1] / ".ci"
# What the scripts need besides.
TOOLS = ("bash", "cksum", "cat", "dirname", "mkdir", "env")


def run_script(name: str, root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as if `root` were the repository, with none but the tools of every system on the PATH."""
    tools = root / "tools"
    tools.mkdir()
    for tool in TOOLS:
        (tools / tool).symlink_to(str(shutil.which(tool)))
    shutil.copytree(CI, root / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    command = [str(tools / "bash"), str(root / ".ci" / name), *arguments]
    return subprocess.run(command, env={"PATH": str(tools)}, capture_output=True, text=True, check=False)
