"""Arguments and options that commands share, and what they are turned into."""

from typing import TYPE_CHECKING, Annotated

import typer

from ftfile.core.errors import ConfigError
from ftfile.reporting.commands import PATH

if TYPE_CHECKING:
    from ftfile.source.directory import Directory

_ACCESS = "Access"


def note_path(ctx: typer.Context, path: str | None) -> str | None:
    """Return the path of a command; errors then name commands for it."""
    ctx.meta[PATH] = path or PATH
    return path


Path = Annotated[
    str,
    typer.Argument(
        metavar=PATH, help="The directory: a local path, or a URL such as s3://bucket/out.", callback=note_path
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON; its fields are those of the Python function.")]
KeyProvider = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Where the keys of an encrypted directory are, as in the option keyProvider.",
        rich_help_panel=_ACCESS,
    ),
]
Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        "-S",
        metavar="NAME=VALUE",
        help="A setting of the file system, as the option storage.NAME; may be repeated.",
        rich_help_panel=_ACCESS,
    ),
]
Version = Annotated[int | None, typer.Option(metavar="N", help="Of this version; by default the newest one.")]
Timestamp = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of the version that was the newest then, such as 2024-07-01T12:00:00Z."),
]
Columns = Annotated[str | None, typer.Option("--columns", "-c", metavar="A,B", help="These columns, in this order.")]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Of the rows for which this is true, such as \"month >= 7 AND city IN ('a', 'b')\".",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would be done, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Threads = Annotated[int | None, typer.Option(metavar="N", help="By default one for each core.")]


def settings_of(storage: list[str] | None, prefix: str = "storage.") -> dict[str, str] | None:
    """Return settings given as `name=value`, whose names may begin with `prefix`; ConfigError for one without `=`."""
    if not storage:
        return None
    found = {}
    for text in storage:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"{text!r}: it takes NAME=VALUE, such as endpoint=http://localhost:9000")
        found[name.removeprefix(prefix)] = value
    return found


def version_of(directory: "Directory", version: int | None, timestamp: str | None) -> int | None:
    """Return the version of a number, or of a time; None for the newest; ConfigError for both, or for no version."""
    if timestamp is None:
        return version
    if version is not None:
        raise ConfigError("--version and --timestamp both choose a version: give one of them")
    return directory.version_at(timestamp)


def columns_of(text: str | None) -> list[str] | None:
    """Return the names in a text with commas between, None for all; ConfigError if there is none in it."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError("--columns names no column: give names with commas between")
    return names
