"""Fail if the changelog does not name an added or removed public name or option."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The last release is imported by another process.
NAMES = """
import importlib, json
names = []
for module in ("ftfile", "ftfile.kv", "ftfile.spark", "ftfile.errors"):
    public = getattr(importlib.import_module(module), "__all__")
    names += [f"{module}.{name}" for name in public if not name.startswith("_")]
options = importlib.import_module("ftfile.core.options.table").OPTIONS
print(json.dumps(sorted({*names, *(option.name for option in options)})))
"""


def public_names(root: Path) -> set[str]:
    """Return the public functions and classes, and the options, of a source tree."""
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    names = subprocess.run([sys.executable, "-c", NAMES], env=environment, check=True, stdout=subprocess.PIPE).stdout
    return set(json.loads(names))


def last_release(root: Path) -> str | None:
    """Return the newest tag of a version; None before the first release."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def unnamed_changes(root: Path) -> list[str]:
    """Return the added or removed names since the last release that the changelog does not contain."""
    tag = last_release(root)
    if tag is None:
        return []
    with tempfile.TemporaryDirectory(prefix="ftfile-changes-") as directory:
        archive = subprocess.run(["git", "archive", tag, "src"], cwd=root, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", directory], input=archive, check=True)
        changed = public_names(Path(directory)) ^ public_names(root)
    newest = (root / "CHANGELOG.md").read_text().split("\n## [")[1]
    named = set(re.findall(r"`([\w.]+)(?:\(.*?\))?`", newest))
    return sorted(name for name in changed if name not in named and name.rpartition(".")[2] not in named)


def main() -> None:
    """End with an error that lists the names."""
    if names := unnamed_changes(ROOT):
        sys.exit(f"CHANGELOG.md does not name what was added or removed since {last_release(ROOT)}: {', '.join(names)}")


if __name__ == "__main__":
    main()
