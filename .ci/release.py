"""Build the wheel and the source distribution, and try the wheel as a new user.

Usage: release.py DIRECTORY SPARK-VERSION... For each version of Spark, the quick start runs in a separate environment
that contains only the wheel and its dependencies. The program needs the network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(root: Path, directory: Path) -> tuple[Path, Path]:
    """Build from `root`, and return the wheel and the source distribution in `directory`."""
    targets = ["-t", "wheel", "-t", "sdist"]
    subprocess.run([sys.executable, "-m", "hatchling", "build", *targets, "-d", directory], cwd=root, check=True)
    (wheel,), (source,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return wheel, source


def quick_start(directory: Path) -> str:
    """Return the first programs of docs/quick-start.md, whose files are below a directory."""
    _, _, section = (ROOT / "docs/quick-start.md").read_text().partition("## Write a stream")
    write, read, *_ = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return f"{write}\n{read}".replace("/tmp/ftfile-quickstart", str(directory))


def try_wheel(wheel: Path, spark: str) -> None:
    """Install the wheel and a Spark in a separate environment, and run the quick start."""
    with tempfile.TemporaryDirectory(prefix="ftfile-release-") as home:
        venv.create(Path(home, "environment"))
        python = Path(home, "environment/bin/python")
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
        began = time.perf_counter()
        subprocess.run([*pip, "install", wheel, f"pyspark=={spark}"], check=True)
        installed = time.perf_counter()
        clean = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
        program, started = quick_start(Path(home, "quick-start")), time.time()
        done = subprocess.run([python, "-c", program], cwd=home, env=clean, capture_output=True, text=True, check=False)
        if done.returncode or "Version(version=" not in done.stdout:
            sys.exit(f"Spark {spark}: the quick start ended with {done.returncode}\n{done.stdout}{done.stderr}")
        ended = time.perf_counter()
        # A file changes its status by the rename that makes it visible.
        first = min(part.stat().st_ctime for part in Path(home, "quick-start/out").glob("part-*")) - started
    times = (
        f"installed in {installed - began:.0f} s, {first:.0f} s to the first row, {ended - installed:.0f} s to its end"
    )
    print(f"Spark {spark}: the quick start runs; {times}", flush=True)


def main(directory: str, *sparks: str) -> None:
    """Build, and try the wheel with each Spark."""
    for old in Path(directory).glob("ftfile-*"):
        old.unlink()
    wheel, source = build(ROOT, Path(directory).resolve())
    for spark in sparks:
        try_wheel(wheel, spark)
    print(f"{wheel}\n{source}")


if __name__ == "__main__":
    main(*sys.argv[1:])
