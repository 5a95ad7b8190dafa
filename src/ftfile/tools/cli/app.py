"""The command: its groups, in the order in which `--help` shows them, and the examples that it shows."""

import functools
import logging
from collections.abc import Callable
from typing import Annotated

import typer

from ftfile.core import __version__
from ftfile.tools.cli import look_commands as looking
from ftfile.tools.cli import migrate_commands as migrating
from ftfile.tools.cli import read_commands as reading
from ftfile.tools.cli import store_commands as stores
from ftfile.tools.cli.check_commands import doctor, report, source, verify
from ftfile.tools.cli.operation import command_of
from ftfile.tools.cli.operations import OPERATIONS
from ftfile.tools.cli.output import Commands, WarningPrinter
from ftfile.tools.cli.place import expand_groups

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "ftfile status /data/out  # is it stuck? which files are open or due?",
        "ftfile ls s3://bucket/out --json | jq .path",
        'ftfile cat /data/out --where "month = 7" --format csv > july.csv',
        "ftfile verify /data/out && echo whole",
        "ftfile COMMAND --help  # examples of each command",
    ),
    "status": (
        "ftfile status /data/out",
        "ftfile status /data/out --source /data/in  # a directory that its query follows",
        "ftfile status /data/out --json | jq '.open[] | select(.reason != \"\")'",
    ),
    "ls": (
        "ftfile ls /data/out",
        "ftfile ls /data/out --version 12",
        "ftfile ls hdfs://cluster/out --json | jq -r 'select(.batch_id == 7) | .path'",
    ),
    "history": ("ftfile history /data/out --limit 20", "ftfile history /data/out --json | jq '{version, rows}'"),
    "show": ("ftfile show /data/out 12", "ftfile show /data/out month=7/0000000003-0-0ef664b64a3b.json"),
    "diff": ("ftfile diff /data/out 3 12", "ftfile diff /data/out 2024-07-01T12:00:00Z --json | jq .rows_added"),
    "schema": ("ftfile schema /data/out", "ftfile schema /data/out --json | jq -r .ddl"),
    "report": ("ftfile report /data/out", "ftfile report s3://bucket/out -o out.html --no-verify"),
    "source": (
        "ftfile source /data/in --checkpoint /data/checkpoint",
        "ftfile source s3://bucket/in -o stateLocation=s3://bucket/state",
    ),
    "cat": (
        "ftfile cat /data/out",
        'ftfile cat /data/out --columns word,n --where "month >= 7 AND word IS NOT NULL"',
        "ftfile cat /data/out --version 12 --json | jq .word",
        "ftfile cat /data/out --timestamp 2024-07-01T12:00:00Z",
    ),
    "head": ("ftfile head /data/out", "ftfile head /data/out -n 3 --json"),
    "tail": ("ftfile tail /data/out -n 20", "ftfile tail -f /data/out --where \"level = 'ERROR'\""),
    "count": ("ftfile count /data/out", 'ftfile count /data/out --where "month >= 7" --version 12'),
    "verify": (
        "ftfile verify /data/out",
        "ftfile verify /data/out --full --threads 8",
        "ftfile verify /data/out --json",
    ),
    "doctor": ("ftfile doctor", "ftfile doctor s3://bucket/out --storage endpoint=http://localhost:9000"),
    "flush": ("ftfile flush /data/out --dry-run", "ftfile flush /data/out --due-only"),
    "compact": (
        "ftfile compact /data/out --dry-run",
        'ftfile compact /data/out --where "month = 7" --target 256MiB --commit-every 64',
    ),
    "export": ("ftfile export /data/out --to delta", "ftfile export /data/out --to iceberg"),
    "repair": (
        "ftfile repair /data/out --dry-run",
        "ftfile repair /data/out",
        "ftfile repair /data/out --give-up month=7/lost.parquet",
    ),
    "migrate": (
        "ftfile migrate /data/out --dry-run",
        "ftfile migrate /data/out --checkpoint /data/checkpoint --partition-by day=date",
        'ftfile migrate /data/in --from files --schema "id long, at timestamp" -o header=true',
        "ftfile migrate /data/out --undo",
    ),
    "vacuum": ("ftfile vacuum /data/out --dry-run", "ftfile vacuum /data/out --retention 36h --yes"),
    "expire": (
        "ftfile expire /data/out --keep-last 10 --dry-run",
        "ftfile expire /data/out --older-than 30d --keep-last 100 --yes",
    ),
    "delete": (
        'ftfile delete /data/out --where "id = 70" --dry-run',
        "ftfile delete /data/out --where \"name = 'x' AND month < 7\" --yes",
    ),
    "drop": (
        'ftfile drop /data/out --where "month < 7" --dry-run',
        "ftfile drop /data/out --where \"directoryTime < DATE '2024-07-01'\" --directory-pattern yyyy-MM-dd",
    ),
    "undo": ("ftfile undo /data/out --dry-run", "ftfile undo /data/out --yes"),
    "restore": (
        "ftfile restore /data/out --version 12 --dry-run",
        "ftfile restore /data/out --timestamp 2024-07-01T12:00:00Z --yes",
    ),
    "kv": ("ftfile kv stats /data/words", "ftfile kv get /data/words hello world"),
    "kv get": ("ftfile kv get /data/words hello world", "ftfile kv get /data/visits de,2024-07-01 --json"),
    "kv scan": ("ftfile kv scan /data/words --start h --end i", "ftfile kv scan /data/words -n 10 --columns word,n"),
    "kv stats": ("ftfile kv stats /data/words",),
    "kv verify": ("ftfile kv verify /data/words && echo whole",),
    "kv compact": ("ftfile kv compact /data/words --full",),
}


def examples_of(command: str) -> str:
    """Return the examples of a command, as typer shows them below its options."""
    lines = [_marked(line) for line in EXAMPLES[command]]
    return "\n".join(["[bold]Examples[/bold]", *lines])


def _marked(line: str) -> str:
    """Return an example with its comment dimmed; brackets are no markup."""
    text, hash_sign, comment = line.replace("[", r"\[").partition("  #")
    return f"  {text}[dim]  #{comment}[/dim]" if hash_sign else f"  {text}"


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
    # What these find, they print, with the remedy; each look at a damaged log would warn of it, too.
    logger.setLevel(logging.ERROR if ctx.invoked_subcommand in _PRINT_FINDINGS else logging.WARNING)
    logger.addHandler(printer := WarningPrinter())
    ctx.call_on_close(functools.partial(logger.removeHandler, printer))


_operation = {operation.function: command_of(operation) for operation in OPERATIONS}
_LOOK = (looking.status, looking.ls, looking.history, looking.show, reading.diff, reading.schema, report, source)
_CARE = (_operation["flush"], _operation["compact"], migrating.export, _operation["repair"], migrating.migrate)
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Inspect: these commands write nothing": _LOOK,
    "Read rows": (reading.cat, reading.head, reading.tail, reading.count),
    "Check": (verify, doctor),
    "Maintain: no row is lost": _CARE,
    "Remove or delete: these ask for confirmation": tuple(
        _operation[name] for name in ("vacuum", "expire", "drop", "delete", "restore", "undo")
    ),
}

for _panel, _functions in _PANELS.items():
    for _function in _functions:
        _name = _function.__name__
        app.command(_name, rich_help_panel=_panel, epilog=examples_of(_name))(expand_groups(_function))

_kv = typer.Typer(no_args_is_help=True, context_settings=_SETTINGS, epilog=examples_of("kv"))
_OF_STORES = (stores.get, stores.scan, stores.stats, stores.verify, _operation["kv.compact"])
for _function in _OF_STORES:
    _kv.command(_function.__name__, epilog=examples_of(f"kv {_function.__name__}"))(expand_groups(_function))
app.add_typer(_kv, name="kv", help="Inspect and maintain keyed stores.", rich_help_panel="Keyed stores")
