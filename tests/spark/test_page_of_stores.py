"""The examples of docs/keyed-state.md, run in sequence as a user would paste them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ftfile.kv

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs/keyed-state.md"


def test_every_example_runs_as_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 8
    names: dict[str, Any] = {}
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        for block in blocks:
            exec(compile(block.replace("/tmp/ftkv", str(tmp_path)), str(PAGE), "exec"), names)
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    lines = shown.getvalue().splitlines()
    assert lines[:2] == ["2 [2, None] 0", "[{'word': 'not', 'n': 1}, {'word': 'or', 'n': 1}]"]
    assert {"|  to|  2|", "|  1| ada|London|", "|  2| eve|  NULL|"} <= {*lines}
    assert any(line.startswith("CompactReport(version=") for line in lines)
    assert any(line.endswith(" changes") for line in lines)
    words = sum(batch.num_rows for batch in ftfile.kv.open(str(tmp_path / "counts")).scan())
    assert ftfile.open(str(tmp_path / "changes")).to_arrow().num_rows == words
    assert ftfile.kv.open(str(tmp_path / "users")).version == 0
