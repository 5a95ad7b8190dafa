"""The examples of the pages about migrations run on directories of other programs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import ConfigError
from tests.unit.operate.accidents import commands
from tests.unit.tools.cli.running import run
from tests.unit.tools.migrate.foreign import parquet

if TYPE_CHECKING:
    from collections.abc import Callable

deltalake: Any = pytest.importorskip("deltalake")
PAGES = Path(__file__).parents[4] / "docs/migrating"


def put(path: Path, text: str = "1\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


ROW = '{"id": 1, "word": "a"}\n'
# The command `hadoop` for a directory on this machine.
HDFS = """hdfs() { case "$2" in
  -find) find "$3" -name "$5" ;;
  -cat) cat "$3" ;;
  -truncate) test "$3" = -w && test "$(wc -c < "$5")" -ge "$4" && truncate -s "$4" "$5" ;;
esac; }
"""
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
        (command, shown) = next(commands(page))
        found = run(*command.replace("/data/", f"{tmp_path}/").split()[1:]).stdout
        assert re.sub(r"\d+ B", "355 B", found).split() == shown.split()
    else:
        path = tmp_path / ("topics/logs" if name == "kafka-connect" else "out")
        assert ftfile.open(str(path)).to_arrow().num_rows == 1


@pytest.mark.parametrize("language", ["python", "shell"])
def test_files_of_flink_that_are_too_long(tmp_path: Path, language: str) -> None:
    hour = tmp_path / "out/an hour"
    for number in range(4):
        put(hour / f"{number}/part-0-{number}", "1\n2\n")
        (hour / f"{number}/_part-0-{number}.valid-length").write_bytes(b"\0\x01" + (b"2" if number else b"4"))
    with pytest.raises(ConfigError, match=r"2 of the 4 bytes of 'an hour/1/part-0-1', .*`truncate -s 2 'an"):
        ftfile.migrate(str(tmp_path / "out"), file_format="text")
    page = (PAGES / "flink.md").read_text()
    example = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[-1]
    example = example.replace("/data/", f"{tmp_path}/")
    if language == "python":
        exec(compile(example, "flink", "exec"), {})
    else:
        subprocess.run(["bash", "-c", HDFS + example], check=True)
    assert ftfile.migrate(str(tmp_path / "out"), file_format="text").rows == 5
