"""`python -m tests.mutants [WORD…]`: make each mistake whose name has one of the words; exit 1 if one is not caught."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.mutations import MUTANTS
from tests.mutants.report import write_report
from tests.mutants.trial import Outcome, compiled_copy, run_tests, try_mutant
from tests.mutants.warm import WarmPython

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.mutants.mutant import Mutant
    from tests.mutants.trial import Verdict

SIDE_BY_SIDE = 2


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*", help="of the names of the mistakes to make; all by default")
    parser.add_argument("--junitxml", type=Path, help="where to report the outcomes as pytest does")
    parser.add_argument(
        "--tests-passed", action="store_true", help="without any mistake they have passed already: do not run them so"
    )
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if not options.words or any(word in mutant.name for word in options.words)]
    if not chosen:
        parser.error("no mistake has one of these words in its name")
    began = time.monotonic()
    outcomes = try_all(chosen, tests_passed=options.tests_passed)
    seconds = time.monotonic() - began
    if options.junitxml is not None:
        write_report(options.junitxml, outcomes, seconds)
    *trials, unchanged = outcomes
    caught = sum(outcome.good for outcome in trials)
    print(f"{caught} of {len(trials)} mistakes caught in {seconds:.0f} s; the code as it is: {unchanged.told}")
    return int(not all(outcome.good for outcome in outcomes))


def try_all(mutants: list[Mutant], *, tests_passed: bool = False) -> list[Outcome]:
    """Make one mistake after the other, printing how each ended; the last outcome is that of no mistake at all."""
    with tempfile.TemporaryDirectory(prefix="ftfile-mutants-") as scratch, contextlib.ExitStack() as stack:
        code = compiled_copy(Path(scratch) / "unchanged")
        free = [stack.enter_context(contextlib.closing(WarmPython())) for _ in range(SIDE_BY_SIDE)]

        def with_python(trial: Callable[[WarmPython], Outcome]) -> Outcome:
            python = free.pop()
            try:
                return trial(python)
            finally:
                free.append(python)

        folders = [Path(scratch) / str(number) for number in range(len(mutants))]
        trials = [
            functools.partial(try_mutant, mutant, code, folder) for mutant, folder in zip(mutants, folders, strict=True)
        ]
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            unchanged = pool.submit(with_python, functools.partial(try_nothing, [] if tests_passed else mutants, code))
            outcomes = []
            for outcome in pool.map(with_python, trials):
                print(f"{outcome.verdict:8} {outcome.seconds:5.1f} s  {outcome.name}: {outcome.told}", flush=True)
                outcomes.append(outcome)
            return [*outcomes, unchanged.result()]


def try_nothing(mutants: list[Mutant], code: Path, python: WarmPython) -> Outcome:
    """Run the same tests without any mistake: a test that fails anyway catches nothing."""
    began = time.monotonic()

    def outcome(verdict: Verdict, told: str) -> Outcome:
        return Outcome("no mistake", verdict, told, time.monotonic() - began)

    if not mutants:
        return outcome("sound", "was tested before")
    run = run_tests(sorted({test for mutant in mutants for test in mutant.tests}), code, python)
    if run.exit_code:
        return outcome("broken", f"the tests fail without any mistake:\n{run.output[-2000:]}")
    return outcome("sound", "passes the same tests")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
