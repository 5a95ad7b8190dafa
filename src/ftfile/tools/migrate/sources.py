"""The programs whose directories are migrated: which one it is, and its files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import CommitError, ConfigError
from ftfile.core.units import count_text, names_text
from ftfile.log.directory import list_new_directory
from ftfile.tools.migrate.delta_log import commits_of, delta_files
from ftfile.tools.migrate.file_sinks import (
    apex_files,
    detect,
    entries_of,
    flink_files,
    kafka_files,
    plain_files,
    spark_files,
)
from ftfile.tools.migrate.inventory import LOGS, SPARK_LOG, LeftOut, is_hidden, list_foreign

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ftfile.storage.api import FileInfo, FileSystem
    from ftfile.tools.migrate.inventory import Inventory


SOURCES = ("auto", "files", "spark", "flink", "kafka-connect", "apex", "delta")


def take_inventory(fs: FileSystem, url: str, from_: str, *, leave_unfinished: bool) -> Inventory:
    """Return the files that count by the program that wrote them; for ConfigError see `migrate`."""
    if from_ not in SOURCES:
        raise ConfigError(f"{from_!r} is no program: --from, in Python from_=, takes {', '.join(SOURCES)}")
    logs = [name for name in LOGS if fs.exists(name)]
    if len(logs) > 1:
        raise ConfigError(
            f"path={url!r} has {' and '.join(logs)}, and each says which files count: move the one away that is not "
            "valid any more"
        )
    if logs and from_ not in {"auto", LOGS[logs[0]]}:
        raise ConfigError(
            f"path={url!r} has {logs[0]}, which says which files count: give --from {LOGS[logs[0]]}, in Python "
            f"from_={LOGS[logs[0]]!r}; or move it away if it is not valid any more"
        )
    if not logs:
        list_new_directory(fs, url)  # which refuses other tables
    files = list_foreign(fs)
    source = LOGS[logs[0]] if logs else from_ if from_ != "auto" else detect(files)
    if source in LOGS.values() and not logs:
        name = next(name for name, program in LOGS.items() if program == source)
        raise ConfigError(f"path={url!r} has no {name}, the log of {source}: is it the right directory?")
    inventory = _inventory(fs, files, source)
    inventory.files.sort()
    if not inventory.files:
        hidden = [path for path in files if is_hidden(path)]
        but = f" ({names_text(hidden)}: names that begin with _ or . do not count)" if hidden else ""
        raise ConfigError(f"path={url!r} has no files that count{but}. Is it the right directory?")
    _leave_out_unfinished(inventory, leave=leave_unfinished)
    return inventory


def _inventory(fs: FileSystem, files: Mapping[str, FileInfo], source: str) -> Inventory:
    if source == "spark":
        return spark_files(fs, files)
    if source == "delta":
        return delta_files(fs, files)
    if source == "flink":
        return flink_files(fs, files)
    return {"kafka-connect": kafka_files, "apex": apex_files, "files": plain_files}[source](files)


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
    newest = max(entries_of(fs) if name == SPARK_LOG else commits_of(fs), default=None)
    # Of a log that is moved in part, the newest entries are gone.
    if newest is not None and last_entry is not None and newest > last_entry:
        raise CommitError(
            f"{name} of {url!r} has entry {newest}, and the files up to entry {last_entry} are migrated: its writer "
            "was not stopped, or was started again. Stop it, undo the migration by `ftfile migrate PATH --undo`, in "
            "Python ftfile.undo_migration(path), and migrate again"
        )


def still_there(fs: FileSystem, source: str, live: Container[str | None], *, leave_unfinished: bool) -> list[LeftOut]:
    """Return files that plain readers see, and none counts, after an interruption; ConfigError for unfinished ones."""
    files = list_foreign(fs)
    if source in LOGS.values():
        infos = [info for path, info in files.items() if path not in live and not is_hidden(path)]
        return [LeftOut(info.path, info.size_bytes, "the log did not name it", moved=True) for info in infos]
    # Those whose name alone tells it; others may have come since.
    inventory = _inventory(fs, files, source)
    inventory.unfinished = [file for file in inventory.unfinished if file.moved]
    _leave_out_unfinished(inventory, leave=leave_unfinished)
    return [file for file in inventory.left_out if file.moved]
