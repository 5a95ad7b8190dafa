"""docs/command.md shows exactly the output of the command on a terminal of 80 columns."""

from __future__ import annotations

import json
import re
import shlex
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.cli import command
from ftfile.tools.cli.app import PANELS, STORE_COMMANDS, examples
from ftfile.tools.cli.command import Command
from tests.unit.tools.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Iterator

STORAGE = "memory://data"
PAGE = Path(__file__).parents[4] / "docs/command.md"
CLI = Path(command.__file__).parent
CHANGING = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?", "2026-11-22 19:07:52"),
    (r"\d+(\.\d)? (s|min) ago", "3 s ago"),
    (r"\d+(\.\d)? s old", "3 s old"),
    (r", for \d+(\.\d)? (s|min)", ", for 3 min"),
    (r"\b\d\.\d s$", "0.1 s"),
    (r"^(seconds +)\d\.\d+$", r"\g<1>0.123"),
    (r"^(writer +)\S+@\S+$", r"\g<1>spark@node-1"),
    (r"\b[0-9a-f]{12}\b", "c8be2bf32d91"),
    (" {2,}", "  "),  # columns are as wide as their values
    (r"crc32:[0-9a-f]{8}", "crc32:bdd898d6"),
)


def settled(text: str) -> str:
    """Return an output without the parts that differ between runs."""
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


@pytest.fixture
def _data(tmp_path: Path) -> Iterator[None]:
    """Create the directories of the page in a storage system whose URL has the same length as their paths."""
    write_data(tmp_path / "checkpoint")
    yield
    MemoryFileSystem.drop("data")


def write_data(checkpoint: Path, storage: str = STORAGE) -> None:
    columns = {"id": "long", "month": "string", "word": "string"}
    options = {"fileFormat": "json", "partitionBy": "month", "compression": "gzip"}
    query = MicroBatch(f"{storage}/out", columns, options, checkpoint=str(checkpoint))
    for batch, word in enumerate(("one", "two", "日本")):
        query.run(
            batch, [[{"id": 10 * batch + number, "month": str(7 + number % 2), "word": word} for number in (0, 1)]]
        )
    options = {"fileFormat": "parquet", "partitionBy": "day", "rolling": "policy", "rolloverInterval": "1h"}
    rolled = MicroBatch(f"{storage}/rolled", {"id": "long", "day": "string"}, options)
    for batch in range(3):
        rolled.run(batch, [[{"id": batch, "day": "2024-07-01"}]])
    live = MicroBatch(f"{storage}/live", {"id": "long"}, {"fileFormat": "json"}, checkpoint=f"{storage}/checkpoint")
    planned = open_filesystem(f"{storage}/checkpoint")
    planned.make_directories("offsets")
    about = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000) - 200_000, "conf": {}})
    for batch, end in enumerate((1200, 1350)):
        planned.put(f"offsets/{batch}", f'v1\n{about}\n{{"events":{{"0":{end}}}}}'.encode())
    live.run(0, [[{"id": 1}]])


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("terminal", "output", "check_commands", "inspect_commands", "row_formats"):
        monkeypatch.setattr(f"ftfile.tools.cli.{module}.is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")


def shown(page: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a page, each with its output."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def as_shown(output: str) -> str:
    """Return an output in the form of the page."""
    return re.sub(" +$", "", output.replace(STORAGE, "file:///data"), flags=re.MULTILINE)


@pytest.mark.usefixtures("_terminal", "_data")
def test_outputs_are_real() -> None:
    examples_of_page = list(shown(PAGE.read_text()))
    assert len(examples_of_page) > 8
    wrong = []
    for line, output in examples_of_page:
        words = shlex.split(line.replace("/data/", f"{STORAGE}/"))
        assert words[0] == "ftfile"
        text, _, code = output.rpartition("# ends with ")
        result = run(*words[1:], code=int(code) if text else 0)
        real = as_shown(result.output)
        if settled(real) != settled(text or output):
            wrong.append(f"$ {line}\n{real}")
    assert not wrong, "\n".join(("put these outputs into docs/command.md:", *wrong))


def test_every_command_is_shown() -> None:
    """A command has three places: its function, a panel of `--help`, and the page."""
    modules = [import_module(f"ftfile.tools.cli.{path.stem}") for path in CLI.glob("*_commands.py")]
    defined = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Command)}
    shown = {id(command) for commands in (*PANELS.values(), STORE_COMMANDS) for command in commands}
    missing = [command.name for key, command in defined.items() if key not in shown]
    assert missing == [], "put these commands into PANELS or STORE_COMMANDS of tools/cli/app.py"
    page = PAGE.read_text()
    missing = [name for name in examples() if f"`{name}" not in page and name]
    assert missing == [], "give these commands a row in docs/command.md"


def test_every_command_has_examples() -> None:
    assert [name for name, lines in examples().items() if not lines] == [], "give these commands examples in @command"
