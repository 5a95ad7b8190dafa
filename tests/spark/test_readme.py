"""The examples of the README, run as a user would paste them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import quick_spark

ROOT = Path(__file__).parents[2]
SECTIONS = ("Quick start", "Compressed and encrypted")


def test_what_it_shows_runs_as_it_stands(tmp_path: Path) -> None:
    sections = dict(section.split("\n", 1) for section in (ROOT / "README.md").read_text().split("\n## ")[1:])
    quick_start, more = (re.findall(r"```(python|sh)\n(.*?)```", sections[name], flags=re.DOTALL) for name in SECTIONS)
    quick_start = [block for block in quick_start if block[0] == "python"]
    assert len(quick_start) == 2
    assert [language for language, _ in more] == ["python", "sh", "python"]
    blocks = re.findall(r"```(?:python|sh)\n.*?```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == len(quick_start) + len(more)
    # The commands, too, in the process that has the session.
    script = "import subprocess\n" + "\n".join(
        block if language == "python" else f"subprocess.run({block!r}, shell=True, check=True)"
        for language, block in (quick_start + more) * 2  # as somebody who comes back pastes them
    ).replace("/tmp/ftfile-quickstart", str(tmp_path / "quickstart"))
    assert str(tmp_path) in script
    # Spark takes this one by default, as where the environment of ftfile is not activated.
    elsewhere = tmp_path / "bin"
    elsewhere.mkdir()
    (elsewhere / "python3").write_text("#!/bin/sh\nexit 7\n")
    (elsewhere / "python3").chmod(0o755)
    environment = (
        os.environ
        | quick_spark.environment()
        | {
            "JAVA_TOOL_OPTIONS": quick_spark.java_options(),
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{elsewhere}{os.pathsep}{os.environ['PATH']}",
        }
    )
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("|value|") == 4
    assert "Version(version=" in done.stdout
    assert "operation='stream'" in done.stdout
    assert re.search(r'(\{"word":"word \d+"\}\n){3}1000\n', done.stdout)
    assert re.search(r'(\{"word":"word \d+"\}\n){3}2000\n', done.stdout)
