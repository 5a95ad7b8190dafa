"""Texts that contain calls of ftfile as values, shown as Python or as commands of a shell."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("PATH", "Advice", "Argument", "Remedy", "Wording", "command_in", "in_commands", "join_texts", "uncapitalise")

# Stands in commands for a path that is not known.
PATH = "PATH"
# Methods of an opened directory.
_METHODS = frozenset({"dead_letters", "history"})
_COMMANDS = {"source_status": "source", "undo_migration": "migrate"}
_OPTIONS = {"file_format": "format", "options": "option", "target_bytes": "target"}
# Calls that have no command.
_ONLY_PYTHON = frozenset({"dead_letters"})
# Calls only report by default; commands change data by default.
_DEFAULT_OF_COMMANDS = ("dry_run", False)


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call, shown as `name=value` or as `--name value`.

    Attributes:
        name: the name in Python.
        value: an Ellipsis for no value, and within a list for any file.
    """

    name: str
    value: object = ...

    def in_python(self) -> str:
        """Return the name, and the value if there is one."""
        if self.value is Ellipsis:
            return self.name
        return f"{self.name}={_in_python(self.value)}"

    def in_command(self, _path: str = PATH) -> str:
        """Return the option, and its value if there is one."""
        name = _OPTIONS.get(self.name, self.name)
        option = f"--{name.strip('_').replace('_', '-')}"
        if self.value is Ellipsis or self.value is True:
            return option
        if isinstance(self.value, list | tuple):
            return " ".join(f"{option} {_in_command(item)}" for item in self.value)
        if isinstance(self.value, Mapping):
            return " ".join(f"{option} {_in_command(f'{key}={value}')}" for key, value in self.value.items())
        return f"{option} {_in_command(self.value)}"


@dataclass(frozen=True, slots=True, init=False)
class Remedy:
    """A call of ftfile for a path, such as `ftfile.repair(path, dry_run=False)`.

    Attributes:
        call: the name of the function below `ftfile`, such as `kv.compact`, or of a method of `ftfile.open`.
        arguments: the arguments after the path.
    """

    call: str
    arguments: tuple[Argument, ...]

    def __init__(self, call: str, **arguments: object) -> None:
        object.__setattr__(self, "call", call)
        object.__setattr__(self, "arguments", tuple(Argument(*item) for item in arguments.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return _remedy, (self.call, {argument.name: argument.value for argument in self.arguments})

    def in_python(self) -> str:
        """Return the call, with the variable `path` for the path."""
        if self.call in _METHODS:
            return f"ftfile.open(path).{self.call}()"
        return f"ftfile.{self.call}({', '.join(['path', *(argument.in_python() for argument in self.arguments)])})"

    def command(self, path: str) -> str | None:
        """Return the command for a path, without backticks; None if the call has no command."""
        if self.call in _ONLY_PYTHON:
            return None
        words = ["ftfile", *_COMMANDS.get(self.call, self.call).split("."), _in_command(path)]
        if self.call == "undo_migration":
            words.append("--undo")
        shown = []
        for item in self.arguments:
            if (item.name, item.value) != _DEFAULT_OF_COMMANDS:
                shown.append(item)
        return " ".join([*words, *(argument.in_command() for argument in shown)])

    def in_command(self, path: str) -> str:
        """Return the command for a path between backticks; the call if it has no command."""
        command = self.command(path)
        if command is None:
            return self.in_python()
        return f"`{command}`"


@dataclass(frozen=True, slots=True)
class Wording:
    """Two texts: one for users of Python, and one for users of the command."""

    python: str
    shell: str

    def in_python(self) -> str:
        """Return the text for users of Python."""
        return self.python

    def in_command(self, path: str) -> str:
        """Return the text for users of the command, with the path in place of each PATH."""
        return self.shell.replace(PATH, _in_command(path))


_Part: TypeAlias = str | Argument | Remedy | Wording


class Advice(str):
    """A text made of parts; as a `str`, its remedies and arguments are Python.

    Operations of `str`, such as `+` and f-strings, return a plain text in Python. To keep the parts, build another
    `Advice` with this one as a part.
    """

    __slots__ = ("parts",)
    parts: tuple[_Part, ...]

    def __new__(cls, *parts: _Part) -> Advice:  # noqa: PYI034 - typing.Self comes with Python 3.11
        """Join parts; the parts of an advice become parts of this one."""
        flat: list[_Part] = []
        for part in parts:
            if isinstance(part, Advice):
                flat += part.parts
            else:
                flat.append(part)
        self = super().__new__(cls, "".join(part if isinstance(part, str) else part.in_python() for part in flat))
        self.parts = tuple(flat)
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return Advice, self.parts

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """Return the calls in the text, in order."""
        return tuple(part for part in self.parts if isinstance(part, Remedy))

    def in_commands(self, path: str = PATH) -> str:
        """Return the text in which calls are commands for a path, and arguments are options."""
        return "".join(part if isinstance(part, str) else part.in_command(path) for part in self.parts)


def in_commands(text: str, path: str = PATH) -> str:
    """Return a text for users of the command; a text that is not an `Advice` is returned unchanged."""
    if isinstance(text, Advice):
        return text.in_commands(path)
    return text


def command_in(text: str, path: str) -> str | None:
    """Return the command of the first remedy in a text; None if there is no command."""
    if isinstance(text, Advice):
        remedies = text.remedies
    else:
        remedies = ()
    if remedies:
        return remedies[0].command(path)
    return None


def join_texts(separator: str, texts: Iterable[str]) -> Advice:
    """Join texts with a separator between them, like `str.join`."""
    parts: list[str] = []
    for text in texts:
        if parts:
            parts.append(separator)
        parts.append(text)
    return Advice(*parts)


def uncapitalise(text: str) -> Advice:
    """Return a text that begins with a small letter."""
    parts: list[_Part] = list(Advice(text).parts)
    if isinstance(parts[0], str):
        parts[0] = parts[0][:1].lower() + parts[0][1:]
    return Advice(*parts)


def _remedy(call: str, arguments: dict[str, object]) -> Remedy:
    return Remedy(call, **arguments)


def _in_python(value: object) -> str:
    if value is Ellipsis:
        return "…"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_python, value))}]"
    return repr(value)


def _in_command(value: object) -> str:
    if value is Ellipsis:
        return "FILE"
    text = str(value)
    if text == PATH:
        return text
    return shlex.quote(text)
