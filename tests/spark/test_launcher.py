"""`ftfile-python` in real Spark: Python processes import the installed pyspark and load modules of users as before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import ftfile.spark
from tests import quick_spark
from tests.spark import launcher_job

ROOT = Path(__file__).parents[2]


def run(home: Path, python: str) -> dict[str, int]:
    """Run the job; return by step the number of modules from Spark's archives."""
    home.mkdir()
    environment = os.environ | {
        "PYSPARK_PYTHON": python,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "NOTES": str(home / "notes"),
        "HOME": str(home),
        "JAVA_TOOL_OPTIONS": quick_spark.QUICK_START,
    }
    # The Spark home of the tests has no archives.
    for name in ("SPARK_HOME", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    command = [sys.executable, launcher_job.__file__, str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == '["a", "b"]\n'
    notes = [line.split(" ", 2) for line in (home / "notes").read_text().splitlines()]
    assert {prefix for _, _, prefix in notes} == {sys.prefix}
    return {step: int(archived) for step, archived, _ in notes}


@pytest.mark.parametrize("is_launched", [True, False])
def test_modules_from_archives(tmp_path: Path, *, is_launched: bool) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tuning.md").read_text(), re.DOTALL)
    with mock.patch.dict(os.environ):
        exec(example)
        launcher = os.environ["PYSPARK_PYTHON"]
    assert launcher == ftfile.spark.python() == str(Path(sys.executable).with_name("ftfile-python"))
    archived = run(tmp_path / "home", launcher if is_launched else sys.executable)
    assert archived.keys() == {"udf", "plan", "write", "commit"}
    if is_launched:
        assert set(archived.values()) == {0}
    else:
        assert min(archived.values()) > 20
