"""The command `write`, which writes the rows of files of other programs."""

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from ftfile.core.errors import ConfigError
from ftfile.core.units import count_text
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import DirectoryOptions, Threads, settings_of
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.terminal import progress_bar, put

if TYPE_CHECKING:
    from ftfile.tools.load.write_files import WriteReport


InputFormat: TypeAlias = Literal["parquet", "orc", "avro", "arrow", "csv", "json"]
Mode: TypeAlias = Literal["append", "overwrite", "dynamic"]
Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Parquet, CSV with a line of column names, JSON lines or Arrow; CSV and JSON may be compressed. - is "
        "stdin.",
    ),
]
SinkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the sink, such as compression=zstd or maxRecordsPerFile=1000. May be repeated.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class WriteArguments:
    """The options of a write."""

    from_: Annotated[
        InputFormat | None,
        typer.Option("--from", help="The format of all files; the default is derived from their names."),
    ] = None
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help='Types of columns of CSV and JSON, such as "id long, at timestamp". Other columns have the types of '
            "the directory, or types that fit the first rows.",
        ),
    ] = None
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="The format to write; the default is the directory's, or parquet."
        ),
    ] = None
    partition_by: Annotated[
        str | None,
        typer.Option(metavar="A,B", help='The partition columns; "": none. By default, as in the directory.'),
    ] = None
    option: SinkOption = None
    mode: Annotated[
        Mode,
        typer.Option(help="overwrite replaces all rows, and dynamic replaces the partitions that occur in the files."),
    ] = "append"
    replace_where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION", help='With --mode overwrite, replace only these partitions, such as "month = 7".'
        ),
    ] = None
    app_id: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="With --version, an identity of the write, which is committed only once."),
    ] = None
    version: Annotated[
        int | None, typer.Option(metavar="N", help="See --app-id; versions of an application increase.")
    ] = None

    def check(self) -> None:
        """Raise `ConfigError` for options that contradict each other."""
        if self.replace_where is not None and self.mode != "overwrite":
            raise ConfigError("--replace-where is only for --mode overwrite")
        if (self.app_id is None) != (self.version is None):
            raise ConfigError("--app-id and --version are an identity: give both, or none")

    def sink_options(self) -> dict[str, object]:
        """Return the options of the sink that were given, by names in snake case."""
        from ftfile.core.options.declaration import attribute_name

        options: dict[str, object] = {}
        for name, value in (settings_of(self.option, prefix="") or {}).items():
            argument = attribute_name(name)
            _check_sink_option(name, argument)
            options[argument] = value
        named = {"file_format": ("--format", self.file_format), "partition_by": ("--partition-by", self.partition_by)}
        for name, (shown, text) in named.items():
            if text is None:
                continue
            if name in options:
                raise ConfigError(f"{shown} and --option both set {name}: give only one of them")
            options[name] = text
        if self.partition_by == "":
            options["partition_by"] = []  # instead of the columns of the directory
        return options


# Options of the sink for arguments of `ftfile.write` with other names.
_SAME_ARGUMENT = {"txn_app_id": "app_id", "txn_version": "version", "partition_overwrite_mode": "mode"}


def _check_sink_option(name: str, argument: str) -> None:
    """Raise `ConfigError` for an option that sets an argument of `ftfile.write` which is not an option of the sink."""
    from ftfile.core.options.table import STORAGE_PREFIX
    from ftfile.tools.load.write_files import own_arguments

    argument = _SAME_ARGUMENT.get(argument, argument)
    if name.startswith(STORAGE_PREFIX):
        argument = "storage"
    if argument not in own_arguments():
        return
    if argument == "path":
        raise ConfigError(f"--option {name}: the path is the first argument of the command")
    if argument in inspect.signature(write.function).parameters:
        shown = argument.replace("_", "-")
        raise ConfigError(f"--option {name}: use --{shown}")
    raise ConfigError(f"--option {name}: it is only an argument of Python, and the command has no such option")


@command(
    "ftfile write /data/orders july.parquet august.parquet",
    "ftfile write /data/orders *.csv.gz --format json --partition-by day",
    "ftfile write /data/orders orders.jsonl --app-id nightly --version 20240701  # once, even if it is repeated",
    "ftfile write /data/orders - --from csv --mode overwrite  # reads stdin",
)
def write(
    place: DirectoryOptions,
    files: Files,
    *,
    arguments: WriteArguments,
    threads: Threads = None,
    output: Output,
) -> None:
    """Write the rows of files of other programs to a directory, in one commit. A new directory is created.

    All files must have the same columns. If the command fails, nothing is written. The options of the directory, such
    as its format and partition columns, need not be repeated. Values are read as Spark reads them. In CSV and JSON, a
    time without a zone is in the timeZone of the directory.
    """
    from ftfile.core.arguments import Access
    from ftfile.tools.load.write_files import FilesToLoad, WriteSettings, write_files

    arguments.check()
    place.require_log()
    settings = WriteSettings(
        options=arguments.sink_options(),
        mode=arguments.mode,
        replace_where=arguments.replace_where,
        app_id=arguments.app_id,
        version=arguments.version,
        threads=threads,
    )
    inputs = FilesToLoad(files, arguments.from_, arguments.schema)
    with progress_bar("write") as progress:
        report = write_files(place.path, inputs, settings, access=Access(**place.access), progress=progress)
    output.show(report, _print_write)


def _print_write(report: "WriteReport") -> None:
    if report.already_committed:
        put(f"Already committed: nothing was written. The newest version is {report.version}")
        return
    rows = count_text(report.rows, "row")
    if report.rows_read != report.rows:
        rows = f"{report.rows:,} of {count_text(report.rows_read, 'row')}"
    put(f"Wrote {rows} in {count_text(report.files, 'file')}, as version {report.version}")
