"""No file below a root is reached through a link, and special files are never opened."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, NotADirectory, NotAFile, NotFound, StorageError
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.context import open_filesystem
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable

CHANGES: dict[str, Callable[[LocalFileSystem, str], object]] = {
    "create": lambda fs, path: fs.create(f"{path}/new"),
    "create_exclusive": lambda fs, path: fs.create_exclusive(f"{path}/new", b"data"),
    "put": lambda fs, path: fs.put(f"{path}/file", b"data"),
    "put-new": lambda fs, path: fs.put(f"{path}/new", b"data"),
    "delete": lambda fs, path: fs.delete(f"{path}/file"),
    "rename-from": lambda fs, path: fs.rename(f"{path}/file", "taken"),
    "rename-to": lambda fs, path: fs.rename("mine", f"{path}/new"),
    "make": lambda fs, path: fs.make_directories(f"{path}/new"),
    "make-deep": lambda fs, path: fs.make_directories(f"{path}/new/new"),
    "make-itself": lambda fs, path: fs.make_directories(path),
    "remove": lambda fs, path: fs.remove_directory(f"{path}/empty"),
    "remove-itself": lambda fs, path: fs.remove_directory(path),
    "sync": lambda fs, path: fs.sync_directory(path),
    "list": lambda fs, path: fs.list(path),
    "names": lambda fs, path: fs.names_after(path, ""),
    "read": lambda fs, path: fs.read(f"{path}/file"),
    "stat": lambda fs, path: fs.stat(f"{path}/file"),
}


@pytest.fixture
def fs(tmp_path: Path) -> LocalFileSystem:
    return LocalFileSystem(str(tmp_path / "root"), SYSTEM)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    (directory / "empty").mkdir(parents=True)
    (directory / "file").write_bytes(b"secret")
    return directory


def content(directory: Path) -> dict[str, bytes | None]:
    paths = sorted(directory.rglob("*"))
    return {str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes() for path in paths}


@pytest.mark.parametrize("link", ["_ftfile", "_ftfile/log", "_ftfile/staged/q"])
@parametrize("change", CHANGES, quick=6)
def test_nothing_passes_a_link(fs: LocalFileSystem, outside: Path, link: str, change: str) -> None:
    fs.make_directories("")
    fs.put("mine", b"mine")
    Path(fs.root, link).parent.mkdir(parents=True, exist_ok=True)
    Path(fs.root, link).symlink_to(outside)
    before = content(outside)
    with pytest.raises(NotADirectory):
        CHANGES[change](fs, link)
    assert content(outside) == before
    assert fs.read("mine") == b"mine"


def test_the_error_names_the_link(fs: LocalFileSystem, outside: Path) -> None:
    fs.make_directories("_ftfile")
    Path(fs.root, "_ftfile/log").symlink_to(outside)
    with pytest.raises(NotADirectory, match=r"'log' is a symbolic link, .*: remove it"):
        fs.read("_ftfile/log/file")


def test_a_link_is_no_file(fs: LocalFileSystem, outside: Path) -> None:
    fs.make_directories("_ftfile")
    link = Path(fs.root, "_ftfile/hint")
    link.symlink_to(outside / "file")
    calls: tuple[Callable[[str], object], ...] = (fs.read, fs.stat, lambda path: fs.put(path, b"data"))
    for call in calls:
        with pytest.raises(NotAFile, match="not opened: remove it"):
            call("_ftfile/hint")
    assert not fs.exists("_ftfile/hint")
    (info,) = fs.list("_ftfile")
    assert (info.is_link, info.is_directory, info.size_bytes) == (True, False, 0)
    fs.delete("_ftfile/hint")
    assert content(outside) == {"empty": None, "file": b"secret"}


def test_nor_is_one_over_which_is_written_beside(fs: LocalFileSystem, outside: Path) -> None:
    fs.make_directories("")
    Path(fs.root, "_SUCCESS").symlink_to(outside / "file")
    with pytest.raises(NotAFile):
        fs.put("_SUCCESS", b"data")
    assert content(outside)["file"] == b"secret"


def test_a_second_name_of_another_file_is_not_written_to(fs: LocalFileSystem, outside: Path) -> None:
    fs.make_directories("_ftfile/hints")
    os.link(outside / "file", Path(fs.root, "_ftfile/hints/_clock"))
    fs.put("_ftfile/hints/_clock", b"now")
    assert fs.read("_ftfile/hints/_clock") == b"now"
    assert content(outside)["file"] == b"secret"


@pytest.mark.parametrize("path", ["_ftfile/x", "x"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_is_not_waited_for(
    fs: LocalFileSystem, path: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.make_directories("_ftfile")
    place = Path(fs.root, path)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        monkeypatch.chdir(place.parent)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(place.name)
    elif path == "x":
        place.symlink_to("/dev/zero")
    else:
        try:
            os.mknod(place, 0o20666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root makes devices")
    for call in (fs.open, lambda path: fs.put(path, b"data")):
        with pytest.raises(NotAFile, match="not opened"):
            call(path)


def test_a_link_that_comes_between_leads_nowhere(
    fs: LocalFileSystem, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory that was opened stays the one that is changed."""
    fs.make_directories("_ftfile/staged")
    fs.put("_ftfile/staged/file", b"mine")
    unlink = os.unlink

    def replace(name: str, *, dir_fd: int | None = None) -> None:
        staged = Path(fs.root, "_ftfile/staged")
        staged.rename(f"{staged}-moved")
        staged.symlink_to(outside)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", replace)
    fs.delete("_ftfile/staged/file")
    assert content(outside) == {"empty": None, "file": b"secret"}


def test_the_root_may_be_reached_by_links(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "to-root").symlink_to(outside)
    fs = LocalFileSystem(str(tmp_path / "to-root"), SYSTEM)
    fs.make_directories("_ftfile/staged/q")
    fs.make_directories("data")
    fs.create_exclusive("_ftfile/staged/q/part", b"rows")
    fs.rename("_ftfile/staged/q/part", "data/part")
    assert (outside / "data/part").read_bytes() == b"rows"


def test_links_are_followed_where_the_caller_says_so(tmp_path: Path, outside: Path) -> None:
    (outside / "data").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    fs = open_filesystem(str(outside), settings={"followlinks": "TRUE"})
    fs.make_directories("_ftfile/staged/q")
    fs.create_exclusive("_ftfile/staged/q/part", b"rows")
    fs.rename("_ftfile/staged/q/part", "data/part")
    assert fs.read("data/part") == b"rows"
    assert (tmp_path / "elsewhere/part").read_bytes() == b"rows"
    assert [info.path for info in fs.list("data")] == ["data/part"]
    with pytest.raises(NotADirectory, match=r"remove it, or set storage\.followLinks=true"):
        open_filesystem(str(outside)).read("data/part")
    with pytest.raises(ConfigError, match=r"storage\.followLinks='1': it must be true or false"):
        open_filesystem(str(outside), settings={"followLinks": "1"})


def test_a_directory_that_may_be_passed_and_not_listed(fs: LocalFileSystem) -> None:
    fs.make_directories("_ftfile/log")
    fs.put("_ftfile/log/x", b"data")
    Path(fs.root, "_ftfile").chmod(0o311)
    assert fs.read("_ftfile/log/x") == b"data"


def test_a_root_in_which_nothing_can_be_made() -> None:
    with pytest.raises(StorageError, match="choose another path"):
        LocalFileSystem("/proc", SYSTEM).make_directories("_ftfile/log")


def test_what_is_missing_is_not_found(fs: LocalFileSystem) -> None:
    for call in (fs.read, fs.stat, fs.list, fs.delete, fs.sync_directory):
        with pytest.raises(NotFound):
            call("_ftfile/log/x")
    fs.make_directories("_ftfile/log")
    assert fs.stat("_ftfile/log").is_directory
