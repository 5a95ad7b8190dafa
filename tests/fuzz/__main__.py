"""Fuzzes targets, two at the same time: `python -m tests.fuzz [--seconds=3600] [--at-once=2] [TARGET...]`.

Corpora, findings and logs are below `.fuzz`. Findings and a part of each corpus are also kept in `tests/fuzz/corpus`.
The last lines are a table. The result is 1 if a target found a defect.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz.corpora import kept_inputs
from tests.fuzz.results import TABLE_HEAD, run_of
from tests.fuzz.targets import all_targets

FOLDER = Path(".fuzz")
_KEEP_S = 300


def main(arguments: list[str]) -> int:
    """Fuzz the targets of the arguments, by default all."""
    targets = all_targets()
    parser = argparse.ArgumentParser(prog="tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_args(arguments)
    names = options.targets or [*targets]
    if unknown := {*names} - {*targets}:
        parser.error(f"unknown targets {', '.join(sorted(unknown))}: the targets are {', '.join(targets)}")
    if find_spec("atheris") is None:
        print("atheris is not installed: nothing is fuzzed")
        return 0
    logging.disable()
    for name in names:
        corpus = FOLDER / name / "corpus"
        corpus.mkdir(parents=True, exist_ok=True)
        for data in (*targets[name].seeds(), *kept_inputs(name)):
            (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    fuzz_all(names, options.seconds, options.at_once)
    runs = [run_of(name, FOLDER / name) for name in names]
    kept = [[run.name for run in runs if run.edges and not run.found]]
    kept += [[run.name] for run in runs if run.found]  # an input that found a defect can end the process
    for some in kept:
        command = [sys.executable, "-m", "tests.fuzz.keep", str(FOLDER), *some]
        subprocess.run(command, check=False, timeout=_KEEP_S)
    print(f"\n{TABLE_HEAD}")
    for run in runs:
        print(run.row())
    return int(any(run.found or run.error for run in runs))


def fuzz_all(names: list[str], seconds: int, at_once: int) -> None:
    """Fuzz targets in some processes at the same time."""
    running = []
    try:
        for lane in range(min(at_once, len(names))):
            command = [sys.executable, "-m", "tests.fuzz.one", str(FOLDER), str(seconds), *names[lane::at_once]]
            running.append(subprocess.Popen(command))
        for process in running:
            process.wait()
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
