"""The examples of the pages about migrating, on directories of other programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from tests.unit.maintenance.foreign import parquet

if TYPE_CHECKING:
    from collections.abc import Callable

deltalake: Any = pytest.importorskip("deltalake")
PAGES = Path(__file__).parents[3] / "docs/migrating"


def put(path: Path, text: str = "1\n") -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


ROW = '{"id": 1, "word": "a"}\n'
DIRECTORIES: dict[str, Callable[[Path], object]] = {
    "README": lambda data: parquet(data / "out/day=2024-07-01/a.parquet", [1]),
    "flink": lambda data: put(data / "out/2024-07-01--10/part-0-0"),
    "apex": lambda data: put(data / "out/words.0"),
    "kafka-connect": lambda data: put(data / "topics/logs/partition=0/logs+0+0000000000+0000000000.json", ROW),
    "delta": lambda data: deltalake.write_deltalake(str(data / "out"), pa.table({"id": [1]})),
}


@pytest.mark.parametrize("name", DIRECTORIES)
def test_page(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DIRECTORIES[name](tmp_path)
    page = (PAGES / f"{name}.md").read_text()
    for example in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(example.replace('"/data/', f'"{tmp_path}/'), name, "exec"), {})
    if name == "README":
        assert capsys.readouterr().out == "files 1 files, 1 rows; left out: []\n"
        assert not (tmp_path / "out/_ftfile").exists()
    else:
        path = tmp_path / ("topics/logs" if name == "kafka-connect" else "out")
        assert ftfile.open(str(path)).to_arrow().num_rows == 1
