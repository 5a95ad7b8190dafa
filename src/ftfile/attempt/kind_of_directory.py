"""The kind of a directory: files for any reader, or a store of keys and values. A log is of one kind for good.

A directory of another program's table is of neither kind, and nothing is written to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ftfile.commit.files import list_or_empty, list_own
from ftfile.commit.format import layout
from ftfile.core.errors import ConfigError
from ftfile.fs.registry import normalise

if TYPE_CHECKING:
    from ftfile.commit.log.state import LogState
    from ftfile.fs.api import FileInfo, FileSystem

MIGRATION = "migration"  # table of the log that tells where its files come from
_SPARK_LOG = "_spark_metadata"
_ICEBERG = "metadata"
_TABLES = {
    _SPARK_LOG: "Spark's own file sink wrote here, and plain readers of Spark obey its log: they would see no row of "
    "ftfile's. To go on here, with its files, use ftfile.migrate; if they do not matter, delete its directory",
    "_delta_log": "it is a Delta table, whose readers would see no row of ftfile's, and whose VACUUM deletes files "
    "that its log does not name. ftfile.migrate makes it a directory of ftfile",
    ".hoodie": "it is a Hudi table, whose readers would see no row of ftfile's, and whose cleaner deletes files that "
    "its timeline does not name",
    _ICEBERG: "it is an Iceberg table, whose readers would see no row of ftfile's, and whose removal of orphan files "
    "deletes files that its metadata does not name",
}


def directory_url(path: str) -> str:
    """Return the URL of a directory to write to.

    Raises:
        ConfigError: it is malformed, or lies within the log of another directory.
    """
    url = normalise(path)
    above, meta, _ = f"{url}/".partition(f"/{layout.META}/")
    if meta:
        raise ConfigError(
            f"path={path!r} lies within {layout.META} of the directory {above!r}, whose vacuum deletes files that it "
            "does not know there: choose a path outside of it"
        )
    return url


def entries_of_new(fs: FileSystem, path: str) -> list[FileInfo]:
    """Return the entries of a directory without a log; none if there is no directory.

    Raises:
        ConfigError: it is a table of another program, see `_TABLES`.
        NotADirectory: it is a file.
    """
    entries = list_own(fs, "")
    names = {info.path for info in entries}
    found = next((name for name in _TABLES if name in names), None)
    if found == _ICEBERG and not any(".metadata.json" in info.path for info in list_or_empty(fs, _ICEBERG)):
        found = None
    if found is not None:
        raise ConfigError(f"path={path!r} has {found!r}: {_TABLES[found]}. Otherwise write to a new directory")
    return entries


def store_of(head: LogState) -> dict[str, Any] | None:
    """Return the store's definition, see `kv.definition`; None for a directory of files, or without rows."""
    encoding = head.definitions[head.encoding] if head.encoding is not None else {}
    found: dict[str, Any] | None = encoding.get("store")
    return found


def migration_of(head: LogState) -> dict[str, Any] | None:
    """Return the record of the program that wrote the first files: `from`, `log`, `lastEntry`; None for ftfile."""
    table = head.tables.get(MIGRATION)
    entry = table.get("last") if table is not None else None
    return None if entry is None else entry[1]


def refuse_other_log(fs: FileSystem, head: LogState, path: str) -> None:
    """Raise a ConfigError if the log of the program that wrote the first files is in its place (again)."""
    migration = migration_of(head)
    name = None if migration is None else migration["log"]
    if name is not None and fs.exists(name):
        raise ConfigError(
            f"path={path!r} was migrated, and has {name!r} (again), which hides ftfile's rows from plain readers. If "
            "the migration was interrupted, call ftfile.migrate(path, dry_run=False) again; if another program was "
            f"started again, stop it, and move {name!r} away"
        )


def refuse_store(head: LogState, path: str) -> None:
    """Raise a ConfigError if the directory is a store."""
    if store_of(head) is not None:
        raise ConfigError(
            f"path={path!r} is a store of keys and values, not a directory of files: write and read it with the format "
            "`ftkv`, or open it with ftfile.kv.open. For files, use another path"
        )


def refuse_files(head: LogState, path: str) -> None:
    """Raise a ConfigError if the directory has files that are no store's."""
    if head.encoding is not None and store_of(head) is None:
        raise ConfigError(
            f"path={path!r} is a directory of files, not a store of keys and values: write and read it with the format "
            "`ftfile`, and merge its files with ftfile.compact. For a store, use another path"
        )
