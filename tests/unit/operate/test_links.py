"""Links below `_ftfile`: no operation deletes, moves or writes a file outside, and every operation ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import NotADirectory, NotAFile
from ftfile.log.checkpoints import list_checkpoints, write_checkpoint
from ftfile.log.commit_log import CommitLog
from ftfile.log.format import layout
from ftfile.log.places import read_note, walk
from ftfile.log.records import read_published
from ftfile.log.sealed import SealedFileSystem
from ftfile.operate.verify.verify_directory import verify
from ftfile.storage.local import LocalFileSystem
from ftfile.tools.migrate.inventory import list_foreign
from ftfile.tools.migrate.undo import put_back, remove_empty
from tests.kit.parameters import parametrize
from tests.unit.log.conftest import Driver

if TYPE_CHECKING:
    from ftfile.filters.keys import Keys

ID = "0123456789abcdef0123456789abcdef"
OLD_S = 1_000_000_000


@pytest.fixture
def fs(tmp_path: Path) -> LocalFileSystem:
    return LocalFileSystem(str(tmp_path / "root"), SYSTEM)


@pytest.fixture
def driver(fs: LocalFileSystem) -> Driver:
    driver = Driver(fs)
    for batch in range(3):
        driver.commit_new(batch)
    return driver


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    (directory / "empty").mkdir(parents=True)
    for name in ("file", "file.retired", f".{ID}.tmp", f"x-{ID[:12]}.json"):
        (directory / name).write_bytes(b"secret")
        os.utime(directory / name, (OLD_S, OLD_S))
    return directory


def put_link(fs: LocalFileSystem, path: str, target: Path) -> None:
    """Replace a directory by a link, or create a link. The link is as old as its target files."""
    link = Path(fs.root, path)
    if link.is_dir():
        link.rename(f"{fs.root}-moved")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    os.utime(link, (OLD_S, OLD_S), follow_symlinks=False)


def vacuum(fs: LocalFileSystem, *, dry_run: bool = False) -> list[str]:
    report = ftfile.vacuum(fs.root, dry_run=dry_run, retention="0s", force=True)
    return [file.path for file in report.files]


@pytest.mark.usefixtures("driver")
class TestVacuum:
    @parametrize("place", ["staged/q", "staged/q/0", "retired", "deadLetters/q", "wal/w"], quick=3)
    def test_leaves_what_is_behind_a_link(self, fs: LocalFileSystem, outside: Path, place: str) -> None:
        put_link(fs, f"{layout.META}/{place}", outside)
        before = sorted(outside.rglob("*"))
        assert not [path for path in vacuum(fs, dry_run=True) if path.startswith(f"{layout.META}/{place}/")]
        vacuum(fs)
        assert sorted(outside.rglob("*")) == before

    def test_takes_the_link_itself(self, fs: LocalFileSystem, outside: Path) -> None:
        put_link(fs, f"{layout.STAGED}/q/file", outside / "file")
        assert vacuum(fs) == [f"{layout.STAGED}/q/file"]
        assert (outside / "file").exists()
        assert not Path(fs.root, layout.STAGED, "q/file").is_symlink()

    @parametrize(
        "text",
        [b"keep", b"_ftfile/directory/_format", f"_ftfile/x-{ID[:12]}".encode(), b"../outside/file", b"", b"\xff\0"],
        ids=["another", "own", "own with the id", "above", "empty", "damaged"],
        quick=3,
    )
    def test_believes_no_note_of_another_file(
        self, fs: LocalFileSystem, text: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        fs.put("keep", b"data")
        fs.put(f"{layout.META}/x-{ID[:12]}", b"data")
        note = layout.note_path(f"{layout.staged_directory('q')}/_", f"00000-0-{ID}")
        fs.make_directories(layout.parent(note))
        fs.put(note, text)
        for path in ("keep", f"{layout.META}/x-{ID[:12]}", note):
            os.utime(Path(fs.root, path), (OLD_S, OLD_S))
        assert vacuum(fs) == [note]
        assert fs.exists("keep")
        assert fs.exists(layout.FORMAT_FILE)
        assert "is ignored: it does not name its file" in caplog.text

    def test_believes_the_note_of_its_own_file(self, fs: LocalFileSystem) -> None:
        note = layout.note_path(f"{layout.staged_directory('q')}/_", f"00000-0-{ID}")
        fs.make_directories(layout.parent(note))
        fs.put(note, f"a/x-{ID[:12]}.json".encode())
        assert read_note(fs, note) == f"a/x-{ID[:12]}.json"
        assert read_note(SealedFileSystem(fs, cast("Keys", None)), note) is None


@pytest.mark.parametrize("place", layout.DIRECTORIES[1:])
def test_verify_names_a_link_and_ends(fs: LocalFileSystem, driver: Driver, outside: Path, place: str) -> None:
    assert driver.log.refresh().version == 2
    put_link(fs, place, outside)
    report = verify(fs)
    assert [(finding.code, finding.path) for finding in report.findings] == [("link", place)]
    assert not report.complete


def test_verify_goes_on_beside_a_link_to_a_file(fs: LocalFileSystem, driver: Driver, outside: Path) -> None:
    path = layout.record_path(3)
    put_link(fs, path, outside / "file")
    report = verify(fs)
    assert ("link", path) in [(finding.code, finding.path) for finding in report.findings]
    assert report.version == driver.log.refresh().version == 2


def test_a_hint_is_neither_read_nor_written_by_a_link(fs: LocalFileSystem, driver: Driver, outside: Path) -> None:
    path = Path(fs.root, layout.PUBLISHED_HINT)
    path.rename(outside / "hint")
    path.symlink_to(outside / "hint")
    before = (outside / "hint").read_bytes()
    assert read_published(fs) is None
    driver.commit_new(3)
    assert (outside / "hint").read_bytes() == before


def test_commits_stop_at_a_log_behind_a_link(fs: LocalFileSystem, driver: Driver, outside: Path) -> None:
    put_link(fs, layout.LOG, outside)
    with pytest.raises(NotADirectory, match=r"'log' is a symbolic link"):
        driver.commit_new(3)
    assert not list(outside.glob("*.record"))


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_a_checkpoint_that_is_no_file_is_passed_over(
    fs: LocalFileSystem, driver: Driver, outside: Path, kind: str
) -> None:
    write_checkpoint(fs, fs.context.ids, driver.log.refresh())
    (name,) = list_checkpoints(fs)
    other = Path(fs.root, layout.log_checkpoint_path(layout.CheckpointName(7, "ab")))
    if kind == "directory":
        other.mkdir()
    elif kind == "pipe":
        os.mkfifo(other)
    else:
        other.symlink_to(outside / "file")
    assert CommitLog(fs).checkpoints.newest() == name
    assert CommitLog(fs).refresh().version == 2


def test_a_checkpoint_that_is_listed_and_never_there_is_not_looked_for_for_ever(
    fs: LocalFileSystem, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(fs, fs.context.ids, driver.log.refresh())
    (name,) = list_checkpoints(fs)
    log = CommitLog(fs)
    monkeypatch.setattr("ftfile.log.checkpoints.list_checkpoints", lambda _: [name, layout.CheckpointName(7, "ab")])
    assert log.refresh().version == 2


def test_loops_of_links_end(fs: LocalFileSystem, driver: Driver) -> None:
    fs.make_directories("a")
    Path(fs.root, "a/loop").symlink_to(Path(fs.root))
    put_link(fs, f"{layout.STAGED}/loop", Path(fs.root))
    assert {finding.code for finding in verify(fs).findings} == {"link", "unknown-files"}
    assert len(vacuum(fs, dry_run=True)) == 1
    for each in (fs, LocalFileSystem(fs.root, SYSTEM, follow_links=True)):
        assert len([path for path in walk(each, "") if "loop" in path]) == 2
    assert driver.log.refresh().version == 2


def test_an_inventory_refuses_links_or_passes_each_directory_once(fs: LocalFileSystem) -> None:
    fs.make_directories("a")
    fs.put("a/x.json", b"{}")
    Path(fs.root, "a/loop").symlink_to(Path(fs.root))
    with pytest.raises(NotAFile, match=r"a link, .*: remove it, or set storage\.followLinks=true"):
        list_foreign(fs)
    assert list(list_foreign(LocalFileSystem(fs.root, SYSTEM, follow_links=True))) == ["a/x.json"]


def test_undoing_a_migration_puts_no_link_back(fs: LocalFileSystem, driver: Driver, outside: Path) -> None:
    assert driver.log.refresh().version == 2
    put_link(fs, f"{layout.MIGRATED}/_delta_log", outside)
    put_link(fs, f"{layout.MIGRATED}/x.json.migrated", outside / "file")
    assert put_back(fs) == ()
    remove_empty(fs, layout.MIGRATED)
    assert (outside / "empty").is_dir()


def test_nothing_is_removed_behind_a_link(fs: LocalFileSystem, outside: Path) -> None:
    fs.make_directories("_delta_log")
    Path(fs.root, "_delta_log/link").symlink_to(outside)
    remove_empty(fs, "_delta_log")
    assert (outside / "empty").is_dir()
