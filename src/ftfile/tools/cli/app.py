"""The program: its commands in groups, in the order of `--help`."""

import functools
import itertools
import logging
from typing import Annotated

import typer

from ftfile.core import __version__
from ftfile.tools.cli import check_commands as checking
from ftfile.tools.cli import inspect_commands as inspecting
from ftfile.tools.cli import maintain_commands as maintaining
from ftfile.tools.cli import read_commands as reading
from ftfile.tools.cli import remove_commands as removing
from ftfile.tools.cli import store_commands as stores
from ftfile.tools.cli import write_commands as writing
from ftfile.tools.cli.command import Command, epilog_of
from ftfile.tools.cli.failures import Commands, WarningPrinter

_EXAMPLES = (
    "ftfile status /data/out  # is it stuck? which files are open or due?",
    "ftfile ls s3://bucket/out --json | jq .path",
    'ftfile cat /data/out --where "month = 7" --format csv > july.csv',
    "ftfile verify /data/out && echo whole",
    "ftfile COMMAND --help  # examples of each command",
)
_STORE_EXAMPLES = ("ftfile kv stats /data/words", "ftfile kv get /data/words hello world")
_PRINT_FINDINGS = {"doctor", "repair", "report", "status", "verify"}
_SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=_SETTINGS,
    epilog=epilog_of(_EXAMPLES),
)


def _print_version(value: bool) -> None:  # noqa: FBT001 - as typer calls it
    if value:
        print(f"ftfile {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    *,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all log messages on stderr.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Inspect, maintain and repair ftfile directories."""
    logger = logging.getLogger("ftfile")
    ctx.call_on_close(functools.partial(logger.setLevel, logger.level))
    if verbose:
        logger.setLevel(logging.INFO)
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
        return
    # These commands print findings with their remedies. Each read of a damaged log would also log a warning.
    logger.setLevel(logging.ERROR if ctx.invoked_subcommand in _PRINT_FINDINGS else logging.WARNING)
    logger.addHandler(printer := WarningPrinter())
    ctx.call_on_close(functools.partial(logger.removeHandler, printer))


PANELS: dict[str, tuple[Command, ...]] = {
    "Inspect: these commands write nothing": (
        inspecting.status,
        inspecting.ls,
        inspecting.history,
        inspecting.show,
        inspecting.diff,
        inspecting.schema,
        inspecting.report,
        inspecting.source,
    ),
    "Write rows": (writing.write,),
    "Read rows": (reading.cat, reading.head, reading.tail, reading.count),
    "Check": (checking.verify, checking.doctor),
    "Maintain: no row is lost": (
        maintaining.flush,
        maintaining.compact,
        maintaining.export,
        maintaining.repair,
        maintaining.migrate,
    ),
    "Remove or delete: these ask for confirmation": (
        removing.vacuum,
        removing.expire,
        removing.drop,
        removing.delete,
        removing.restore,
        removing.undo,
    ),
}
STORE_COMMANDS = (stores.get, stores.scan, stores.stats, stores.verify, stores.compact)

for _panel, _commands in PANELS.items():
    for _command in _commands:
        app.command(_command.name, rich_help_panel=_panel, epilog=_command.epilog)(_command.function)

_kv = typer.Typer(no_args_is_help=True, context_settings=_SETTINGS, epilog=epilog_of(_STORE_EXAMPLES))
for _command in STORE_COMMANDS:
    _kv.command(_command.name, epilog=_command.epilog)(_command.function)
app.add_typer(_kv, name="kv", help="Inspect and maintain keyed stores.", rich_help_panel="Keyed stores")


def examples() -> dict[str, tuple[str, ...]]:
    """Return the examples of the program, of the group `kv` and of each command, by name."""
    texts = {"": _EXAMPLES, "kv": _STORE_EXAMPLES}
    for command in itertools.chain.from_iterable(PANELS.values()):
        texts[command.name] = command.examples
    for command in STORE_COMMANDS:
        texts[f"kv {command.name}"] = command.examples
    return texts
