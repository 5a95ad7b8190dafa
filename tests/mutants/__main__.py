"""`python -m tests.mutants [WORD…]`: try the mistakes named by one of the words. Exit 1 if one is not caught."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.mutant import mutants
from tests.mutants.trial import compiled_copy, run_tests, try_mutant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.mutant import Mutant

SIDE_BY_SIDE = 2


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*", help="of the names of the mistakes to make; all by default")
    words = parser.parse_args(arguments).words
    chosen = [mutant for mutant in mutants() if not words or any(word in mutant.name for word in words)]
    if not chosen:
        parser.error("no mistake has one of these words in its name")
    return int(not try_all(chosen))


def try_all(chosen: Sequence[Mutant]) -> bool:
    """Try each mistake, and print its outcome. Return True if all are caught.

    The same tests must pass without a mistake, because a test that always fails catches nothing.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ftfile-mutants-") as scratch, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        code = compiled_copy(Path(scratch) / "unchanged")
        unchanged = pool.submit(run_tests, sorted({test for mutant in chosen for test in mutant.tests}), code)
        folders = [Path(scratch) / str(number) for number in range(len(chosen))]
        caught = 0
        for outcome in pool.map(try_mutant, chosen, [code] * len(chosen), folders):
            print(f"{outcome.verdict:8} {outcome.seconds:5.1f} s  {outcome.name}: {outcome.detail}", flush=True)
            caught += outcome.verdict == "caught"
        sound = unchanged.result()
    print(f"{caught} of {len(chosen)} mistakes caught in {time.monotonic() - began:.0f} s")
    if sound.exit_code != 0:
        print(f"the tests fail without any mistake, exit code {sound.exit_code}:\n{sound.output[-2000:]}")
    return caught == len(chosen) and sound.exit_code == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
