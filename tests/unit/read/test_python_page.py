"""The examples of docs/python.md run as a user would paste them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[3] / "docs/python.md"


def test_the_examples_run_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = MicroBatch(str(tmp_path), {"word": "string", "n": "long", "month": "integer"}, {"partitionBy": "month"})
    query.run(0, [[{"word": word, "n": n, "month": 6 + n} for n, word in enumerate(["a", "b", "a"])]])
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    exec("\n".join(blocks).replace("/data/out", str(tmp_path)), names)
    printed = capsys.readouterr().out
    assert printed.startswith("3 2\n")
    assert names["table"].to_pylist() == [{"word": "b", "n": 1}, {"word": "a", "n": 2}]  # type: ignore[attr-defined]
    assert len(names["pandas_frame"]) == 3  # type: ignore[arg-type]
