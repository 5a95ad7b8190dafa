"""The commands `write` and `migrate` for files of other programs, and `export` to other table formats."""

import contextlib
import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.core.units import bytes_text, count_text
from ftfile.tools.cli.change import Confirmed, Planned
from ftfile.tools.cli.command import command
from ftfile.tools.cli.directory_options import AtLeastVersion, DirectoryOptions, Path, Storage, Threads, settings_of
from ftfile.tools.cli.output import Output
from ftfile.tools.cli.terminal import print_fields, print_table, progress_bar, put, say
from ftfile.tools.report.views import BYTES, TableColumn, same_text, yes_or_no

if TYPE_CHECKING:
    from collections.abc import Callable

    from ftfile.operate.export.export import ExportReport
    from ftfile.tools.load.write_files import WriteReport
    from ftfile.tools.migrate.migrate import MigrateReport
    from ftfile.tools.migrate.undo import UndoReport


From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="PROGRAM",
        help="The program that wrote the files: spark (its file sink), flink, kafka-connect, apex, delta; or files for "
        "any other.",
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", metavar="FORMAT", help="The format of the files; the default is derived from their names."
    ),
]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help='The columns, such as "id long, at timestamp", or the JSON of Spark; required for json and csv.',
    ),
]
PartitionBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=TYPE", help="A partition column in the paths, outermost first, such as day=date. May be repeated."
    ),
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", help="An option of the format, such as header=true. May be repeated."
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The checkpoint of the stopped query, which then continues with ftfile."),
]

InputFormat: TypeAlias = Literal["parquet", "csv", "json", "arrow"]
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


@dataclass(frozen=True)
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
        from ftfile.core.options.typed import attribute_name

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


@command(
    "ftfile migrate /data/out --dry-run",
    "ftfile migrate /data/out --checkpoint /data/checkpoint --partition-by day=date",
    'ftfile migrate /data/in --from files --schema "id long, at timestamp" -o header=true',
    "ftfile migrate /data/out --undo",
)
def migrate(
    path: Path,
    *,
    from_: From = "auto",
    file_format: Format = None,
    schema: Schema = None,
    partition_by: PartitionBy = None,
    option: FormatOption = None,
    checkpoint: Checkpoint = None,
    leave_unfinished: Annotated[
        bool, typer.Option("--leave-unfinished", help="Omit files that the program has not finished.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Undo a migration; possible until the first new commit.")
    ] = False,
    options: Confirmed,
    output: Output,
    threads: Threads = None,
    storage: Storage = None,
) -> None:
    """Make the files of another program an ftfile directory, with one record. No file is copied or changed.

    Stop the program first. Each file is read once; then the command asks for confirmation.
    """
    settings: Any = {"storage": settings_of(storage)}
    if undo:
        _undo(path, settings, options, output)
        return
    with contextlib.ExitStack() as bar:
        report = ftfile.migrate(
            path,
            from_=from_,  # type: ignore[arg-type] # the function checks it
            file_format=file_format,
            schema=schema,
            partition_by=settings_of(partition_by),
            options=settings_of(option),
            checkpoint=checkpoint,
            leave_unfinished=leave_unfinished,
            dry_run=options.dry_run,
            confirm=partial(_confirm, end_bar=bar.close, options=options),
            threads=threads,
            progress=bar.enter_context(progress_bar("migrate")),
            **settings,
        )
    output.show(report, _print_report)


@command("ftfile export /data/out --to delta", "ftfile export /data/out --to iceberg")
def export(
    path: Path,
    *,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="The table format: delta or iceberg.")] = "delta",
    options: Planned,
    output: Output,
    storage: Storage = None,
    at_least_version: AtLeastVersion = None,
) -> None:
    """Write the metadata of another table format next to the files, so that its readers see the newest version.

    Files must be Parquet without encryption. It changes no file, and starts where the last export ended.
    """
    settings = settings_of(storage)
    with progress_bar("export") as progress:
        report = ftfile.export(
            path,
            to,
            dry_run=options.dry_run,
            progress=progress,
            storage=settings,
            at_least_version=at_least_version,
        )
    if not report.versions:
        DirectoryOptions(path, storage=storage).require_log()
    output.show(report, partial(_print_export, verb="Would export" if options.dry_run else "Exported"))


def _print_export(report: "ExportReport", verb: str) -> None:
    print_fields(
        [
            ("result", f"{verb} {count_text(report.versions, 'version')}"),
            ("readers see", "nothing yet" if report.version is None else f"version {report.version:,}"),
            ("rows in open files", count_text(report.open_rows) if report.open_rows else None),
            ("versions waiting", f"{report.waiting:,}, until files are published" if report.waiting else None),
        ]
    )


def _confirm(report: "MigrateReport", *, end_bar: "Callable[[], object]", options: Confirmed) -> bool:
    end_bar()  # the bar would be drawn over the question
    say(_summary(report, "This records"))
    in_files, in_paths = _columns(report)
    say(f"Columns: {in_files}{in_paths and f'; in the paths: {in_paths}'}")
    if moved := sum(file.moved for file in report.left_out):
        say(f"{count_text(moved, 'file')} without committed rows are moved to a place that readers ignore")
    options.ask("Finish the migration?" if report.already_migrated else "Migrate?")
    return True


def _summary(report: "MigrateReport", begins: str) -> str:
    files = f"{count_text(report.files, 'file')} of {report.file_format} with {count_text(report.rows, 'row')}"
    if report.source == "files":
        written = ""
    else:
        written = f", written by {report.source}"
    summary = f"{files}, {bytes_text(report.size_bytes)}{written}"
    if report.already_migrated:
        return f"Already migrated, as version {report.version}: {summary}. Nothing is recorded again"
    return f"{begins} {summary}"


def _columns(report: "MigrateReport") -> tuple[str, str]:
    """Return the columns in files, and the columns in paths, each with its type."""
    from ftfile.rows.spark_types import quoted_name, sql_types

    types = sql_types(report.schema)
    texts = {}
    for name, sql_type in types.items():
        sql_name = quoted_name(name)
        if name.isidentifier():
            sql_name = name
        texts[name] = f"{sql_name}: {sql_type}"
    in_paths = [texts.pop(name) for name in report.partition_by]
    return ", ".join(texts.values()), ", ".join(in_paths)


def _print_report(report: "MigrateReport") -> None:
    would = _summary(report, "Would record")
    is_unchanged = report.dry_run or report.already_migrated
    put(would if is_unchanged else f"{_summary(report, 'Recorded')}, as version {report.version}")
    if report.query_id is None:
        query = None
    else:
        query = f"{report.query_id}, after batch {report.last_batch}"
    in_files, in_paths = _columns(report)
    fields = [("columns", in_files), ("columns in the paths", in_paths), ("log moved", report.moved_log)]
    print_fields([*fields, ("query continues", query)])
    if report.left_out:
        columns = [
            TableColumn("left out", "path", folds=True),
            TableColumn("bytes", "size_bytes", BYTES),
            TableColumn("moved", "moved", same_text(yes_or_no), hides_zero=True),
            TableColumn("why", "why", folds=True),
        ]
        print_table(columns, report.left_out)


def _undo(path: str, settings: Any, options: Confirmed, output: Output) -> None:  # noqa: ANN401
    report = ftfile.undo_migration(path, dry_run=True, **settings)
    if not options.dry_run:
        options.ask("Undo the migration, and delete the log?")
        report = ftfile.undo_migration(path, **settings)

    def print_text(report: "UndoReport") -> None:
        if options.dry_run:
            put("The migration can be undone")
        else:
            put(f"Undone; {count_text(len(report.put_back), 'file')} moved back")

    output.show(report, print_text)
