"""A directory whose log is lost: every command exits with 4, and prints the same message as `status`."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import BatchGap
from ftfile.log.format import layout
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.cli.app import PANELS, STORE_COMMANDS
from tests.kit.parameters import parametrize
from tests.unit.tools.cli.running import run

if TYPE_CHECKING:
    from ftfile.tools.cli.command import Command

# The required arguments of a command, except the directory.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "show": ("0",),
    "diff": ("0",),
    "drop": ("--where", "month = '6'"),
    "delete": ("--where", "month = '6'"),
    "restore": ("--version", "0"),
    "get": ("a",),
    "write": (__file__, "--from", "csv"),
}
# These commands find and print the damage, or do not read the log.
NOT_REFUSED = {"status", "verify", "repair", "report", "source", "doctor", "migrate"}
COMMANDS = {command.name: command for panel in PANELS.values() for command in panel if command.name not in NOT_REFUSED}


def calls_of(command: Command) -> list[tuple[str, ...]]:
    """Return the words of a call, and of its dry run if the command has one. Neither call asks a question."""
    options = inspect.signature(command.function).parameters
    call = (command.name, *ARGUMENTS.get(command.name, ()))
    agreed = (*call, "--yes") if "yes" in options else call
    return [agreed, (*call, "--dry-run")] if "dry_run" in options else [agreed]


@pytest.fixture
def lost(out: str) -> str:
    shutil.rmtree(Path(out, layout.LOG))
    return out


@pytest.mark.slow
def test_every_command_says_so(lost: str) -> None:
    output = run("status", lost, code=4).stdout
    expected = "version 2, which '_ftfile/hints/_published' contains"
    assert expected in output
    for command, *options in (call for each in COMMANDS.values() for call in calls_of(each)):
        result = run(command, lost, *options, code=4)
        assert result.stdout == ""
        # A command that changes the directory gets the error from the log.
        assert "version 2" in result.stderr.splitlines()[-1], command
        assert "is corrupt: expected" in result.stderr, command
    assert "versions\tno readable version" in run("verify", lost, code=1).stdout


def test_also_without_hints(lost: str) -> None:
    shutil.rmtree(Path(lost, layout.META, "hints"))
    assert "no such directory" in run("ls", lost, code=4).stderr


@pytest.mark.parametrize("command", ["vacuum", "expire"])
def test_a_vacuum_without_hints_does_so_too(lost: str, command: str) -> None:
    shutil.rmtree(Path(lost, layout.META, "hints"))
    assert "no such directory" in run(command, lost, code=4).stderr


@pytest.mark.parametrize("option", ["--give-up", "--quarantine"])
def test_a_repair_says_that_it_knows_no_such_file(lost: str, option: str) -> None:
    assert "'nothing' is no" in run("repair", lost, option, "nothing", code=2).stderr


def test_a_batch_that_is_refused_does_not_hide_it(query: MicroBatch) -> None:
    for path in (layout.LOG, layout.HINTS):
        shutil.rmtree(Path(query.path, path))
    query.restart()
    with pytest.raises(BatchGap):
        query.run(3, [[]])
    assert "no such directory" in run("status", query.path, code=4).stdout


@parametrize("lost", [(layout.LOG,), (layout.LOG, layout.HINTS)], ids=["log", "log and hints"], quick=1)
def test_so_do_those_of_stores(store: str, lost: tuple[str, ...]) -> None:
    for path in lost:
        shutil.rmtree(Path(store, path))
    expected = "which '_ftfile/hints/_published' contains" if layout.HINTS not in lost else "found no such directory"
    for command, *options in (call for each in STORE_COMMANDS for call in calls_of(each)):
        result = run("kv", command, store, *options, code=4)
        assert result.stdout == ""
        assert expected in result.stderr, command


def test_nothing_was_committed_yet(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"})
    query.run(0, [[{"id": 1}]])
    for path in (layout.LOG, layout.META + "/hints"):
        shutil.rmtree(Path(query.path, path))
        Path(query.path, path).mkdir()
    assert len(run("ls", query.path).stdout.splitlines()) == 1
