"""The programs whose directories are migrated: which one it is, and its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ftfile.core.errors import CommitError, ConfigError
from ftfile.core.units import count_text, names_text
from ftfile.log.directory import list_new_directory
from ftfile.tools.migrate.delta_log import commits_of, delta_files
from ftfile.tools.migrate.file_sinks import (
    apex_files,
    entries_of,
    flink_files,
    is_named_by_apex,
    is_named_by_flink,
    is_named_by_kafka,
    kafka_files,
    plain_files,
    spark_files,
)
from ftfile.tools.migrate.inventory import DELTA_LOG, SPARK_LOG, LeftOut, is_hidden, list_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from ftfile.storage.api import FileInfo, FileSystem
    from ftfile.tools.migrate.inventory import Inventory, Source


class Program(NamedTuple):
    """A program that wrote a directory, and how its files are counted.

    Attributes:
        name: as `from_` has it.
        take: returns the files of a directory that count, given all of them.
        is_named_so: returns True if names of files tell that they are of this program.
        log: the directory of its log, which tells the program by itself.
        list_entries: returns what is in the log, by batch or version.
    """

    name: Source
    take: Callable[[FileSystem, Mapping[str, FileInfo]], Inventory]
    is_named_so: Callable[[Iterable[str]], bool] = lambda _: False
    log: str | None = None
    list_entries: Callable[[FileSystem], Mapping[int, object]] = lambda _: {}


# The first one whose names these are has written them.
_TABLE = (
    Program("spark", spark_files, log=SPARK_LOG, list_entries=entries_of),
    Program("delta", delta_files, log=DELTA_LOG, list_entries=commits_of),
    Program("flink", flink_files, is_named_by_flink),
    Program("apex", apex_files, is_named_by_apex),
    Program("kafka-connect", kafka_files, is_named_by_kafka),
    Program("files", plain_files, lambda _: True),
)
PROGRAMS: Mapping[str, Program] = {program.name: program for program in _TABLE}
_BY_LOG = {program.log: program for program in _TABLE if program.log is not None}


def detect(names: Iterable[str]) -> Program:
    """Return the program whose files these are, by their names; plain files if none is known."""
    return next(program for program in _TABLE if program.is_named_so(names))


def take_inventory(fs: FileSystem, url: str, from_: str, *, leave_unfinished: bool) -> Inventory:
    """Return the files that count by the program that wrote them; for ConfigError see `migrate`."""
    if from_ != "auto" and from_ not in PROGRAMS:
        names = ", ".join(("auto", *PROGRAMS))
        raise ConfigError(f"{from_!r} is no program: --from, in Python from_=, takes {names}")
    logs = [name for name in _BY_LOG if fs.exists(name)]
    if len(logs) > 1:
        raise ConfigError(
            f"path={url!r} has {' and '.join(logs)}, and each says which files count: move the one away that is not "
            "valid any more"
        )
    logged = _BY_LOG[logs[0]] if logs else None
    if logged is None:
        list_new_directory(fs, url)  # which refuses other tables
    elif from_ not in {"auto", logged.name}:
        raise ConfigError(
            f"path={url!r} has {logged.log}, which says which files count: give --from {logged.name}, in Python "
            f"from_={logged.name!r}; or move it away if it is not valid any more"
        )
    files = list_foreign(fs)
    program = logged or (detect(files) if from_ == "auto" else PROGRAMS[from_])
    if program.log is not None and logged is None:
        raise ConfigError(f"path={url!r} has no {program.log}, the log of {program.name}: is it the right directory?")
    inventory = program.take(fs, files)
    inventory.files.sort()
    if not inventory.files:
        hidden = [path for path in files if is_hidden(path)]
        but = f" ({names_text(hidden)}: names that begin with _ or . do not count)" if hidden else ""
        raise ConfigError(f"path={url!r} has no files that count{but}. Is it the right directory?")
    _leave_out_unfinished(inventory, leave=leave_unfinished)
    return inventory


def _leave_out_unfinished(inventory: Inventory, *, leave: bool) -> None:
    if inventory.unfinished and not leave:
        count = len(inventory.unfinished)
        raise ConfigError(
            f"{count_text(count, 'file')} {'is' if count == 1 else 'are'} not finished: "
            f"{names_text([file.path for file in inventory.unfinished])}. {inventory.unfinished[0].why}. Start the "
            "program again and stop it cleanly (with a savepoint, or so that it commits), or leave out their rows by "
            "--leave-unfinished, in Python leave_unfinished=True. Nothing was changed"
        )
    inventory.left_out += inventory.unfinished
    inventory.unfinished = []


def require_stopped(fs: FileSystem, name: str, last_entry: int | None, url: str) -> None:
    """Raise a CommitError if the other program has gone on since its log was read."""
    newest = max(_BY_LOG[name].list_entries(fs), default=None)
    # Of a log that is moved in part, the newest entries are gone.
    if newest is not None and last_entry is not None and newest > last_entry:
        raise CommitError(
            f"{name} of {url!r} has entry {newest}, and the files up to entry {last_entry} are migrated: its writer "
            "was not stopped, or was started again. Stop it, undo the migration by `ftfile migrate PATH --undo`, in "
            "Python ftfile.undo_migration(path), and migrate again"
        )


def still_there(
    fs: FileSystem, source: Source, live: Container[str | None], *, leave_unfinished: bool
) -> list[LeftOut]:
    """Return files that plain readers see, and none counts, after an interruption; ConfigError for unfinished ones."""
    files = list_foreign(fs)
    if PROGRAMS[source].log is not None:
        infos = [info for path, info in files.items() if path not in live and not is_hidden(path)]
        return [LeftOut(info.path, info.size_bytes, "the log did not name it", moved=True) for info in infos]
    # Those whose name alone tells it; others may have come since.
    inventory = PROGRAMS[source].take(fs, files)
    inventory.unfinished = [file for file in inventory.unfinished if file.moved]
    _leave_out_unfinished(inventory, leave=leave_unfinished)
    return [file for file in inventory.left_out if file.moved]
