"""Commands for typer, with their examples."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

_ACCESS = {"key_provider", "storage", "at_least_version"}  # shown last


@dataclass(frozen=True)
class Command:
    """A command as `--help` shows it.

    Attributes:
        name: of the command within its group.
        function: with one parameter for each argument and option.
        examples: shell lines; the text after two spaces and # is a comment.
    """

    name: str
    function: Callable[..., None]
    examples: tuple[str, ...]

    @property
    def epilog(self) -> str:
        """Return the examples as text for typer, which shows them below the options."""
        return epilog_of(self.examples)


def command(*examples: str) -> Callable[[Callable[..., None]], Command]:
    """Return a decorator that converts a function to a command with these examples."""

    def make_command(function: Callable[..., None]) -> Command:
        return Command(function.__name__, _without_groups(function), examples)

    return make_command


def epilog_of(examples: tuple[str, ...]) -> str:
    """Return examples in the markup of rich, with their comments dimmed."""
    return "\n".join(["[bold]Examples[/bold]", *map(_marked_up, examples)])


def _marked_up(line: str) -> str:
    text, hash_sign, comment = line.replace("[", r"\[").partition("  #")
    if hash_sign:
        return f"  {text}[dim]  #{comment}[/dim]"
    return f"  {text}"


def _is_access(parameter: inspect.Parameter) -> bool:
    return parameter.name in _ACCESS


def _without_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function with a parameter for each field of its dataclasses; typer does not support option groups."""
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    groups: dict[str, Any] = {}
    for parameter in parameters:
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation

    @functools.wraps(function)
    def ungrouped(**options: Any) -> None:  # noqa: ANN401 - of any option
        for name, group in groups.items():
            values = {field.name: options.pop(field.name) for field in fields(group)}
            options[name] = group(**values)
        function(**options)

    flat: list[inspect.Parameter] = []
    for parameter in parameters:
        if parameter.name in groups:
            flat += inspect.signature(groups[parameter.name]).parameters.values()
        else:
            flat.append(parameter)
    flat.sort(key=_is_access)
    keywords = []
    for parameter in flat:
        keywords.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    ungrouped.__signature__ = signature.replace(parameters=keywords)  # type: ignore[attr-defined]
    return ungrouped
