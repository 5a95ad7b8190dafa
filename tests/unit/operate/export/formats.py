"""The live files of each format, read only from its metadata, as the specification of the format defines them."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import fastavro
import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.log.checkpoints import write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.format.model import Body, MaintenanceAuthor
from ftfile.log.protocol import commit
from ftfile.log.read.compacted_writer import write_due_compacted
from ftfile.testing.context import current, open_filesystem

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ftfile.operate.export.export import ExportReport
    from ftfile.storage.api import FileSystem

COLUMNS = {"id": "long", "word": "string"}
METADATA = "_iceberg/metadata"
HINT = f"{METADATA}/version-hint.text"
MOUNTED = "mounted://fs/"  # the same URL for all mounts of a directory


@functools.cache
def duckdb_with(*extensions: str) -> DuckDBPyConnection:
    """Return DuckDB with the extensions from PyPI packages, because this machine may have no cached extensions."""
    connection: DuckDBPyConnection = pytest.importorskip("duckdb").connect(config={"threads": 1})
    for name in extensions:
        package = pytest.importorskip(f"duckdb_extension_{name}")
        (found,) = Path(package.__path__[0]).rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{found}'")
    return connection


def rows(first: int, count: int = 2) -> list[dict[str, Any]]:
    return [{"id": number, "word": f"w{number}"} for number in range(first, first + count)]


def export(url: str, to: str = "delta", **settings: Any) -> ExportReport:
    return ftfile.export(url, to, context=current(), **settings)


def ids_of(url: str, version: int | None = None) -> list[int]:
    return sorted(ftfile.open(url).to_arrow(version)["id"].to_pylist())


def keep_only(url: str, log_start: int) -> None:
    """Trim the log as vacuum does: commit the new start, write bases and ranges, then delete the records."""
    log = CommitLog(open_filesystem(url))
    head = log.refresh()
    write_checkpoint(log.fs, SYSTEM.ids, head)
    commit(log, MaintenanceAuthor("vacuum", "v"), lambda *_: Body(log_start=log_start))
    write_due_compacted(log, head)
    for version in range(log_start):
        log.fs.delete(layout.record_path(version))


def commits(fs: FileSystem) -> list[list[dict[str, Any]]]:
    """Return the actions of each commit of the Delta table."""
    found = sorted(info.path for info in fs.list("_delta_log") if info.path.endswith(".json"))
    assert found == [f"_delta_log/{number:020}.json" for number in range(len(found))]
    return [[json.loads(line) for line in fs.read(path).splitlines()] for path in found]


def delta_files(fs: FileSystem, commit: int | None = None) -> dict[str, int]:
    """Return the paths and lengths of the files of a version of the Delta table, as Delta's protocol defines them."""
    live: dict[str, int] = {}
    for actions in commits(fs)[: None if commit is None else commit + 1]:
        for action in actions:
            if "remove" in action:
                live.pop(unquote(action["remove"]["path"]), None)
            if "add" in action:
                live[unquote(action["add"]["path"])] = action["add"]["size"]
    return live


def iceberg_metadata(fs: FileSystem) -> list[dict[str, Any]]:
    """Return the content of each existing metadata file, oldest first."""
    names = (info.path for info in fs.list(METADATA) if info.path.endswith(".metadata.json"))
    found = sorted(names, key=lambda path: int(path.removeprefix(f"{METADATA}/v").partition(".")[0]))
    return [json.loads(fs.read(path)) for path in found]


def iceberg_manifests(fs: FileSystem, metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of the current snapshot's manifest list."""
    start = metadata["location"].removesuffix("_iceberg")
    listed = metadata["snapshots"][-1]["manifest-list"].removeprefix(start)
    return list(fastavro.reader(io.BytesIO(fs.read(listed))))  # type: ignore[arg-type]


def iceberg_entries(fs: FileSystem, metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of all manifests of the current snapshot."""
    start, found = metadata["location"].removesuffix("_iceberg"), []
    for manifest in iceberg_manifests(fs, metadata):
        content = fs.read(manifest["manifest_path"].removeprefix(start))
        assert len(content) == manifest["manifest_length"]
        entries: list[Any] = list(fastavro.reader(io.BytesIO(content)))
        for status, name in enumerate(("existing", "added", "deleted")):
            some = [entry for entry in entries if entry["status"] == status]
            assert manifest[f"{name}_files_count"] == len(some)
            assert manifest[f"{name}_rows_count"] == sum(entry["data_file"]["record_count"] for entry in some)
        for entry in entries:
            if entry["sequence_number"] is None:
                entry["sequence_number"] = manifest["sequence_number"]
        found += entries
    return found


def iceberg_files(fs: FileSystem) -> dict[str, int]:
    """Return the paths and lengths of the files of the newest version of the Iceberg table."""
    metadata = iceberg_metadata(fs)[-1]
    start = metadata["location"].removesuffix("_iceberg")
    entries = [entry["data_file"] for entry in iceberg_entries(fs, metadata) if entry["status"] != 2]
    files = {file["file_path"].removeprefix(start): file["file_size_in_bytes"] for file in entries}
    assert len(files) == len(entries), "a file is in two manifests"
    return files


def check_newest(url: str, to: str = "delta") -> None:
    """Check that the table has the finished files of the newest version, and that each file exists with its length."""
    fs = open_filesystem(url)
    live = {"delta": delta_files, "iceberg": iceberg_files}[to](fs)
    if to == "iceberg":
        assert int(fs.read(HINT)) == iceberg_metadata(fs)[-1]["last-sequence-number"]
    assert live == {file.path: file.size_bytes for file in ftfile.open(url).files()}
    assert all(fs.stat(path).size_bytes == size_bytes for path, size_bytes in live.items())


def forget_follow_up(url: str) -> None:
    """Leave the files of a process that is killed between a commit and the steps after it."""
    for checkpoint in Path(url).glob("_delta_log/*.checkpoint.parquet"):
        checkpoint.unlink()
    for hint in Path(url).glob(HINT):
        hint.write_text(str(int(hint.read_text()) - 1))


def count_commits(fs: FileSystem, to: str) -> int:
    return len(commits(fs) if to == "delta" else iceberg_metadata(fs))
