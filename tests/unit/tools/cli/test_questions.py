"""Every call in docs/questions.md runs and returns the answer to its question."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import StoreBatch
from tests.kit.files_run import FilesRun
from tests.unit.tools.cli.running import run
from tests.unit.tools.cli.test_page import write_data

if TYPE_CHECKING:
    from collections.abc import Iterator

STORAGE = "memory://night"  # no other test uses this storage
PAGE = Path(__file__).parents[4] / "docs/questions.md"
# A text in each answer, in the order of the page.
COMMANDS = {
    "ftfile status /data/out": "last batch",
    "ftfile status /data/rolled": "why it is open",
    "ftfile flush /data/rolled --dry-run": "Would finish about 1 file of 3 rows",
    "ftfile status /data/store": "compactions due\t0",
    "ftfile status /data/live": "1, for 3 min",
    "ftfile status /data/rolled --json": '"maxRecordsPerFile":',
    "ftfile source /data/in --checkpoint /data/checkpoint": "to be read\t1 file",
    "ftfile doctor /data/out": "Python",
    "ftfile verify /data/out --full": "result\twhole",
    "ftfile show /data/out FILE": "batches\t2\noffsets before",
    "ftfile show /data/out 1": "query\t00000000-0000-0000-0000-000000000001\nrun\trun-1\n",
    "ftfile diff /data/out 1 2": "2 added, 0 removed",
    "ftfile history /data/out": '{"batch":2}',
    "ftfile history /data/out --limit 20": "files",
    "ftfile history /data/out --json": '"write_seconds"',
    "ftfile undo /data/out --dry-run": "2 rows in 2 files are removed",
    'ftfile cat /data/out --timestamp "$(date -ud yesterday +%FT%TZ)"': "no version is as old as",
    "ftfile history /data/out --limit 1": '{"batch":2}',
    "ftfile vacuum /data/out --dry-run": "Would delete",
    "ftfile expire": "",
    "ftfile drop /data/out --where \"month = '7'\" --dry-run": "Would remove 3 rows in 3 files",
    "ftfile compact": "",
    "ftfile history": "",
    "ftfile verify": "",
    "ftfile vacuum": "",
    "ftfile flush /data/rolled": "Finished 1 file of 3 rows",
}
CALLS = {
    'ftfile.open("/data/out").dead_letters()': "generator",
    'ftfile.open("/data/out").follow(startingVersion=1)': "generator",
    'ftfile.open("/data/out").count(where="word = \'two\'")': "2",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create the directories of the page."""
    tmp_path = tmp_path_factory.mktemp("home")
    write_data(tmp_path / "spark", STORAGE)
    StoreBatch(f"{STORAGE}/store", {"word": "string"}, {"keyColumns": "word"}).run(0, [[{"word": "a"}]])
    options = {"fileFormat": "text", "checkpointLocation": str(tmp_path / "checkpoint")}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.log").write_text("one\n")
    FilesRun(str(tmp_path / "in"), {"value": "string"}, options).run()
    (tmp_path / "in/b.log").write_text("two\n")
    yield tmp_path
    MemoryFileSystem.drop("night")


def spans(beginning: str) -> set[str]:
    """Return the code on the page that begins with these words."""
    return {span for span in re.findall(r"`([^`\n]+)`", PAGE.read_text()) if span.startswith(beginning)}


def placed(text: str, home: Path) -> str:
    for name in ("in", "checkpoint"):
        text = text.replace(f"/data/{name}", str(home / name))
    return text.replace("/data/", f"{STORAGE}/")


def in_shell(word: str) -> str:
    """Return a word after a shell has replaced its command by the output."""
    if not word.startswith("$("):
        return word
    return subprocess.run(["bash", "-c", f"echo {word}"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.packages
@pytest.mark.slow
def test_commands(home: Path) -> None:
    assert spans("ftfile ") == COMMANDS.keys()
    newest = ftfile.open(f"{STORAGE}/out").files()[-1].path
    for command, expected in COMMANDS.items():
        words = [in_shell(word) for word in shlex.split(placed(command, home).replace("FILE", newest))]
        if len(words) == 2:  # the name of a command
            assert "Usage" in run(*words[1:], "--help").stdout
        else:
            is_too_early = expected.startswith("no version")  # the test has created the directory today
            assert expected in run(*words[1:], code=2 if is_too_early else 0).output, command


def test_calls(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spans("ftfile.open(") == CALLS.keys()
    for call, expected in CALLS.items():
        assert expected in str(eval(placed(call, home)))
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(placed(program, home), {})
    assert capsys.readouterr().out.startswith("1 ")
