"""The command: its groups, in the order in which `--help` shows them."""

import functools
import logging
from collections.abc import Callable
from typing import Annotated

import typer

from ftfile.cli import caring, looking, mending, migrating, reading, stores
from ftfile.cli.checking import doctor, report, source, verify
from ftfile.cli.display.output import WarningPrinter
from ftfile.cli.examples import examples_of
from ftfile.cli.exit_codes import Commands
from ftfile.cli.place import with_place
from ftfile.core.version import __version__

_PRINT_FINDINGS = {"doctor", "repair", "report", "status", "verify"}
_SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=Commands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=_SETTINGS,
    epilog=examples_of(""),
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
        print(f"ftfile {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    *,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print all that is logged, on stderr.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Look into directories of ftfile, care for them, and mend them."""
    logger = logging.getLogger("ftfile")
    ctx.call_on_close(functools.partial(logger.setLevel, logger.level))
    if verbose:
        logger.setLevel(logging.INFO)
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
        return
    # What these find, they print, with the remedy; each look at a damaged log would warn of it, too.
    logger.setLevel(logging.ERROR if ctx.invoked_subcommand in _PRINT_FINDINGS else logging.WARNING)
    logger.addHandler(printer := WarningPrinter())
    ctx.call_on_close(functools.partial(logger.removeHandler, printer))


_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Look: these write nothing": (looking.status, looking.ls, looking.history, looking.show, report, source),
    "Read rows": (reading.cat, reading.head, reading.tail),
    "Check": (verify, doctor),
    "Care: no row is lost": (caring.flush, caring.compact, caring.export, mending.repair, migrating.migrate),
    "Remove or delete: these ask before": (caring.vacuum, caring.expire, mending.drop, mending.restore),
}

for _panel, _functions in _PANELS.items():
    for _function in _functions:
        _name = _function.__name__
        app.command(_name, rich_help_panel=_panel, epilog=examples_of(_name))(with_place(_function))

_kv = typer.Typer(no_args_is_help=True, context_settings=_SETTINGS, epilog=examples_of("kv"))
_OF_STORES: tuple[Callable[..., None], ...] = (stores.get, stores.scan, stores.stats, stores.verify, stores.compact)
for _function in _OF_STORES:
    _kv.command(_function.__name__, epilog=examples_of(f"kv {_function.__name__}"))(with_place(_function))
app.add_typer(_kv, name="kv", help="Look into keyed stores, and care for them.", rich_help_panel="Keyed stores")
