"""The demonstration of a keyed store, in its short form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.crash.share import in_long
from tests.spark.demo_runs import count_kills, run_demo

if TYPE_CHECKING:
    from pathlib import Path


@in_long  # tests of kills stop the same processes
def test_quick_demo_has_every_word_as_often_as_it_occurs(seed: int, tmp_path: Path) -> None:
    output = run_demo("tests.demos.store", f"--seed={seed}", directory=tmp_path)
    assert count_kills(output) == 2
    assert output.count("every word as often as it occurs") == 2
    assert re.search(r"killed in windows \d+, \d+$", output, flags=re.MULTILINE), output
    looked = re.search(r"looked at (\d+) versions: ([\d,]+) lookups of \d+ us, 0 of them wrong", output)
    assert looked, output
    assert int(looked[1]) > 2
