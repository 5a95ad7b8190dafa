"""The examples of README and of the quick start, run as a user would paste them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

from tests import quick_spark

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/quick-start.md"


WRONG_PYTHON = """
import sys
sys.path.insert(0, {source!r})
from pyspark.sql import SparkSession
from ftfile import FtFileDataSource
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for _ in range(2):
    try:
        spark.read.format("ftfile").load({path!r})
    except Exception as error:
        print("#", str(error).replace(chr(10), " "))
    spark.dataSource.register(FtFileDataSource)
"""


def test_the_error_of_a_python_without_ftfile_is_the_one_in_the_quick_start(tmp_path: Path) -> None:
    """After the source is registered, ftfile's error names that Python, too."""
    venv.create(tmp_path / "bare")
    python = str(tmp_path / "bare/bin/python")
    environment = {**os.environ, "PYSPARK_PYTHON": python}
    for name in ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    script = WRONG_PYTHON.format(source=str(ROOT / "src"), path=str(tmp_path / "out"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    by_itself, registered = [line for line in done.stdout.splitlines() if line.startswith("# ")]
    _, remedy = PAGE.read_text().split("## If Spark does not find ftfile")
    words, *_ = re.findall(r"`(\[.*?)`", remedy)
    assert words in by_itself
    assert "PYSPARK_PYTHON" in remedy
    assert "ftfile doctor" in remedy
    assert f"{python}, the Python that Spark has started, cannot load the ftfile" in registered
    assert "set PYSPARK_PYTHON" in registered


def run_twice(page: Path, replaced: tuple[str, str], home: Path) -> str:
    """Run the Python examples of a page twice in one process, as a returning user would; return the output."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    script = "\n".join(blocks * 2).replace(*replaced)
    assert replaced[1] in script
    # Spark starts this Python by default, as if the environment of ftfile were not activated.
    elsewhere = home / "bin"
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
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=home, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_example_of_the_readme_prints_what_is_shown(tmp_path: Path) -> None:
    page = ROOT / "README.md"
    (shown,) = re.findall(r"```\n(\+-.*?)```", page.read_text(), flags=re.DOTALL)
    assert run_twice(page, ("/tmp/words", str(tmp_path / "words")), tmp_path) == shown * 2


def test_the_readme_has_one_screen_for_each_subject() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_quick_start_runs_as_it_stands(tmp_path: Path) -> None:
    output = run_twice(PAGE, ("/tmp/ftfile-quickstart", str(tmp_path / "quick")), tmp_path)
    assert output.count("|value|") == 4
    lines = "".join(path.read_text() for path in (tmp_path / "quick/out").glob("*.json")).splitlines()
    values = [json.loads(line)["value"] for line in lines]
    assert sorted(values) == [*range(len(values))] != []
    assert output.count("Version(version=") == 2
    assert "operation='stream'" in output
