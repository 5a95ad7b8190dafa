"""`python -m tests.architecture [WORD…]`: plant a fault against each rule of this folder, in a copy of the checkout.

The file `faults.txt` contains the faults, each in these lines:

    name | file
        - text
        + wrong text
        test

The wrong text replaces the text, which occurs once. Without a text, it is added at the end of the file, which can be a
new one. `{}` in it is removed, so that this checkout does not break the rule. Exit 1 if the test passes with the fault.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Fault(NamedTuple):
    """A change of one file, and the test that must fail because of it."""

    name: str
    file: str
    old: str
    new: str
    test: str


def faults() -> list[Fault]:
    """Return all faults, in the order of the file."""
    found = []
    for block in re.split(r"\n(?=\S)", Path(__file__).with_name("faults.txt").read_text().strip("\n")):
        head, *lines, test = block.split("\n")
        name, file = head.split(" | ")
        old, new = ("\n".join(line[6:] for line in lines if line[4] == sign) for sign in "-+")
        found.append(Fault(name, file, old, new.replace("{}", ""), f"tests/architecture/{test.strip()}"))
    return found


def changed(fault: Fault, checkout: Path) -> str:
    """Return the text of the file with the fault; a ValueError if the text to replace does not occur once."""
    path = checkout / fault.file
    text = path.read_text() if path.exists() else ""
    if not fault.old:
        return f"{text}\n{fault.new}\n"
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.file} has {text.count(fault.old)} times: {fault.old}")
    return text.replace(fault.old, fault.new)


def copied(checkout: Path) -> Path:
    """Copy all files that are in the repository, or would be, to a directory, and return it."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.split("\0"):
        if name and (ROOT / name).exists():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, checkout / name)
    return checkout


def runs(test: str, checkout: Path) -> subprocess.CompletedProcess[str]:
    """Run a test of the copy against the code of the copy, and return the run."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def is_noticed(fault: Fault, checkout: Path) -> bool:
    """Plant a fault in the copy, run its test, and remove the fault."""
    path = checkout / fault.file
    before = path.read_bytes() if path.exists() else None
    path.write_text(changed(fault, checkout))
    try:
        run = runs(fault.test, checkout)
    finally:
        path.unlink()
        if before is not None:
            path.write_bytes(before)
    noticed = run.returncode == 1 and f"FAILED {fault.test}" in run.stdout
    print(f"{'noticed' if noticed else 'NOT NOTICED'}: {fault.name}", flush=True)
    if not noticed:
        print(run.stdout[-2000:])
    return noticed


def main(words: list[str]) -> int:
    """Try the faults that are named by one of the words, or all."""
    chosen = [fault for fault in faults() if not words or any(word in fault.name for word in words)]
    with tempfile.TemporaryDirectory(prefix="ftfile-faults-") as scratch:
        checkout = copied(Path(scratch))
        unnoticed = [fault for fault in chosen if not is_noticed(fault, checkout)]
        tests = sorted({fault.test for fault in chosen})
        failing = [test for test in tests if runs(test, checkout).returncode]
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} faults are noticed")
    for test in failing:
        print(f"{test} fails without a fault")
    return int(bool(unnoticed or failing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
