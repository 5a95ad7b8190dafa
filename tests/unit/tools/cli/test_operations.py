"""The commands that change a directory: each has the arguments of its function, and a question if it may lose data."""

from __future__ import annotations

import inspect
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.units import parse_size_bytes
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.tools.cli.app import PANELS, STORE_COMMANDS
from tests.unit.tools.cli.running import run
from tests.unit.tools.cli.test_interrupted import CASES, Case, write, write_and_drop

if TYPE_CHECKING:
    from collections.abc import Iterator

STATES = {**CASES, "undo": Case(write_and_drop, ("undo",), ("--yes",))}
LOSE_DATA = {"repair", "vacuum", "expire", "drop", "delete", "restore", "undo"}
COMMANDS = {command.name: command for panel in PANELS.values() for command in panel}
COMMANDS |= {f"kv {command.name}": command for command in STORE_COMMANDS}
# The arguments of these functions have other names.
OTHERS = {"export", "migrate"}
OPERATIONS = sorted(
    name
    for name, command in COMMANDS.items()
    if "dry_run" in inspect.signature(command.function).parameters and name not in OTHERS
)


@pytest.fixture
def memory() -> Iterator[str]:
    with mounted(MemoryFileSystem("operations")) as url:
        yield url
    MemoryFileSystem.drop("operations")


def function_of(name: str) -> str:
    return name.replace(" ", ".")


def runs_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list with an entry for each call of the command's function: True for a dry run."""
    function = attrgetter(function_of(name))(ftfile)
    calls: list[bool] = []

    def counted(*arguments: object, dry_run: bool, **options: object) -> object:
        calls.append(dry_run)
        return function(*arguments, dry_run=dry_run, **options)

    monkeypatch.setattr(f"ftfile.{function_of(name)}", counted, raising=False)
    return calls


def test_they_are_all() -> None:
    assert {*OPERATIONS} == {"flush", "compact", "kv compact", *LOSE_DATA}


@pytest.mark.parametrize("name", OPERATIONS)
class TestEach:
    def test_its_options_are_those_of_its_function(self, name: str) -> None:
        of_python = {"path", "dry_run", "progress", "key_provider", "storage", "at_least_version", "context"}
        of_command = {"path", "dry_run", "yes", "json", "key_provider", "storage", "at_least_version"}
        parameters = inspect.signature(attrgetter(function_of(name))(ftfile)).parameters
        options = inspect.signature(COMMANDS[name].function).parameters
        assert parameters.keys() - of_python == options.keys() - of_command
        for option in options.keys() - of_command:
            default = options[option].default
            default = parse_size_bytes(default) if option == "target_bytes" else default
            assert default in (None, parameters[option].default), option

    def test_it_asks_if_it_may_lose_data(self, name: str) -> None:
        function = COMMANDS[name].function
        may_ask = "yes" in inspect.signature(function).parameters
        assert may_ask == (name in LOSE_DATA) == ("asks for confirmation" in " ".join((function.__doc__ or "").split()))

    @pytest.mark.slow
    def test_it_is_planned_agreed_to_and_run(self, name: str, memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
        case = STATES[name]
        case.write(memory)
        calls = runs_of(name, monkeypatch)
        options = [option for option in case.options if option != "--yes"]
        run(*case.command, memory, *options, "--dry-run")
        assert calls == [True]
        if name in LOSE_DATA:
            assert "--yes" in run(*case.command, memory, *options, code=2).stderr
            assert calls == [True, True]
        result = run(*case.command, memory, *case.options)
        assert calls[-2:] == [True, False]
        assert result.stderr.startswith("This ")


@pytest.mark.slow
def test_a_plan_without_changes_is_not_carried_out(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(memory)
    calls = runs_of("repair", monkeypatch)
    assert run("repair", memory, "--full").stdout == "Nothing to repair\n"
    assert calls == [True]
