"""The examples of docs/python-writing.md run as a user would paste them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import ftfile

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[3] / "docs/python-writing.md"


def test_the_examples_run_one_after_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Other tests run the programs: `test_python_programs.py`, and on a broker `tests/kafka/test_python_consumer.py`.
    examples = re.sub(r"^## Programs\n.*?(?=^## )", "", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    blocks = re.findall(r"```python\n(.*?)```", examples, re.DOTALL)
    assert len(blocks) == 4
    out = str(tmp_path / "orders")
    exec("\n".join(blocks).replace("/data/", f"{tmp_path}/"), {})
    assert capsys.readouterr().out == "0 2\n1000\n"
    assert (ftfile.open(out).version(), ftfile.open(out).count()) == (3, 4)
