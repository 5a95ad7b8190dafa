"""The table of operations: each has the arguments of its function, an example, and a question if it may lose data."""

from __future__ import annotations

import inspect
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.units import parse_size_bytes
from ftfile.testing.fs.memory import MemoryFileSystem, mounted
from ftfile.tools.cli.app import EXAMPLES
from ftfile.tools.cli.operations import OPERATIONS
from tests.unit.tools.cli.running import run
from tests.unit.tools.cli.test_interrupted import CASES, Case, write, write_and_drop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ftfile.tools.cli.operation import Operation

STATES = {**CASES, "undo": Case(write_and_drop, ("undo",), ("--yes",))}
LOSE_DATA = {"repair", "vacuum", "expire", "drop", "delete", "restore", "undo"}


@pytest.fixture
def memory() -> Iterator[str]:
    with mounted(MemoryFileSystem("operations")) as url:
        yield url
    MemoryFileSystem.drop("operations")


def runs_of(operation: Operation, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list to which each call of its function is added: True for a dry run."""
    function = attrgetter(operation.function)(ftfile)
    calls: list[bool] = []

    def counted(*arguments: object, dry_run: bool, **options: object) -> object:
        calls.append(dry_run)
        return function(*arguments, dry_run=dry_run, **options)

    monkeypatch.setattr(f"ftfile.{operation.function}", counted, raising=False)
    return calls


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.function)
class TestEach:
    def test_its_options_are_those_of_its_function(self, operation: Operation) -> None:
        shared = {"path", "dry_run", "progress", "key_provider", "storage", "at_least_version", "context"}
        parameters = inspect.signature(attrgetter(operation.function)(ftfile)).parameters
        assert parameters.keys() == shared | operation.options.keys()
        for name, option in operation.options.items():
            default = parse_size_bytes(option.default) if name == "target_bytes" else option.default
            assert default in (None, parameters[name].default), name

    def test_it_has_an_example_and_asks_if_it_may_lose_data(self, operation: Operation) -> None:
        assert EXAMPLES[operation.function.replace(".", " ")]
        assert bool(operation.question) == (operation.function in LOSE_DATA)
        assert bool(operation.question) == ("asks for confirmation" in operation.description)

    @pytest.mark.slow
    def test_it_is_planned_agreed_to_and_run(
        self, operation: Operation, memory: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        case = STATES[operation.function.replace(".", " ")]
        case.write(memory)
        calls = runs_of(operation, monkeypatch)
        options = [option for option in case.options if option != "--yes"]
        run(*case.command, memory, *options, "--dry-run")
        assert calls == [True]
        if operation.question:
            assert "--yes" in run(*case.command, memory, *options, code=2).stderr
            assert calls == [True, True]
        result = run(*case.command, memory, *case.options)
        assert calls[-2:] == [True, False]
        assert result.stderr.startswith("This ")


@pytest.mark.slow
def test_a_plan_without_changes_is_not_carried_out(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (repair,) = (operation for operation in OPERATIONS if operation.function == "repair")
    write(memory)
    calls = runs_of(repair, monkeypatch)
    assert run("repair", memory, "--full").stdout == "Nothing to repair\n"
    assert calls == [True]
