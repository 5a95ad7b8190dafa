"""The examples of docs/test-kit.md, taken together, are a file that pytest runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs/test-kit.md"


def test_every_example_of_the_page_passes(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    examples = tmp_path / "test_examples.py"
    examples.write_text("\n\n".join(blocks))
    settings = ["-q", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, str(examples)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    passed = re.search(r"(\d+) passed", run.stdout)
    assert passed
    assert int(passed[1]) > 60, "the contract suite is among them"
