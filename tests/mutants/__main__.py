"""`python -m tests.mutants [WORD…]`: try each mistake whose name has one of the words; exit 1 if one is not caught."""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutations import MUTANTS, Mutant
from tests.mutants.trial import Outcome, code_in_use, copy_code, run_tests, try_mutant

SIDE_BY_SIDE = 2


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="ftfile-mutants-") as scratch:
        folders = [Path(scratch) / str(number) for number in range(len(chosen) + 1)]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            unchanged = pool.submit(passes_unchanged, chosen, folders.pop())
            outcomes = []
            for outcome in pool.map(try_mutant, chosen, folders):
                print(line(outcome), flush=True)
                outcomes.append(outcome)
        sound = unchanged.result()
    caught = sum(outcome.verdict == "caught" for outcome in outcomes)
    print(f"{caught} of {len(outcomes)} mistakes caught; " + (sound or "the code as it is passes the same tests"))
    return int(bool(sound) or caught != len(outcomes) or not outcomes)


def line(outcome: Outcome) -> str:
    return f"{outcome.verdict:8} {outcome.seconds:5.1f} s  {outcome.name}: {outcome.told}"


def passes_unchanged(mutants: list[Mutant], folder: Path) -> str:
    """Run the same tests without any mistake: return what is wrong, or nothing."""
    copy_code(folder)
    used = code_in_use(folder)
    if not used.is_relative_to(folder):
        return f"the tests run against {used} and not against the changed copies"
    run = run_tests(sorted({test for mutant in mutants for test in mutant.tests}), folder)
    return "" if run.returncode == 0 else f"the tests fail without any mistake:\n{run.stdout[-2000:]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
