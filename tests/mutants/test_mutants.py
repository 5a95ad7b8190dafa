"""A few of the mistakes, drawn anew in each run; `python -m tests.mutants` tries all of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.mutants.mutations import MUTANTS
from tests.mutants.trial import ROOT, code_in_use, copy_code, try_mutant

if TYPE_CHECKING:
    from pathlib import Path

DRAWN = 3


@pytest.mark.timeout(900)
def test_some_mistakes_are_caught(seed: int, tmp_path: Path) -> None:
    for number, mutant in enumerate(random.Random(seed).sample(MUTANTS, DRAWN)):
        outcome = try_mutant(mutant, tmp_path / str(number))
        assert outcome.verdict == "caught", outcome


def test_every_mistake_can_be_made() -> None:
    counts = {mutant.name: (ROOT / "src/ftfile" / mutant.file).read_text().count(mutant.old) for mutant in MUTANTS}
    assert not {name: count for name, count in counts.items() if count != 1}
    assert len(counts) == len(MUTANTS), "two mistakes have one name"


def test_the_tests_run_against_the_changed_copy(tmp_path: Path) -> None:
    copy_code(tmp_path)
    assert code_in_use(tmp_path).is_relative_to(tmp_path)


def test_what_is_no_mistake_survives(tmp_path: Path) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "the horizon is not checked")
    harmless = replace(mutant, new=f"if horizon_ms is not None and {mutant.old.removeprefix('if ')}")
    assert try_mutant(harmless, tmp_path).verdict == "survived"


def test_a_mistake_that_cannot_be_made_or_run_is_not_called_caught(tmp_path: Path) -> None:
    mutant = MUTANTS[0]
    assert try_mutant(replace(mutant, old="no such code"), tmp_path / "1").verdict == "broken"
    assert try_mutant(replace(mutant, new="syntax error here"), tmp_path / "2").verdict == "broken"
    assert try_mutant(replace(mutant, tests=("tests/no_such_test.py",)), tmp_path / "3").verdict == "broken"
