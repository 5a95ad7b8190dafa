"""Every public function and every command on a directory that has only openings of writers, or positions."""

from __future__ import annotations

from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.core.errors import FtfileError, StorageError
from ftfile.operate.open_directory import OpenedDirectory
from ftfile.tools.cli.app import PANELS, STORE_COMMANDS
from tests.unit.tools.cli.running import invoke

pytest.importorskip("pyspark")
from tests.unit.spark.fake_session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE: dict[str, Any] = {"force": True, "dry_run": False}
ROWS = pa.table({"id": [1, 2]})
FUNCTIONS: dict[str, Callable[[str], object]] = {
    "compact": lambda path: ftfile.compact(path, dry_run=False),
    "delete": lambda path: ftfile.delete(path, "id = 1", dry_run=False),
    "doctor": lambda path: ftfile.doctor(path, measure_start=False),
    "drop": lambda path: ftfile.drop(path, "id = 1", dry_run=False),
    "expire": lambda path: ftfile.expire(path, older_than="0s", **AT_ONCE),
    "export": ftfile.export,
    "export, dry": lambda path: ftfile.export(path, dry_run=True),
    "export, iceberg": lambda path: ftfile.export(path, "iceberg"),
    "export, iceberg, dry": lambda path: ftfile.export(path, "iceberg", dry_run=True),
    "flush": ftfile.flush,
    "migrate": lambda path: ftfile.migrate(path, dry_run=False),
    "monitor": lambda path: ftfile.monitor(path, prometheus_port=0).close(),
    "open": ftfile.open,
    "repair": lambda path: ftfile.repair(path, dry_run=False, full=True),
    "report": ftfile.report,
    "restore": lambda path: ftfile.restore(path, 0, dry_run=False),
    "source_status": lambda path: ftfile.source_status(path, options={"stateLocation": path}),
    "status": ftfile.status,
    "undo": lambda path: ftfile.undo(path, dry_run=False),
    "undo_migration": lambda path: ftfile.undo_migration(path, dry_run=False),
    "vacuum": lambda path: ftfile.vacuum(path, retention="0s", **AT_ONCE),
    "verify": lambda path: ftfile.verify(path, full=True),
    "write": lambda path: ftfile.write(path, ROWS),
    "writer": lambda path: ftfile.writer(path, "other").close(),
    "kv.KeyValueStore": lambda path: ftfile.kv.KeyValueStore(path, writer="app", keys={"k": "string"}).close(),
    "kv.Reader": ftfile.kv.open,
    "kv.changes": lambda path: [*ftfile.kv.changes(path)],
    "kv.compact": ftfile.kv.compact,
    "kv.open": ftfile.kv.open,
    "kv.purge": lambda path: ftfile.kv.purge(path, everything=True),
    "kv.read_windows": lambda path: ftfile.kv.read_windows(path, "app"),
    "kv.rebucket": lambda path: ftfile.kv.rebucket(path, 4),
    "kv.verify": ftfile.kv.verify,
    "spark.compact": lambda path: ftfile.spark.compact(Session(), path),  # type: ignore[arg-type]
    "spark.delete": lambda path: ftfile.spark.delete(Session(), path, "id = 1"),  # type: ignore[arg-type]
    "spark.flush": lambda path: ftfile.spark.flush(Session(), path),  # type: ignore[arg-type]
    "spark.load": lambda path: ftfile.spark.load(Session(), path),  # type: ignore[arg-type]
    "spark.load_plan": lambda path: ftfile.spark.load_plan(Session(), path),  # type: ignore[arg-type]
    "spark.verify": lambda path: ftfile.spark.verify(Session(), path),  # type: ignore[arg-type]
    "FtFileDataSource": lambda path: ftfile.FtFileDataSource({"path": path}).schema(),
    "FtKvDataSource": lambda path: ftfile.FtKvDataSource({"path": path}).schema(),
}
# Classes of values and types, and functions of a session, which take no directory.
WITHOUT_PATH = {"__version__", "errors", "kv", "spark"}
WITHOUT_PATH |= {f"kv.{name}" for name in ("ArrowRows", "Bytes", "Codec", "DELETED", "Int64", "Json", "Pairs", "Text")}
WITHOUT_PATH |= {f"spark.{name}" for name in ("attach", "detach", "listen", "unlisten", "lookup", "python")}
METHODS: dict[str, Callable[[OpenedDirectory], object]] = {
    "count": OpenedDirectory.count,
    "count, where": lambda opened: opened.count(where="id = 1"),
    "dataset": OpenedDirectory.dataset,
    "dead_letters": lambda opened: [*opened.dead_letters()],
    "diff": lambda opened: opened.diff(0),
    "file_details": lambda opened: opened.file_details("part-0.parquet"),
    "file_system": lambda opened: opened.file_system,
    "files": OpenedDirectory.files,
    "files, statistics": lambda opened: opened.files(0),
    "follow": lambda opened: [*opened.follow()],
    "history": OpenedDirectory.history,
    "is_store": lambda opened: opened.is_store,
    "oldest_version": OpenedDirectory.oldest_version,
    "path": lambda opened: opened.path,
    "require_files": OpenedDirectory.require_files,
    "schema": OpenedDirectory.schema,
    "snapshot": OpenedDirectory.snapshot,
    "spark_schema": OpenedDirectory.spark_schema,
    "status": OpenedDirectory.status,
    "tail": lambda opened: opened.tail(1),
    "time_zone": OpenedDirectory.time_zone,
    "to_arrow": OpenedDirectory.to_arrow,
    "to_arrow, columns": lambda opened: opened.to_arrow(columns=["id"], where="id = 1"),
    "to_batches": lambda opened: [*opened.to_batches()],
    "unpublished": OpenedDirectory.unpublished,
    "verify": OpenedDirectory.verify,
    "version": OpenedDirectory.version,
    "version_at": lambda opened: opened.version_at("2100-01-01"),
    "version_details": lambda opened: opened.version_details(0),
}
COMMANDS = {
    name: option.split()
    for name, option in {
        "cat": "",
        "compact": "",
        "count": "",
        "delete": "--where id=1 --yes",
        "diff": "0",
        "doctor": "",
        "drop": "--where id=1 --yes",
        "expire": "--older-than 0s --force --yes",
        "export": "",
        "flush": "",
        "head": "",
        "history": "",
        "ls": "",
        "migrate": "--yes",
        "repair": "--full --yes",
        "report": "--output report.html",
        "restore": "--version 0 --yes",
        "schema": "",
        "show": "0",
        "source": "-o stateLocation=state",
        "status": "",
        "tail": "",
        "undo": "--yes",
        "vacuum": "--retention 0s --force --yes",
        "verify": "--full",
        "write": str(Path(__file__).parents[1] / "tools/cli/rows.jsonl"),
    }.items()
}
STORE_OPTIONS = {"get": ["a"]}


def open_only(path: str) -> None:
    ftfile.writer(path, "app").close()


def commit_positions(path: str) -> None:
    with ftfile.writer(path, "app") as writer:
        writer.commit("one")
        writer.commit("two")


@pytest.fixture(params=[open_only, commit_positions], ids=["opened", "positions"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    directory = str(tmp_path / "out")
    request.param(directory)
    return directory


def require_result(call: Callable[[], object]) -> None:
    """Run a call, which returns a result or raises an error of ftfile with its reason."""
    error: FtfileError | None = None
    try:
        call()
    except FtfileError as raised:
        error = raised
    assert error is None or (not isinstance(error, StorageError) and len(str(error)) > 20)


def test_the_functions_are_all() -> None:
    names = {*dir(ftfile)} | {f"kv.{name}" for name in dir(ftfile.kv)} | {f"spark.{name}" for name in dir(ftfile.spark)}
    assert names - WITHOUT_PATH == {name.partition(",")[0] for name in FUNCTIONS}
    assert {name for name in dir(OpenedDirectory) if name[0] != "_"} <= {name.partition(",")[0] for name in METHODS}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function(name: str, path: str) -> None:
    require_result(lambda: FUNCTIONS[name](path))


@pytest.mark.parametrize("name", METHODS)
def test_each_method(name: str, path: str) -> None:
    require_result(lambda: METHODS[name](ftfile.open(path)))


def commands() -> list[tuple[str, ...]]:
    return [(command.name,) for panel in PANELS.values() for command in panel] + [
        ("kv", command.name) for command in STORE_COMMANDS
    ]


@pytest.mark.parametrize("name", commands(), ids=" ".join)
def test_each_command(name: tuple[str, ...], path: str) -> None:
    options = STORE_OPTIONS.get(name[-1], []) if name[0] == "kv" else COMMANDS[name[0]]
    result = invoke([*name, path, *options])
    assert isinstance(result.exception, (SystemExit, NoneType)), repr(result.exception)
    assert "Traceback" not in result.output
    if result.exit_code:
        assert "Usage" not in result.output
