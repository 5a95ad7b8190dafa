"""Processes of a first batch or read do not import pandas or modules of other processes, because imports take long."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SELDOM_USED = {
    *("cryptography", "difflib", "importlib.metadata", "pandas", "pyarrow.compute", "pyarrow.dataset"),
    *("ftfile.operate.export.export", "ftfile.filters.key_providers"),
}
UNUSED = {
    "plan": {
        *("ftfile.writing.fingerprint", "ftfile.writing.stage", "ftfile.log.protocol", "ftfile.log.read.snapshot"),
        "ftfile.writing.files.task",
    },
    "write": {"ftfile.log.protocol", "ftfile.log.read.snapshot", "ftfile.writing.files.assembler"},
    "commit": {"ftfile.writing.bad_records", "ftfile.writing.stage", "ftfile.writing.files.task"},
    "read": {"ftfile.writing.files.file_options", "ftfile.spark.pushdown"},
}
# A task of a lookup reads a store, but no files.
UNUSED_IN_LOOKUPS = {"ftfile.formats.api", "ftfile.formats.parts", "ftfile.spark.pushdown", "pyarrow.compute"}


@pytest.mark.slow
def test_each_process_of_a_first_batch_imports_what_it_uses(tmp_path: Path) -> None:
    for step, unused in UNUSED.items():
        command = [sys.executable, "-m", "tests.unit.spark.first_batch", step, str(tmp_path)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert not (SELDOM_USED | unused) & {*json.loads(run.stdout)}, step


@pytest.mark.slow
def test_a_task_of_a_lookup_imports_no_formats() -> None:
    code = "import json, sys, ftfile.spark.store_lookup; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert not UNUSED_IN_LOOKUPS & {*json.loads(run.stdout)}
