"""Wrong paths: an input that cannot be read, and a state directory that contains other files or is also an input."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.core.errors import ConfigError, PermissionDenied, StorageError
from ftfile.storage import local, local_status, registry
from ftfile.testing.context import repeatable
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem, RootedFileSystem
from ftfile.testing.micro_batch import MicroBatch
from ftfile.testing.source_run import SourceRun
from tests.kit.files_run import FilesRun
from tests.kit.parameters import parametrize
from tests.unit.source.plans import COLUMNS, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.local_status import Status
    from ftfile.storage.local_system import Name
    from ftfile.storage.paths import Location

NEVER_MIND = 10**9


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    with repeatable():
        yield Source(tmp_path)


def begin(path: str, state: str, **options: str) -> None:
    """Run the steps of Spark up to the plan of the first batch."""
    run = FilesRun(path, COLUMNS, {"fileFormat": "text", "stateLocation": state, **options})
    run.started().latest_offset({"kind": "start"})


# ------------------------------------------------------------------------------- the input, on a local disk


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nowhere", "path='.*/nowhere' does not exist, or is a broken link: create the directory"),
        ("nowhere/deep", "path='.*/nowhere/deep' does not exist"),
        ("nowhere/*.log", "path='.*/nowhere' does not exist, or is a broken link"),
        ("nowhere/*/deep", "path='.*/nowhere' does not exist"),
        ("dangling", "path='.*/dangling' does not exist, or is a broken link"),
        ("dangling/*.log", "leads through a file or a broken link"),
        ("a.log/b.log", "leads through a file or a broken link, so nothing can be below it"),
        ("a.log/*.log", "leads through a file"),
        ("a.log/b/*.log", "leads through a file"),
    ],
)
def test_no_input_is_there(source: Source, path: str, text: str) -> None:
    source.add("a.log")
    (source.path / "dangling").symlink_to(source.path / "gone")
    with pytest.raises(ConfigError, match=text):
        begin(str(source.path / path), str(source.state), followLinks="true")
    assert not source.state.exists()


@pytest.mark.parametrize("path", ["", "a.log", "*.log", "not/*.log", "*/there", "link.log"])
def test_an_input_is_there_or_may_come(source: Source, path: str) -> None:
    source.add("a.log")
    (source.path / "not").mkdir()
    (source.path / "link.log").symlink_to(source.path / "a.log")
    begin(str(source.path / path), str(source.state), followLinks="true")


def test_the_input_is_a_link(source: Source) -> None:
    source.add("a.log")
    (source.path / "link.log").symlink_to(source.path / "a.log")
    with pytest.raises(ConfigError, match=r"link.log': it is a link, .*\. followLinks=true follows links"):
        begin(str(source.path / "link.log"), str(source.state))


@pytest.mark.parametrize("call", ["stat", "open"])
def test_the_input_may_not_be_looked_at(source: Source, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test raises the error of the system, because the superuser has all permissions."""
    source.add("a.log")
    original_open = os.open

    def check(path: str, above: int | None) -> None:
        place = path if above is None else Path(f"/proc/self/fd/{above}").readlink() / path
        if str(place) == str(source.path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if not flags & os.O_PATH:  # without the permission to list the directory
            check(path, kwargs.get("dir_fd"))
        return original_open(path, flags, *args, **kwargs)

    def status_of(name: Name) -> Status:
        check(name.text, name.directory)
        return local_status.status_of(name)

    if call == "open":
        monkeypatch.setattr(os, "open", opened)
    else:
        monkeypatch.setattr(local, "status_of", status_of)
    with pytest.raises(PermissionDenied, match=rf"^file://{source.path}: .* failed: Permission denied"):
        begin(str(source.path), str(source.state))
    monkeypatch.undo()
    assert not source.state.exists()


# ------------------------------------------------------------------------------- files of ftfile's own directories


def write_rows(path: Path) -> None:
    """Write `a=1/b=2/part-….json` below the path as ftfile."""
    columns = {"a": "long", "b": "long", "value": "string"}
    batch = MicroBatch(str(path), columns, {"fileFormat": "json", "partitionBy": "a,b", "onNewQuery": "continue"})
    batch.run(0, [[{"a": 1, "b": 2, "value": "x"}]])


@parametrize(
    ("path", "options"),
    [
        ("*", {}),
        ("{out,b.log}", {}),
        ("", {"recursiveFileLookup": "true"}),
        ("*/a=1/*", {}),
        ("o*/a=1/b=2/part-*", {}),
        ("out/a=1", {}),
        ("out/a=1/b=2", {}),
        ("out/a=1/*", {}),
        ("out/a=1/b=2/part-*", {}),
        ("out/a=1/b=2/{PART}", {}),
    ],
    quick=4,
)
def test_rows_that_ftfile_writes_are_no_foreign_files(source: Source, path: str, options: dict[str, str]) -> None:
    write_rows(source.path / "out")
    part = next(source.path.glob("out/a=1/b=2/part-*"))
    with pytest.raises(ConfigError, match=r"files of an ftfile directory, 'file://.*/in/out', .*omit fileFormat"):
        begin(str(source.path / path).replace("{PART}", part.name), str(source.state), **options)


@pytest.mark.slow
def test_rows_that_ftfile_writes_may_come_later_and_be_left_out(source: Source) -> None:
    (source.path / "out").mkdir()
    source.add("a.log")
    source.add("out/b.log")
    run = source.query(recursiveFileLookup="true")
    run.run()
    source.check(run)
    write_rows(source.path / "out")
    with pytest.raises(ConfigError, match=r"an ftfile directory, .*; or exclude its files with ignoreFilePattern"):
        run.run()
    for options in ({"ignoreFilePattern": r".*/out/.*"}, {"pathGlobFilter": "a.*"}):
        left = source.query(recursiveFileLookup="true", **options)
        left.run()
        assert [row["value"] for row in left.rows] == ["a.log 0"]


def test_a_state_below_the_input_is_no_directory_of_rows(source: Source) -> None:
    source.state = source.path / "state"
    source.add("a.log")
    run = source.query(recursiveFileLookup="true")
    run.run()
    source.add(f"{source.log_of(run).relative_to(source.path)}/b.log")
    run.run()
    source.check(run)


def test_dead_letters_may_be_read_as_foreign_files(source: Source) -> None:
    write_rows(source.path)
    letters = source.path / "_ftfile/deadLetters"
    letters.mkdir()
    (letters / "x.deadLetters").write_text("one\n")
    run = FilesRun(str(letters), COLUMNS, {"fileFormat": "text", "stateLocation": str(source.state)})
    run.run()
    assert run.rows == [{"value": "one"}]


# ------------------------------------------------------------------------------- the input, on another storage system


@pytest.fixture
def guarded() -> Iterator[Callable[..., FaultyFileSystem]]:
    """Register `guarded://…` as a storage system in memory that refuses the given calls."""
    storage = MemoryFileSystem("guarded")

    def install(*plan: Fault) -> FaultyFileSystem:
        found = FaultyFileSystem(storage, plan)

        def open_location(location: Location) -> RootedFileSystem:
            return RootedFileSystem(found, location.path[1:])

        registry.register("guarded", open_location)
        return found

    yield install
    registry.unregister("guarded")
    MemoryFileSystem.drop("guarded")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/nowhere", "path='guarded:/+nowhere' does not exist"),
        ("/nowhere/*", "path='guarded:/+nowhere' does not exist"),
        ("/in/a.log/x", "leads through a file"),
        ("/in/a.log/*", "leads through a file"),
    ],
)
def test_no_input_is_in_another_storage(guarded: Callable[..., FaultyFileSystem], path: str, text: str) -> None:
    storage = guarded()
    storage.make_directories("in")
    storage.put("in/a.log", b"one\n")
    with pytest.raises(ConfigError, match=text):
        begin(f"guarded://{path}", "guarded:///state")
    begin("guarded:///in", "guarded:///state")
    assert not storage.exists("nowhere")


@pytest.mark.parametrize("operation", ["stat", "list"])
def test_another_storage_may_not_be_looked_at(guarded: Callable[..., FaultyFileSystem], operation: str) -> None:
    storage = guarded(Fault(PermissionDenied, times=NEVER_MIND, operations=frozenset({operation}), path="in"))
    storage.make_directories("in")
    storage.put("in/a.log", b"one\n")
    with pytest.raises(PermissionDenied, match=f"guarded:.*/in: {operation} failed"):
        begin("guarded:///in", "guarded:///state")
    assert not storage.exists("state")


def test_above_the_input_nothing_need_be_looked_at(guarded: Callable[..., FaultyFileSystem]) -> None:
    """A permission for one directory of a bucket is sufficient."""
    storage = guarded(Fault(PermissionDenied, times=NEVER_MIND, path="_ftfile*"))
    storage.make_directories("in/deep")
    storage.put("in/deep/a.log", b"one\n")
    with pytest.raises(PermissionDenied):
        storage.read("_ftfile/directory/_format")
    begin("guarded:///in/deep", "guarded:///state")


# ------------------------------------------------------------------------------- the state


def refused(call: Callable[[str], object], log: str) -> None:
    with pytest.raises(ConfigError, match=r"the state of a stream that reads files.*ftfile.source_status"):
        call(log)


@parametrize(
    "call",
    [
        ftfile.open,
        lambda path: ftfile.vacuum(path, dry_run=False),
        lambda path: ftfile.vacuum(path, retention="0s", force=True, dry_run=False),
        ftfile.compact,
        ftfile.flush,
        lambda path: ftfile.drop(path, {"day": "7"}),
        ftfile.repair,
        lambda path: ftfile.repair(path, dry_run=False, accept_lost_records=True),
        lambda path: SourceRun(path, COLUMNS).run(),
        lambda path: MicroBatch(path, COLUMNS, {"fileFormat": "json"}).run_batch_write("1" * 32, [[{"value": "x"}]]),
        lambda path: MicroBatch(path, COLUMNS, {"fileFormat": "json", "onNewQuery": "continue"}).run(
            0, [[{"value": "x"}]]
        ),
    ],
    ids=[
        *("open", "vacuum", "vacuum all", "compact", "flush", "drop", "look for repairs", "repair", "follow"),
        *("write a batch", "write a stream"),
    ],
    quick=3,
)
def test_a_log_of_plans_is_no_directory_of_rows(source: Source, call: Callable[[str], object]) -> None:
    source.add("a.log", 2)
    run = source.query()
    run.run()
    source.add("a.log", 2)
    run.run()
    refused(call, str(source.log_of(run)))
    source.add("b.log")
    run.restart()
    run.run()
    source.check(run)


def test_the_directory_of_all_states_is_no_directory_of_rows(source: Source) -> None:
    source.add("a.log")
    source.query().run()
    for call in (ftfile.open, ftfile.vacuum, ftfile.compact, ftfile.repair):
        with pytest.raises(ConfigError, match="is not an ftfile directory"):
            call(str(source.state))


def test_a_directory_of_rows_or_of_one_source_is_no_place_for_states(source: Source, tmp_path: Path) -> None:
    source.add("a.log")
    run = source.query()
    run.run()
    rows = tmp_path / "rows"
    MicroBatch(str(rows), COLUMNS, {"fileFormat": "json"}).run(0, [[{"value": "x"}]])
    for place in (rows, source.log_of(run)):
        before = sorted(place.rglob("*"))
        with pytest.raises(ConfigError, match=r"stateLocation=.* give the state a separate directory"):
            begin(str(source.path), str(place))
        assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("option", ["stateLocation", "checkpointLocation"])
def test_the_log_of_rows_is_no_place_for_states(source: Source, tmp_path: Path, option: str) -> None:
    """A vacuum of the directory would delete the state, because it deletes unknown files there."""
    place = f"{tmp_path}/rows/_ftfile/staged/s"
    run = FilesRun(str(source.path), COLUMNS, {"fileFormat": "text", option: place})
    with pytest.raises(ConfigError, match=rf"{option}='.*/s' lies within _ftfile of the directory .*/rows'"):
        run.started()


@pytest.mark.parametrize("operation", ["make_directories", "create_exclusive"])
def test_the_state_may_not_be_written(guarded: Callable[..., FaultyFileSystem], operation: str) -> None:
    fault = Fault(PermissionDenied, times=NEVER_MIND, operations=frozenset({operation}), path="state/*")
    storage = guarded(fault)
    storage.make_directories("in")
    storage.put("in/a.log", b"one\n")
    run = FilesRun("guarded:///in", COLUMNS, {"fileFormat": "text", "stateLocation": "guarded:///state"})
    for _ in range(2):
        with pytest.raises(StorageError, match=f"guarded:.*state/.*: {operation} failed"):
            run.run()
        run.restart()
    assert not run.offsets
    guarded()
    run.run()
    assert run.rows == [{"value": "one"}]
