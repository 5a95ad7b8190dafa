"""A command that changes a directory or a store: it is planned, announced, agreed to, run and printed."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, Signature
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.tools.cli.check_commands import command_for
from ftfile.tools.cli.output import agree, print_json, progress_bar, put, say
from ftfile.tools.cli.place import DryRun, Json, Place, Yes

Report: TypeAlias = Any  # the result of an operation's function, or of its dry run
Arguments: TypeAlias = Mapping[str, Any]


class Option(NamedTuple):
    """An option of a command, which has the name of an argument."""

    annotation: Any  # as typer reads it
    default: Any = None  # None leaves the argument out


def option(kind: Any, *flags: str, default: Any = None, **settings: Any) -> Option:  # noqa: ANN401 - as typer has them
    """Return an option that one operation alone has."""
    return Option(Annotated[kind, typer.Option(*flags, **settings)], default)


class Operation:
    """A command that calls a function of the package; those of one class have the same report."""

    verbs: tuple[str, str, str]  # "This merges", "Would merge", "Merged": each before `words`
    changes: tuple[str, ...]  # fields of its report: if all are empty, there is nothing to do
    nothing: str = ""  # printed of a report without changes, which may be named in it; by default, its words
    question: str = ""  # asked before data may be lost

    def __init__(self, function: str, description: str, /, **options: Option) -> None:
        self.function = function  # in the package
        self.name = function.rpartition(".")[2]
        self.description = description
        self.options = options  # by the names of its arguments

    def words(self, report: Report) -> str:
        """Return the words behind the verb: files and rows that were changed, or would be."""
        raise NotImplementedError

    def has_changes(self, report: Report) -> bool:
        """Return True if there is something to do."""
        return any(getattr(report, name) for name in self.changes)

    def is_ready(self, plan: Report) -> bool:  # noqa: ARG002
        """Return True if a plan is carried out."""
        return True

    def is_asked(self, arguments: Arguments) -> bool:  # noqa: ARG002
        """Return True if the question is asked for these arguments."""
        return bool(self.question)

    def explain_nothing(self, place: Place, arguments: Arguments) -> None:  # noqa: ARG002
        """Raise an error if there is no plan, or none with changes, for a reason that the user does not expect."""
        place.require_log()

    def print(self, report: Report, path: str) -> None:  # noqa: ARG002
        """Print a report for people."""
        if self.nothing and not self.has_changes(report):
            put(self.nothing.format(report))
        else:
            put(f"{f'Would {self.verbs[1]}' if report.dry_run else self.verbs[2]} {self.words(report)}")

    def exit_code(self, report: Report, *, dry_run: bool) -> int:  # noqa: ARG002
        """Return the code with which the command ends."""
        return 0

    def carry_out(self, place: Place, arguments: Arguments, *, dry_run: bool, yes: bool, json: bool) -> None:
        """Plan, say what the plan is, ask where data may be lost, run, and print what was done."""
        run = partial(attrgetter(self.function)(ftfile), place.path, **place.access, **arguments)
        try:
            with progress_bar(self.name) as progress:
                report = run(dry_run=True, progress=progress)
        except ConfigError:
            self.explain_nothing(place, arguments)
            raise
        if not self.has_changes(report):
            self.explain_nothing(place, arguments)
        if not dry_run and self.is_ready(report):
            # Conditions on the clock are those of the plan, to which somebody agrees.
            where = getattr(report, "where", None) or arguments.get("where")
            if self.has_changes(report):
                differs = where != arguments.get("where")
                say(f"This {self.verbs[0]} {self.words(report)}{f', where {where}' if differs else ''}")
                if self.is_asked(arguments):
                    agree(self.question, yes=yes)
            with progress_bar(self.name) as progress:
                report = run(dry_run=False, progress=progress, **({} if where is None else {"where": where}))
        if json:
            print_json(report, partial(command_for, path=place.path))
        else:
            self.print(report, place.path)
        if code := self.exit_code(report, dry_run=dry_run):
            raise typer.Exit(code)


def command_of(operation: Operation) -> Callable[..., None]:
    """Return the function of a command as typer reads it: with the options of its operation, and those of all."""

    def command(place: Place, *, dry_run: bool, json: bool, yes: bool = False, **options: object) -> None:
        arguments = {name: value for name, value in options.items() if value not in (None, [])}
        operation.carry_out(place, arguments, dry_run=dry_run, yes=yes, json=json)

    asking = {"yes": Option(Yes, default=False)} if operation.question else {}
    shared = {"dry_run": Option(DryRun, default=False), **asking, "json": Option(Json, default=False)}
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in {**operation.options, **shared}.items()
    ]
    path = Parameter("place", Parameter.POSITIONAL_OR_KEYWORD, annotation=Place)
    command.__signature__ = Signature([path, *parameters])  # type: ignore[attr-defined]
    command.__name__, command.__doc__ = operation.name, operation.description
    return command
