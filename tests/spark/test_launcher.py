"""`ftfile-python` in real Spark: Python processes import the installed pyspark and load modules of users as before."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

import ftfile
import ftfile.spark
from tests import quick_spark
from tests.spark import launcher_job

ROOT = Path(__file__).parents[2]


class Step(NamedTuple):
    """The Python process of a step: its modules from Spark's archives, and its processor time in seconds."""

    archived: int
    processor_s: float


def run(home: Path, **variables: str) -> dict[str, Step]:
    """Run the job with these variables; return its steps."""
    home.mkdir()
    launcher_job.write_installed_source(home)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(home)]),
        "NOTES": str(home / "notes"),
        "HOME": str(home),
        "JAVA_TOOL_OPTIONS": quick_spark.QUICK_START,
    }
    # The Spark home of the tests has no archives.
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    command = [sys.executable, launcher_job.__file__, str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment | variables)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == '["a", "b"]\n'
    notes = [line.split(" ", 3) for line in (home / "notes").read_text().splitlines()]
    assert {prefix for *_, prefix in notes} == {sys.prefix}
    steps = {step: Step(int(archived), float(processor_s)) for step, archived, processor_s, _ in notes}
    assert steps.keys() == REGISTERED | FOUND
    return steps


REGISTERED = {"udf", "plan", "write", "commit"}
FOUND = {"found-plan", "found-write", "found-commit"}
LAUNCHER = str(Path(sys.executable).with_name("ftfile-python"))


@pytest.mark.parametrize("page", ["README.md", "docs/quick-start.md", "docs/tuning.md", "docs/running.md"])
def test_the_pages_set_all_variables_that_spark_reads(page: str) -> None:
    (line,) = re.findall(r"^os.environ.*PYTHON.*$", (ROOT / page).read_text(), re.MULTILINE)
    with mock.patch.dict(os.environ, {"PYSPARK_PYTHON": "/usr/bin/python3", "PYSPARK_DRIVER_PYTHON": "jupyter"}):
        exec(line)
        assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == ftfile.spark.python() == LAUNCHER


@pytest.mark.parametrize("is_launched", [True, False])
def test_modules_from_archives(tmp_path: Path, *, is_launched: bool) -> None:
    steps = run(tmp_path / "home", PYSPARK_PYTHON=LAUNCHER if is_launched else sys.executable)
    archived = {step.archived for step in steps.values()}
    if is_launched:
        assert archived == {0}
    else:
        assert min(archived) > 20


def test_spark_prefers_the_python_of_the_driver_for_sources_that_it_finds_also_in_tasks(tmp_path: Path) -> None:
    one = run(tmp_path / "one", PYSPARK_PYTHON=LAUNCHER, PYSPARK_DRIVER_PYTHON=sys.executable)
    assert {one[name].archived for name in REGISTERED} == {0}
    assert min(one[name].archived for name in FOUND) > 20
    both = run(tmp_path / "both", PYSPARK_PYTHON=LAUNCHER, PYSPARK_DRIVER_PYTHON=LAUNCHER)
    assert {step.archived for step in both.values()} == {0}
    spent = [sum(steps[name].processor_s for name in FOUND) for steps in (one, both)]
    assert spent[1] < 0.7 * spent[0], (one, both)


def test_a_notebook_has_set_the_program_that_starts_the_driver(tmp_path: Path) -> None:
    """Jupyter cannot run modules, so Spark finds no data source. `doctor` and the warning of a started JVM say so."""
    jupyter = tmp_path / "jupyter"
    jupyter.write_text("#!/bin/sh\necho 'usage: jupyter [-h] [subcommand]' >&2\nexit 2\n")
    jupyter.chmod(0o755)
    with pytest.raises(AssertionError, match="DATA_SOURCE_NOT_FOUND"):
        run(tmp_path / "one", PYSPARK_PYTHON=LAUNCHER, PYSPARK_DRIVER_PYTHON=str(jupyter))
    with mock.patch.dict(os.environ, {"PYSPARK_PYTHON": LAUNCHER, "PYSPARK_DRIVER_PYTHON": str(jupyter)}):
        (worker,) = (each for each in ftfile.doctor(measure_start=False).findings if each.code == "workers")
    assert worker.severity == "warning"
    assert worker.remedy == (f"Start the application with PYSPARK_DRIVER_PYTHON={LAUNCHER} PYSPARK_PYTHON={LAUNCHER}")
