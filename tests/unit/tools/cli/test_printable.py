"""A terminal never interprets names and values that come from storage."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import ftfile
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.cli import terminal
from ftfile.tools.cli.terminal import printable, printable_json
from tests.kit.parameters import parametrize
from tests.unit.tools.cli.running import SOURCES, invoke

# A terminal's title and colour, DEL, an introducer of C1, a change of text direction, zero width, a lone surrogate.
HOSTILE = "\x1b]0;x\x07\x7f\x9b31m\u202e\u200b"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
COMMANDS = (
    ["ls"], ["ls", "--stats"], ["history"], ["show", "0"], ["diff", "0"], ["schema"], ["status"], ["cat"],
    ["cat", "--format", "table"], ["head"],
    ["verify"], ["verify", "--full"], ["repair", "--dry-run"], ["compact", "--dry-run"], ["doctor"],
)  # fmt: skip


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory with hostile columns, values and directory names; one of its files is missing."""
    path = tmp_path_factory.mktemp("printable") / f"out{HOSTILE}"
    columns = {f"a{HOSTILE}": "string", f"p{HOSTILE}": "string"}
    query = MicroBatch(str(path), columns, {"fileFormat": "json", "partitionBy": f"p{HOSTILE}"})
    for batch in range(2):
        query.run(batch, [[{f"a{HOSTILE}": HOSTILE, f"p{HOSTILE}": f"{HOSTILE}{batch}"}]])
    return str(path)


@parametrize("command", COMMANDS, ids=" ".join, quick=2)
@pytest.mark.parametrize("is_json", [False, True])
def test_commands(out: str, command: list[str], *, is_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ftfile.tools.cli.row_formats.is_terminal", lambda: True)
    result = invoke([command[0], out, *command[1:], *["--json"] * is_json])
    assert not isinstance(result.exception, Exception), repr(result.exception)
    assert result.output
    assert [*map(ascii, OBEYED.findall(result.output))] == []


def test_errors(out: str) -> None:
    for file in ftfile.open(out).files()[:1]:
        moved = Path(out, file.path).rename(Path(out).parent / "moved")
        try:
            for command in ("cat", "verify", "ls"):
                assert not OBEYED.search(invoke([command, out]).output)
        finally:
            moved.rename(Path(out, file.path))
    result = invoke(["cat", f"{out}{HOSTILE}"])
    assert result.exit_code
    assert not OBEYED.search(result.output)


def test_headings_fields_and_questions(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.heading(HOSTILE)
    terminal.print_fields([(HOSTILE, HOSTILE)])
    terminal.say(HOSTILE)
    terminal.put(f"{HOSTILE}\udc80", stderr=True)
    assert not OBEYED.search("".join(capsys.readouterr()))


def test_json_means_the_same() -> None:
    document = {HOSTILE: [HOSTILE, "\ud800", "日本語", "a\nb"]}
    text = printable_json(json.dumps(document, ensure_ascii=False, indent=2))
    assert json.loads(text) == document
    assert "日本語" in text
    assert not OBEYED.search(text)
    text.encode()


def test_what_is_kept() -> None:
    assert printable("日本語 é\n\t", "\n\t") == "日本語 é\n\t"
    assert printable("a\nb\u202e") == "a\\nb\\u202e"


@pytest.mark.slow
def test_commands_print_by_one_function() -> None:
    own = {"app.py", "failures.py", "output.py", "terminal.py"}
    calls = [
        f"{path.name}:{node.lineno}"
        for path in (SOURCES / "ftfile/tools/cli").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if path.name not in own and isinstance(node, ast.Call) and ast.unparse(node.func) in {"print", "typer.echo"}
    ]
    assert calls == [], "print with `terminal.put`, so that a terminal interprets no text that comes from storage"
