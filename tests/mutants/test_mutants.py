"""A mistake that counts as caught was made and was caught. `python -m tests.mutants` tries all mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.mutants.__main__ import main, try_all
from tests.mutants.mutant import ROOT, NotMadeError, change, mutants
from tests.mutants.trial import compiled_copy, run_tests, try_mutant

if TYPE_CHECKING:
    from pathlib import Path

MUTANTS = mutants()


def test_every_mistake_can_be_made(tmp_path: Path) -> None:
    """The wrong code uses only existing names. Otherwise every test would catch the mistake."""
    not_made = []
    for number, mutant in enumerate(MUTANTS):
        try:
            _, text = change(mutant)
        except NotMadeError as error:
            not_made.append(f"{mutant.name}: {error}")
        else:
            (tmp_path / f"{number}.py").write_text(text)
    assert not not_made
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--quiet", "--select=E9,F82"]
    run = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_mistake_has_a_name_and_tests_that_there_are() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) > 200
    tests = {test for mutant in MUTANTS for test in mutant.tests}
    files = sorted({test.partition("::")[0] for test in tests})  # pytest ignores a test if its class is listed, too
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    environment = os.environ | {"FTFILE_THOROUGH": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    found = {name for line in run.stdout.splitlines() for name in _names_of(line)}
    assert not sorted(tests - found)


def _names_of(collected: str) -> list[str]:
    """Return all names of a test: its file, its class, the test, and the test with one of its parameters."""
    ends = [match.start() for match in re.finditer(r"::|\[", collected)]
    return [collected, *(collected[:end] for end in ends)]


def test_the_page_of_tests_names_mistakes_and_what_catches_them() -> None:
    _, _, table = (ROOT / "docs/internals/testing.md").read_text().partition("| clause | test | mistake |")
    rows = re.findall(r"^\| .* \| `(.*)` \| (.*) \|$", table, re.MULTILINE)
    tests = {mutant.name: mutant.tests for mutant in MUTANTS}
    folders = {"crash": "tests", "": "tests/unit/log"}
    wrong = []
    for test, mistake in rows:
        folder = folders.get(test.rpartition("/")[0], "tests/unit")
        if not any(caught_by.startswith(f"{folder}/{test}") for caught_by in tests.get(mistake, ())):
            wrong.append((test, mistake, tests.get(mistake)))
    assert not wrong
    assert len(rows) > 40


def test_layout_does_not_matter_and_dots_are_anything() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "nonces are not compared")
    file, text = change(mutant)
    assert change(replace(mutant, old=f"(\n{mutant.old}\n)")) == (file, text)
    with pytest.raises(NotMadeError, match="0 times"):
        change(replace(mutant, old="missing.code(here)"))
    with pytest.raises(NotMadeError, match=r"\d times"):
        change(replace(mutant, old="..."))


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_copy(tmp_path_factory.mktemp("unchanged"))


def test_a_run_that_does_not_end_is_ended(code: Path) -> None:
    assert run_tests(["tests/unit/log/test_flat.py"], code, timeout_s=1).exit_code is None


def test_what_is_no_mistake_survives_and_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "the horizon is not checked")
    assert not try_all([mutant, replace(mutant, new=mutant.old)])
    caught, survived, summary = capsys.readouterr().out.splitlines()
    assert caught.startswith("caught ")
    assert survived.startswith("survived ")
    assert summary.startswith("1 of 2 mistakes caught")


def test_a_mistake_that_ends_the_process_is_caught(tmp_path: Path, code: Path) -> None:
    mutant = replace(MUTANTS[0], new='__import__("os").abort()')
    assert try_mutant(mutant, code, tmp_path / "0")[1:3] == ("caught", "the process of its tests ended by SIGABRT")


def test_a_test_that_fails_anyway_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = replace(MUTANTS[0], tests=("tests/no_such_test.py",))
    monkeypatch.setattr("tests.mutants.__main__.mutants", lambda: [failing])
    assert main([]) == 1
    assert "the tests fail without any mistake, exit code 4" in capsys.readouterr().out


def test_a_mistake_that_cannot_be_made_or_run_is_not_called_caught(tmp_path: Path, code: Path) -> None:
    mutant = MUTANTS[0]
    wrong = [
        replace(mutant, old="no.such(code)"),
        replace(mutant, new="syntax error here"),
        replace(mutant, tests=("tests/no_such_test.py",)),
    ]
    for number, each in enumerate(wrong):
        assert try_mutant(each, code, tmp_path / str(number)).verdict == "broken"
