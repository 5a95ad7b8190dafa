"""That a mistake called caught was made, and was caught; `python -m tests.mutants` tries them all."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import pytest

from tests.mutants.__main__ import main
from tests.mutants.mutations import MUTANTS
from tests.mutants.report import write_report
from tests.mutants.trial import ROOT, Outcome, Verdict, compiled_copy, run_tests, try_mutant
from tests.mutants.warm import WarmPython

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_every_mistake_can_be_made() -> None:
    counts = {mutant.name: (ROOT / "src/ftfile" / mutant.file).read_text().count(mutant.old) for mutant in MUTANTS}
    assert not {name: count for name, count in counts.items() if count != 1}
    assert len(counts) == len(MUTANTS), "two mistakes have one name"


def test_every_mistake_uses_names_that_there_are(tmp_path: Path) -> None:
    """Any test would catch the others."""
    for number, mutant in enumerate(MUTANTS):
        text = (ROOT / "src/ftfile" / mutant.file).read_text()
        (tmp_path / f"{number}.py").write_text(text.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--quiet", "--select=E9,F82"]
    run = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_mistake_has_tests_that_there_are() -> None:
    tests = sorted({test for mutant in MUTANTS for test in mutant.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"FTFILE_THOROUGH": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_page_of_tests_names_mistakes_and_what_catches_them() -> None:
    _, _, table = (ROOT / "docs/internals/testing.md").read_text().partition("| clause | test | mistake |")
    rows = re.findall(r"^\| .* \| `(.*)` \| (.*) \|$", table, re.MULTILINE)
    tests = {mutant.name: mutant.tests for mutant in MUTANTS}
    folders = {"crash": "tests", "": "tests/unit/commit"}
    wrong = []
    for test, mistake in rows:
        folder = folders.get(test.rpartition("/")[0], "tests/unit")
        if not any(caught_by.startswith(f"{folder}/{test}") for caught_by in tests.get(mistake, ())):
            wrong.append((test, mistake, tests.get(mistake)))
    assert not wrong
    assert len(rows) > 40


@pytest.fixture(scope="module")
def python() -> Iterator[WarmPython]:
    with contextlib.closing(WarmPython()) as python:
        yield python


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_copy(tmp_path_factory.mktemp("unchanged"))


def test_the_tests_run_against_the_changed_copy(code: Path, python: WarmPython) -> None:
    run = run_tests(["tests/unit/core/test_units.py"], code, python)
    assert run.exit_code == 0
    assert run.code is not None
    assert run.code.is_relative_to(code)


def test_a_run_that_does_not_end_is_ended(code: Path, python: WarmPython) -> None:
    run = python.run(["tests/unit/commit/test_flat.py"], code, timeout_s=1)
    assert run.exit_code == -signal.SIGALRM


def test_what_is_no_mistake_survives_and_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "the horizon is not checked")
    harmless = replace(mutant, new=f"if horizon_ms is not None and {mutant.old.removeprefix('if ')}")
    monkeypatch.setattr("tests.mutants.__main__.MUTANTS", (mutant, harmless))
    assert main(["--junitxml", str(tmp_path / "mutants.xml")]) == 1
    caught, survived, summary = capsys.readouterr().out.splitlines()
    assert caught.startswith("caught ")
    assert survived.startswith("survived ")
    assert summary.startswith("1 of 2 mistakes caught")
    assert 'tests="3" failures="1" errors="0"' in (tmp_path / "mutants.xml").read_text()


def test_a_test_that_fails_anyway_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = replace(MUTANTS[0], tests=("tests/no_such_test.py",))
    monkeypatch.setattr("tests.mutants.__main__.try_mutant", lambda *_: Outcome("", "caught", "", 0.0))
    monkeypatch.setattr("tests.mutants.__main__.MUTANTS", (mutant,))
    assert main([]) == 1


def test_a_mistake_that_cannot_be_made_or_run_is_not_called_caught(
    tmp_path: Path, code: Path, python: WarmPython
) -> None:
    mutant = MUTANTS[0]
    wrong = [
        replace(mutant, old="no such code"),
        replace(mutant, new="syntax error here"),
        replace(mutant, tests=("tests/no_such_test.py",)),
    ]
    for number, each in enumerate(wrong):
        assert try_mutant(each, code, tmp_path / str(number), python).verdict == "broken"


def test_what_is_not_caught_is_counted_as_failed(tmp_path: Path) -> None:
    outcomes = [Outcome(verdict, verdict, "told", 1.0) for verdict in get_args(Verdict)]
    write_report(tmp_path / "reports/mutants.xml", outcomes, 2.5)
    command = [sys.executable, str(ROOT / ".ci/tally.py"), str(tmp_path / "reports")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stdout.splitlines()[0].split(maxsplit=1) == ["mutants", "1 failed, 2 passed, 1 errors in 2.5s"]
