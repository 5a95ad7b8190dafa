"""Each public function and command that opens a directory or a store refuses a restored older copy, unchanged."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import ftfile
import ftfile.kv
import ftfile.spark
from ftfile.core.arguments import Access
from ftfile.errors import ConfigError, RolledBack
from ftfile.spark import store_lookup
from ftfile.testing.micro_batch import MicroBatch
from ftfile.tools.cli.failures import CONFLICT
from tests.unit.kv.stores import query_of, rows
from tests.unit.spark.fake_session import Session
from tests.unit.tools.cli.running import invoke
from tests.unit.writing.files.encrypted import forget_all

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[..., object]

WRITER = "counter"
SESSION: Any = Session()
FRAME: Any = SimpleNamespace(schema=StructType([StructField("k", StringType())]), isStreaming=False)

FILES: dict[str, Call] = {
    "ftfile.compact": ftfile.compact,
    "ftfile.delete": lambda path, **more: ftfile.delete(path, "word = 'a'", **more),
    "ftfile.drop": lambda path, **more: ftfile.drop(path, "all", **more),
    "ftfile.expire": lambda path, **more: ftfile.expire(path, dry_run=False, **more),
    "ftfile.export": lambda path, **more: ftfile.export(path, "iceberg", **more),
    "ftfile.flush": ftfile.flush,
    "ftfile.open": ftfile.open,
    "ftfile.repair": lambda path, **more: ftfile.repair(path, dry_run=False, **more),
    "ftfile.report": ftfile.report,
    "ftfile.restore": lambda path, **more: ftfile.restore(path, 0, **more),
    "ftfile.status": ftfile.status,
    "ftfile.undo": lambda path, **more: ftfile.undo(path, dry_run=False, **more),
    "ftfile.vacuum": lambda path, **more: ftfile.vacuum(path, dry_run=False, **more),
    "ftfile.verify": ftfile.verify,
    "dry run: ftfile.repair": ftfile.repair,
    "dry run: ftfile.vacuum": ftfile.vacuum,
    "ftfile.spark.compact": lambda path, **more: ftfile.spark.compact(SESSION, path, tasks=1, **more),
    "ftfile.spark.delete": lambda path, **more: ftfile.spark.delete(SESSION, path, "word = 'a'", tasks=1, **more),
    "ftfile.spark.flush": lambda path, **more: ftfile.spark.flush(SESSION, path, tasks=1, **more),
    "ftfile.spark.load": lambda path, **more: ftfile.spark.load(SESSION, path, **more),
    "ftfile.spark.load_plan": lambda path, **more: ftfile.spark.load_plan(SESSION, path, **more),
    "ftfile.spark.verify": lambda path, **more: ftfile.spark.verify(SESSION, path, tasks=1, **more),
}
STORES: dict[str, Call] = {
    "ftfile.kv.KeyValueStore": lambda path, **more: ftfile.kv.KeyValueStore(path, writer=WRITER, **more).close(),
    "ftfile.kv.changes": ftfile.kv.changes,
    "ftfile.kv.compact": ftfile.kv.compact,
    "ftfile.kv.open": lambda path, **more: ftfile.kv.open(path, **more).close(),
    "ftfile.kv.purge": lambda path, **more: ftfile.kv.purge(path, "a", **more),
    "ftfile.kv.read_windows": lambda path, **more: ftfile.kv.read_windows(path, WRITER, **more),
    "ftfile.kv.rebucket": lambda path, **more: ftfile.kv.rebucket(path, 8, **more),
    "ftfile.kv.verify": ftfile.kv.verify,
    "ftfile.spark.lookup": lambda path, **more: ftfile.spark.lookup(FRAME, path, "k", **more),
    "store: ftfile.repair": FILES["ftfile.repair"],
    "store: ftfile.report": FILES["ftfile.report"],
    "store: ftfile.spark.compact": FILES["ftfile.spark.compact"],
    "store: ftfile.spark.verify": FILES["ftfile.spark.verify"],
    "store: ftfile.status": ftfile.status,
    "store: ftfile.vacuum": FILES["ftfile.vacuum"],
    "store: ftfile.verify": ftfile.verify,
}
# Functions that do not open a directory of the caller: they check a machine, foreign files, or a missing directory.
OPEN_NONE = {
    *("ftfile.doctor", "ftfile.migrate", "ftfile.monitor", "ftfile.source_status", "ftfile.undo_migration"),
    *("ftfile.write", "ftfile.writer"),
}

FILE_COMMANDS = {
    **dict.fromkeys(("cat", "compact", "expire --yes", "export", "flush", "head", "history", "ls", "repair"), ()),
    **dict.fromkeys(("report --output=-", "status", "tail", "vacuum --yes", "verify"), ()),
    "drop --yes": ("--where", "all"),
    "restore --yes": ("--version", "0"),
    "undo --yes": (),
    "show": ("1",),
}
STORE_COMMANDS = {
    **dict.fromkeys(("kv compact", "kv scan", "kv stats", "kv verify", "history", "vacuum --yes"), ()),
    **dict.fromkeys(("cat", "head", "ls", "report --output=-", "status", "verify"), ()),
    "show": ("1",),
    "kv get": ("a",),
}


def put_back(path: str, write: Callable[[int], object]) -> None:
    """Write three times, and restore the directory from a copy with two of these versions."""
    for batch in range(3):
        write(batch)
        if batch == 1:
            shutil.copytree(path, f"{path}.copy")
    shutil.rmtree(path)
    Path(f"{path}.copy").rename(path)
    forget_all()


@pytest.fixture
def files(tmp_path: Path) -> str:
    path = str(tmp_path / "files")
    put_back(path, lambda batch: MicroBatch(path, {"word": "string"}).run(batch, [[{"word": str(batch)}]]))
    return path


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "store")
    with ftfile.kv.KeyValueStore(path, writer=WRITER, keys={"k": "string"}, values={"n": "long"}, buckets=4):
        pass
    put_back(path, lambda batch: query_of(path).run(batch, [rows("a", n=batch)]))
    return path


def content_of(path: str) -> dict[Path, bytes | None]:
    """Return all files and directories below a path."""
    return {file: file.read_bytes() if file.is_file() else None for file in sorted(Path(path).rglob("*"))}


def check_refused(call: Call, path: str) -> None:
    newest, before = newest_of(path), content_of(path)
    with pytest.raises(RolledBack, match=f"version {newest} is the newest here"):
        call(path, at_least_version=newest + 1)
    assert content_of(path) == before


def newest_of(path: str) -> int:
    try:
        return ftfile.open(path).version()
    except ConfigError:
        with ftfile.kv.open(path) as reader:
            return reader.version


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_functions_refuse_files(files: str, name: str) -> None:
    check_refused(FILES[name], files)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_functions_refuse_a_store(store: str, name: str) -> None:
    check_refused(STORES[name], store)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*FILES} - {"ftfile.spark.load", "ftfile.spark.load_plan"}))
def test_functions_take_files_as_new_as_expected(files: str, name: str) -> None:
    FILES[name](files, at_least_version=newest_of(files))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*STORES} - {"ftfile.spark.lookup"}))
def test_functions_take_a_store_as_new_as_expected(store: str, name: str) -> None:
    STORES[name](store, at_least_version=newest_of(store))


def test_every_function_that_opens_is_here() -> None:
    openers = set()
    for package in (ftfile, ftfile.kv, ftfile.spark):
        for name in dir(package):
            function = getattr(package, name)
            if name == "KeyValueStore" or isinstance(function, FunctionType):
                parameters = inspect.signature(function).parameters
                full_name = f"{package.__name__}.{name}"
                if "path" in parameters and full_name not in OPEN_NONE:
                    openers.add(full_name)
    assert openers == {name for name in (*FILES, *STORES) if ": " not in name}


def command_of(name: str, path: str, least: int, more: tuple[str, ...]) -> list[str]:
    words = [word for word in name.split() if word[0] != "-"]
    flags = [word for word in name.split() if word[0] == "-"]
    return [*words, path, *more, *flags, "--at-least-version", str(least)]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILE_COMMANDS)
def test_commands_refuse_files(files: str, name: str) -> None:
    check_command(name, files, FILE_COMMANDS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", STORE_COMMANDS)
def test_commands_refuse_a_store(store: str, name: str) -> None:
    check_command(name, store, STORE_COMMANDS[name])


def check_command(name: str, path: str, more: tuple[str, ...]) -> None:
    newest, before = newest_of(path), content_of(path)
    refused = invoke(command_of(name, path, newest + 1, more))
    assert refused.exit_code == CONFLICT, refused.output
    assert f"at least version {newest + 1} is expected" in refused.stderr
    assert content_of(path) == before
    assert invoke(command_of(name, path, newest, more)).exit_code == 0


@pytest.mark.slow
def test_tasks_of_a_lookup_refuse_a_store_that_is_put_back(store: str) -> None:
    newest = newest_of(store)
    shutil.copytree(store, f"{store}.copy")
    query_of(store).run(2, [rows("a", n=7)])
    access = Access(at_least_version=newest + 1)
    reader, place = store_lookup.open_on_driver(store, access, None, follows=True)
    assert store_lookup.reader_here(place).get("a") == 7
    reader.close()
    shutil.rmtree(store)
    Path(f"{store}.copy").rename(store)
    for _ in ("one that is open", "a new one"):
        with pytest.raises(RolledBack):
            store_lookup.reader_here(place)


@pytest.mark.slow
def test_a_store_that_is_put_back_while_it_is_written(store: str) -> None:
    shutil.copytree(store, f"{store}.copy")
    newest = newest_of(store)
    with ftfile.kv.KeyValueStore(store, writer=WRITER, maintenance="none", at_least_version=newest) as opened:
        opened.put("a", 7)
        opened.commit()
    with ftfile.kv.KeyValueStore(store, writer=WRITER, maintenance="none", at_least_version=newest + 2) as opened:
        opened.put("a", 8)
        shutil.rmtree(store)
        Path(f"{store}.copy").rename(store)
        before = content_of(store)
        with pytest.raises(RolledBack):
            opened.commit()
    assert {*content_of(store)} == {*before}


def test_the_argument_of_a_store_is_no_option(store: str) -> None:
    with pytest.raises(ConfigError, match="give the version as the argument at_least_version="):
        ftfile.kv.KeyValueStore(store, writer=WRITER, options={"atLeastVersion": "1"})
