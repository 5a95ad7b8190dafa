"""Changes of a directory or a store, which are planned, announced and confirmed."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import typer

from ftfile.core.errors import ConfigError
from ftfile.tools.cli.directory_options import DirectoryOptions
from ftfile.tools.cli.failures import USAGE
from ftfile.tools.cli.terminal import printable, progress_bar, put, say

DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print the planned changes, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Report: TypeAlias = Any  # the result of an operation's function, also of its dry run


@dataclass(frozen=True)
class Planned:
    """The option of a change that loses no data."""

    dry_run: DryRun = False

    def ask(self, question: str) -> None:
        """Ask nothing."""


@dataclass(frozen=True)
class Confirmed(Planned):
    """The options of a change that can lose data, so that a person must confirm it."""

    yes: Yes = False

    def ask(self, question: str) -> None:
        """Return if a person confirms; otherwise, end the command."""
        agree(question, yes=self.yes)


class MaintenanceCall:
    """A call of a function of the package that has a dry run.

    Args:
        function: such as `ftfile.compact`.
        place: the function's first argument, with the options that open it.
        requires_log: if the log of the directory is lost, a plan fails instead of finding nothing.
        arguments: of the function. None and an empty list mean that the option was not given.
    """

    def __init__(
        self,
        function: Callable[..., Report],
        place: DirectoryOptions,
        *,
        requires_log: bool = True,
        **arguments: object,
    ) -> None:
        self._function = function
        self._place = place
        self._requires_log = requires_log
        self._arguments: dict[str, object] = {}
        for name, value in arguments.items():
            if value not in (None, []):
                self._arguments[name] = value

    def plan(self) -> Report:
        """Return the report of a dry run.

        Raises:
            CorruptData: an argument names something that the directory lacks, because its log is lost.
            ConfigError: an argument is wrong.
        """
        try:
            return self._call(dry_run=True)
        except ConfigError:
            self._require_log()
            raise

    def complete(self, plan: Report, announcement: str, options: Planned, question: str = "") -> Report:
        """Return the plan of a dry run; otherwise announce the change, ask, and return the report of the call.

        A condition that uses the current time is executed with the time of the plan, because a person confirmed the
        plan.

        Args:
            plan: the report of the dry run.
            announcement: such as "deletes 3 files"; empty if the plan changes nothing.
            options: of the command.
            question: asked before data can be lost; empty if no data can be lost.

        Raises:
            CorruptData: the plan changes nothing, because the log of the directory is lost.
        """
        if not announcement:
            self._require_log()
        if options.dry_run:
            return plan
        asked = self._arguments.get("where")
        where = getattr(plan, "where", None) or asked
        if announcement:
            if where == asked:
                condition = ""
            else:
                condition = f", where {where}"
            say(f"This {announcement}{condition}")
            if question:
                options.ask(question)
        if where is None:
            return self._call(dry_run=False)
        return self._call(dry_run=False, where=where)

    def _require_log(self) -> None:
        if self._requires_log:
            self._place.require_log()

    def _call(self, **more: object) -> Report:
        arguments = {**self._place.access, **self._arguments, **more}
        with progress_bar(self._function.__name__) as progress:
            return self._function(self._place.path, progress=progress, **arguments)


def print_result(report: Report, verb: str, past: str, result: str) -> None:
    """Print the changes, or the changes that a dry run plans: "Merged 3 files", "Would merge 3 files"."""
    begin = past
    if report.dry_run:
        begin = f"Would {verb}"
    put(f"{begin} {result}")


def agree(question: str, *, yes: bool) -> None:
    """Return if a person confirms the loss of data, or used `--yes`; otherwise, end the command."""
    if yes:
        return
    if not is_watched():
        say("ftfile: this needs a confirmation, and stdin is not a terminal: give --yes. Nothing was changed")
        raise typer.Exit(USAGE)
    try:
        if typer.confirm(printable(question, "\n"), err=True):
            return
    except typer.Abort:
        raise KeyboardInterrupt from None
    say("Nothing was changed")
    raise typer.Exit(USAGE)


def is_watched() -> bool:
    """Return True if a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()
