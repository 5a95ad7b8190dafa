"""`make test` continues after targets that fail, and names them in its last lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.without import deleted_in

ROOT = Path(__file__).parents[2]
REPORT = '<testsuites><testsuite tests="{}" failures="{}" errors="0" skipped="0" time="1.5"></testsuite></testsuites>'
# What `make` does: the target is also the outcome.
MAKE = """#!/usr/bin/env bash
echo "$*" >>made
for word; do
  case "$word" in
    lint) exit 0 ;;
    unlinted) exit 2 ;;
    red) exit 2 ;;
  esac
done
"""


def each(checkout: Path, *targets: str) -> subprocess.CompletedProcess[str]:
    shutil.copytree(ROOT / ".ci", checkout / ".ci", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    make = checkout / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = os.environ | {"MAKE": str(make), "PYTHON": sys.executable}
    command = [str(checkout / ".ci/each"), *targets]
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def report(checkout: Path, name: str, tests: int, failures: int = 0) -> None:
    (checkout / ".reports").mkdir(exist_ok=True)
    (checkout / f".reports/{name}.xml").write_text(REPORT.format(tests, failures))


def test_all_that_passed_is_one_line(tmp_path: Path) -> None:
    report(tmp_path, "unit", 3)
    report(tmp_path, "crash", 4)
    run = each(tmp_path, "lint", "unit", "crash")
    assert run.returncode == 0
    assert run.stdout.splitlines()[-1] == " 7 passed in 3.00s ".center(80, "=")


def test_targets_after_a_failed_one_are_made_and_the_end_names_it(tmp_path: Path) -> None:
    report(tmp_path, "red", 5, 2)
    report(tmp_path, "unit", 3)
    run = each(tmp_path, "lint", "red", "unit")
    assert run.returncode == 1
    made = (tmp_path / "made").read_text().splitlines()
    assert [line.split()[2] for line in made] == ["lint", "red", "unit"]
    assert run.stdout.splitlines()[-2:] == ["failed: red", " 2 failed, 6 passed in 3.00s ".center(80, "=")]


@pytest.mark.parametrize("tests", [0, 3])
def test_what_fails_without_a_report_counts(tmp_path: Path, tests: int) -> None:
    if tests:
        report(tmp_path, "unit", tests)
    run = each(tmp_path, "unlinted", "unit")
    assert run.returncode == 1
    passed = f", {tests} passed in 1.50s" if tests else " in 0.00s"
    assert run.stdout.splitlines()[-1] == f" 1 failed{passed} ".center(80, "=")


def test_every_module_of_crashes_is_marked_slow() -> None:
    """`make crash` runs by the marker: it would pass over a module without."""
    modules = list((ROOT / "tests/crash").glob("test_*.py"))
    assert len(modules) > 3
    assert not [module.name for module in modules if "\npytestmark = pytest.mark.slow\n" not in module.read_text()]


def test_runs_without_either_do_without_each_in_half_of_the_tests() -> None:
    names = [f"tests/unit/commit/test_log.py::test_{number}" for number in range(100)]
    halves = Counter(deleted_in(name, "either") for name in names)
    assert set(halves) == {"hints", "ranges"}
    assert min(halves.values()) > 30
    assert {deleted_in(name, "ranges") for name in names} == {"ranges"}
