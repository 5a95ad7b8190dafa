"""Remedies: the same call in Python and as a command, and the texts that contain remedies."""

import ast
import copy
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import ftfile
from ftfile.core.remedies import Advice, Argument, Remedy, Wording, command_in, in_commands, join_texts, uncapitalise
from ftfile.read.directory import Directory
from ftfile.tools.cli.app import app

SOURCE = Path(ftfile.__file__).parent
# `Wording` contains both texts of a remedy that is not exactly one call.
CALL = re.compile(r"ftfile\.(?!spark\b)[\w.]+\(path[,)]")


@pytest.mark.parametrize(
    ("remedy", "python", "command"),
    [
        (Remedy("flush"), "ftfile.flush(path)", "ftfile flush PATH"),
        (Remedy("kv.compact"), "ftfile.kv.compact(path)", "ftfile kv compact PATH"),
        (Remedy("history"), "ftfile.open(path).history()", "ftfile history PATH"),
        (Remedy("dead_letters"), "ftfile.open(path).dead_letters()", None),
        (Remedy("undo_migration"), "ftfile.undo_migration(path)", "ftfile migrate PATH --undo"),
        (Remedy("repair", dry_run=False), "ftfile.repair(path, dry_run=False)", "ftfile repair PATH"),
        (Remedy("repair", dry_run=True), "ftfile.repair(path, dry_run=True)", "ftfile repair PATH --dry-run"),
        (
            Remedy("repair", accept_lost_records=True, dry_run=False),
            "ftfile.repair(path, accept_lost_records=True, dry_run=False)",
            "ftfile repair PATH --accept-lost-records",
        ),
        (
            Remedy("repair", give_up=["a b", "x]"], dry_run=False),
            "ftfile.repair(path, give_up=['a b', 'x]'], dry_run=False)",
            "ftfile repair PATH --give-up 'a b' --give-up 'x]'",
        ),
        (
            Remedy("repair", quarantine=[...], dry_run=False),
            "ftfile.repair(path, quarantine=[…], dry_run=False)",
            "ftfile repair PATH --quarantine FILE",
        ),
    ],
)
def test_a_remedy_is_a_call_and_a_command(remedy: Remedy, python: str, command: str | None) -> None:
    advice = Advice("Now: ", remedy, ".")
    assert (str(advice), remedy.in_python()) == (f"Now: {python}.", python)
    assert command_in(advice, "PATH") == command
    assert in_commands(advice) == f"Now: {f'`{command}`' if command else python}."


def test_paths_are_quoted_for_a_shell() -> None:
    assert Remedy("flush").command("/it's here") == """ftfile flush '/it'"'"'s here'"""


@pytest.mark.parametrize(
    ("argument", "python", "option"),
    [
        (Argument("give_up"), "give_up", "--give-up"),
        (Argument("version", 7), "version=7", "--version 7"),
        (Argument("where", None), "where=None", "--where None"),
        (Argument("full", value=True), "full=True", "--full"),
        (Argument("from_", "spark"), "from_='spark'", "--from spark"),
        (Argument("target_bytes", 0), "target_bytes=0", "--target 0"),
        (Argument("options", {"timeZone": "UTC"}), "options={'timeZone': 'UTC'}", "--option timeZone=UTC"),
        (
            Argument("partition_by", {"a b": "int", "c": "date"}),
            "partition_by={'a b': 'int', 'c': 'date'}",
            "--partition-by 'a b=int' --partition-by c=date",
        ),
        (Wording("sources=[…]", "--source PATH"), "sources=[…]", "--source PATH"),
    ],
)
def test_arguments_are_options_of_a_command(argument: Argument | Wording, python: str, option: str) -> None:
    assert (str(Advice(argument)), in_commands(Advice(argument))) == (python, option)


def test_an_advice_keeps_its_remedies() -> None:
    flush = Advice("Run ", Remedy("flush"))
    whole = Advice("First: ", uncapitalise(flush), ". ", join_texts("; ", ["a", flush]))
    assert whole == "First: run ftfile.flush(path). a; Run ftfile.flush(path)"
    assert whole.in_commands("x") == "First: run `ftfile flush x`. a; Run `ftfile flush x`"
    assert whole.remedies == (Remedy("flush"), Remedy("flush"))


def test_an_advice_can_be_sent_and_copied() -> None:
    advice = Advice("Run ", Remedy("repair", give_up=["a"]), " with ", Argument("full"), Wording("a", "b"))
    for other in (pickle.loads(pickle.dumps(advice)), copy.deepcopy(advice)):
        assert (other, other.parts) == (advice, advice.parts)


def test_a_plain_text_has_no_remedy() -> None:
    assert (in_commands("Run ftfile.flush(path)"), command_in("Run ftfile.flush(path)", "x")) == (
        "Run ftfile.flush(path)",
        None,
    )
    assert uncapitalise("Run") == "run"


def test_errors_carry_their_remedies() -> None:
    remedy = Remedy("repair", dry_run=False)
    raised = [
        ftfile.errors.ConfigError(Advice("lost: ", remedy)),
        ftfile.errors.CorruptData("p", "a", "b", Advice("Run ", remedy)),
        ftfile.errors.Unavailable("read", "p", Advice("away: ", remedy)),
        ftfile.errors.StillOpen(["one", Advice("two: ", remedy)]),
        ftfile.errors.HistoryGone("gone", Advice("Run ", remedy)),
    ]
    for error in raised:
        copied = pickle.loads(pickle.dumps(error))
        assert copied.remedies == error.remedies == (remedy,)
        assert copied.in_commands("x").endswith("`ftfile repair x`")
        assert str(error).endswith("ftfile.repair(path, dry_run=False)")


def test_errors_and_commands_have_no_credentials() -> None:
    error = ftfile.errors.ConfigError(Advice("token=secret: ", Remedy("flush")))
    assert "secret" not in f"{error} {error.in_commands()}"


def remedies_in_source() -> Iterator[tuple[str, Remedy]]:
    """Yield the remedies with constant arguments, and their places. Other arguments become `...`."""
    for path in sorted(set(SOURCE.rglob("*.py")) - {SOURCE / "core" / "remedies.py"}):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Remedy":
                (name,) = node.args
                assert isinstance(name, ast.Constant), f"{path}:{node.lineno}: name the call by a constant"
                call = str(name.value)
                arguments = {
                    str(item.arg): getattr(item.value, "value", "all" if isinstance(item.value, ast.Name) else [...])
                    for item in node.keywords
                }
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", Remedy(call, **arguments)


def test_every_remedy_can_be_called_and_run() -> None:
    remedies = list(remedies_in_source())
    assert len(remedies) > 40
    group: Any = typer.main.get_command(app)
    for place, remedy in remedies:
        function: Any = ftfile
        for name in remedy.call.split("."):
            function = getattr(function, name, None) or getattr(Directory, name, None)
        names = [argument.name for argument in remedy.arguments]
        assert function is not None, f"{place}: there is no ftfile.{remedy.call}"
        assert set(names) <= set(inspect.signature(function).parameters), place
        command = remedy.command("PATH")
        if command is None:
            continue
        _, *words = command.split(" PATH")[0].split()
        entry = group
        for word in words:
            entry = entry.commands[word]
        options = {option for parameter in entry.params for option in parameter.opts}
        assert {word for word in command.split() if word.startswith("--")} <= options, place


def test_calls_in_texts_are_remedies() -> None:
    """A text with a Python call would reach users of the command unchanged. Commands show no texts of ftfile.spark."""
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[:2] in {("core", "remedies.py"), ("core", "options")}:
            continue
        tree = ast.parse(path.read_text())
        skipped = {id(node) for parent in ast.walk(tree) for node in _docstring_or_wording(parent)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                wrong += [f"{path}:{node.lineno}: {call}" for call in CALL.findall(node.value)]
    assert [place for place in wrong if "/ftfile/spark/" not in place] == [], (
        "write these calls as a Remedy or a Wording"
    )


def _docstring_or_wording(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and node.body:
        return [node.body[0].value] if isinstance(node.body[0], ast.Expr) else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Wording":
        return node.args
    return []
