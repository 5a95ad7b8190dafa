"""The examples of the README, run as a user would paste them."""

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
EVENTS = 'events = spark.readStream.format("rate").option("rowsPerSecond", 100).load()\n'
# A batch of a stream that runs in another process is seen by asking.
STOP = """
while query.isActive and len(query.recentProgress) < 3:
    time.sleep(0.1)
query.stop()
query.awaitTermination()
"""
SECTIONS = ("Quick start", "Compressed and encrypted")


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


def test_the_error_of_a_python_without_ftfile_is_the_one_below_the_quick_start(tmp_path: Path) -> None:
    """And once the source is registered, ftfile names that Python."""
    venv.create(tmp_path / "bare")
    python = str(tmp_path / "bare/bin/python")
    environment = {**os.environ, "PYSPARK_PYTHON": python}
    for name in ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    script = WRONG_PYTHON.format(source=str(ROOT / "src"), path=str(tmp_path / "out"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    by_itself, registered = [line for line in done.stdout.splitlines() if line.startswith("# ")]
    quick_start, _ = (ROOT / "README.md").read_text().split("Spark finds an installed")
    *_, remedy = quick_start.split("```")
    (words,) = re.findall(r"`(\[.*?)`", remedy)
    assert words in by_itself
    assert "PYSPARK_PYTHON" in remedy
    assert "ftfile doctor" in remedy
    assert f"{python}, the Python that Spark has started, cannot load the ftfile" in registered
    assert "set PYSPARK_PYTHON" in registered


def test_what_it_shows_runs_as_it_stands(tmp_path: Path) -> None:
    beginning, *others = (ROOT / "README.md").read_text().split("\n## ")
    sections = dict(section.split("\n", 1) for section in others)
    (first,) = re.findall(r"```python\n(.*?)```", beginning, flags=re.DOTALL)
    quick_start, more = (re.findall(r"```(python|sh)\n(.*?)```", sections[name], flags=re.DOTALL) for name in SECTIONS)
    quick_start = [block for block in quick_start if block[0] == "python"]
    assert len(quick_start) == 2
    assert [language for language, _ in more] == ["python", "sh", "python"]
    blocks = re.findall(r"```(?:python|sh)\n.*?```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 1 + len(quick_start) + len(more)
    quick_start.insert(1, ("python", f"{EVENTS}{first.replace('/data/', '/tmp/ftfile-quickstart/first/')}{STOP}"))
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
    lines = "".join(path.read_text() for path in (tmp_path / "quickstart/first/out").glob("*.json")).splitlines()
    values = [json.loads(line)["value"] for line in lines]
    assert sorted(values) == [*range(len(values))] != []
    assert "Version(version=" in done.stdout
    assert "operation='stream'" in done.stdout
    assert re.search(r'(\{"word":"word \d+"\}\n){3}1000\n', done.stdout)
    assert re.search(r'(\{"word":"word \d+"\}\n){3}2000\n', done.stdout)
