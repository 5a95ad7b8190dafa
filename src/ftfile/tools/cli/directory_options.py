"""The directory of a command, the options that open it, and other parameters that several commands share.

If the log is lost, commands report it and exit with `DAMAGED`, while Python's functions find nothing.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ftfile.core.context import absolute_path
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.remedies import PATH

if TYPE_CHECKING:
    from ftfile.operate.open_directory import OpenedDirectory
    from ftfile.read.directory import Directory


_ACCESS = "Access"


def note_path(ctx: typer.Context, path: str | None) -> str | None:
    """Return the path of a command, and store it so that errors can name commands for it."""
    ctx.meta[PATH] = path or PATH
    return path


Path = Annotated[
    str,
    typer.Argument(
        metavar=PATH, help="The directory: a local path, or a URL such as s3://bucket/out.", callback=note_path
    ),
]
KeyProvider = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="The source of the keys of an encrypted directory; the same as the option keyProvider.",
        rich_help_panel=_ACCESS,
    ),
]
Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        "-S",
        metavar="NAME=VALUE",
        help="A setting of the file system; the same as the option storage.NAME. May be repeated.",
        rich_help_panel=_ACCESS,
    ),
]
Version = Annotated[int | None, typer.Option(metavar="N", help="Read this version; by default the newest one.")]
Timestamp = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Read the version that was newest at this time, such as 2024-07-01T12:00:00Z."),
]
AtLeastVersion = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Fail if the newest version is before this known version.",
        rich_help_panel=_ACCESS,
    ),
]
Columns = Annotated[
    str | None, typer.Option("--columns", "-c", metavar="A,B", help="Print only these columns, in this order.")
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Only rows that match this condition, such as \"month >= 7 AND city IN ('a', 'b')\".",
    ),
]
Code = Annotated[
    list[str] | None, typer.Option(metavar="MODULE:NAME", help="Code of a query that may be imported. May be repeated.")
]
Merge = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="The same as the option merge of writers: your class that merges values."),
]
Threads = Annotated[int | None, typer.Option(metavar="N", help="Number of threads; by default one for each core.")]


def settings_of(storage: list[str] | None, prefix: str = "storage.") -> dict[str, str] | None:
    """Return settings given as `name=value`, without the `prefix` of names; raises `ConfigError` for other texts."""
    if not storage:
        return None
    settings = {}
    for text in storage:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"{text!r}: it must be NAME=VALUE, such as endpoint=http://localhost:9000")
        settings[name.removeprefix(prefix)] = value
    return settings


def version_of(directory: "Directory", version: int | None, timestamp: str | None) -> int | None:
    """Return the version of a number or a time; None for the newest. `ConfigError` for both, or if it is missing."""
    if timestamp is None:
        return version
    if version is not None:
        raise ConfigError("--version and --timestamp both select a version: give only one of them")
    return directory.version_at(timestamp)


def columns_of(text: str | None) -> list[str] | None:
    """Return the names in a comma-separated text; None for all columns. `ConfigError` if the text contains no names."""
    if text is None:
        return None
    names = list(filter(None, map(str.strip, text.split(","))))
    if not names:
        raise ConfigError("--columns names no column: give names separated by commas")
    return names


class RowsOf(NamedTuple):
    """The directory, or one of its files, from which a command reads rows."""

    directory: "OpenedDirectory"
    file: str | None  # path in the directory; None for all files


@dataclass(frozen=True)
class DirectoryOptions:
    """The directory that a command names, and the options that open it."""

    path: Path
    key_provider: KeyProvider = None
    storage: Storage = None
    at_least_version: AtLeastVersion = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", absolute_path(self.path))

    @property
    def access(self) -> dict[str, Any]:
        """Return the arguments with which functions open the directory."""
        storage = settings_of(self.storage)
        return {"key_provider": self.key_provider, "storage": storage, "at_least_version": self.at_least_version}

    def open(self) -> "OpenedDirectory":
        """Return the directory of files; raises `ConfigError` for another path, and the errors of `open_any`."""
        directory = self.open_any()
        directory.require_files()
        return directory

    def open_any(self) -> "OpenedDirectory":
        """Return the directory of files, or the store, from its log; raises `ConfigError` if the path is neither.

        Raises:
            CorruptData: there were commits, and none can be read; contains the finding of `status`.
        """
        from ftfile.core.arguments import Access
        from ftfile.operate.open_directory import OpenedDirectory

        directory = OpenedDirectory(self.path, Access(**self.access))
        if directory.version() < 0:
            for finding in directory.status(lag=False).findings:
                if finding.severity == "error":
                    raise CorruptData(finding.path, finding.expected, finding.actual, finding.remedy)
        return directory

    def open_rows(self) -> RowsOf:
        """Return the directory or the store; for the path of a finished file, its directory and the file.

        Raises `ConfigError` for any other path.
        """
        try:
            return RowsOf(self.open_any(), None)
        except ConfigError:
            from ftfile.core.context import SYSTEM
            from ftfile.log.directory import directory_above
            from ftfile.storage.paths import parse
            from ftfile.storage.registry import normalise

            url = normalise(self.path)
            above = directory_above(url, settings_of(self.storage), SYSTEM)
            if above is None:
                raise
            file = parse(url).path[len(parse(above).path) :].strip("/")
            return RowsOf(replace(self, path=above).open(), file)

    def require_log(self) -> None:
        """Raise `CorruptData` if the directory has lost its log, so that a command found nothing."""
        with contextlib.suppress(ConfigError):  # the path is a store, which has a log
            self.open()

    @contextlib.contextmanager
    def requiring_log(self) -> Iterator[None]:
        """Raise `CorruptData` if the block fails with `ConfigError` because the directory has lost its log."""
        try:
            yield
        except ConfigError:
            self.require_log()
            raise
