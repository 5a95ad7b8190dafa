"""The README's quick start, run as a user would paste it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_quick_start_runs_as_it_stands(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    quick_start = blocks[0].replace("/tmp/ftfile-quickstart", str(tmp_path / "quickstart"))
    assert str(tmp_path) in quick_start
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = subprocess.run(
        [sys.executable, "-c", quick_start], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("|value|") == 2
    assert "Version(version=" in done.stdout
    assert "operation='stream'" in done.stdout
