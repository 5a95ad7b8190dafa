from __future__ import annotations

import contextlib
import errno
import io
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile.storage.local_system
from ftfile import kv
from ftfile.core.context import SYSTEM
from ftfile.core.errors import (
    AlreadyExists,
    ConfigError,
    DanglingLink,
    NotADirectory,
    NotFound,
    OutcomeUnknown,
    OutOfSpace,
    PermissionDenied,
    StorageError,
    StreamClosed,
    Unavailable,
    Unsupported,
)
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.local_errors import storage_error
from ftfile.storage.paths import NAME_BYTES_MAX
from ftfile.testing.contracts.exclusive import ExclusiveContract
from ftfile.testing.contracts.filesystem import FileSystemContract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ftfile.storage.api import FileSystem

NOBODY = 65534


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    """Here the real one is used."""


class _Unclosable(io.FileIO):
    def close(self) -> None:
        if not self.closed:
            super().close()
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


class TestLocal(FileSystemContract):
    clock_slack_ms = 500  # the kernel's clock ticks, and lags

    @pytest.fixture
    def filesystem(self, tmp_path: Path, calls: list[str]) -> FileSystem:
        self.calls = calls
        return LocalFileSystem(str(tmp_path), SYSTEM)

    def device_syncs(self, filesystem: FileSystem) -> int:  # noqa: ARG002
        return sum(call.startswith("fsync") for call in self.calls)

    @contextlib.contextmanager
    def full(self, filesystem: FileSystem) -> Iterator[FileSystem]:
        with limited(resource.RLIMIT_FSIZE, 3_000_000):
            yield filesystem

    @contextlib.contextmanager
    def unclosable(self, filesystem: FileSystem, path: str) -> Iterator[FileSystem]:  # noqa: ARG002
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalFileSystem, "_new_file", lambda _, name: _Unclosable(name.text, "x"))
            yield filesystem

    def stored(self, filesystem: FileSystem, path: str) -> bytes:
        assert isinstance(filesystem, LocalFileSystem)
        return Path(filesystem.root, path).read_bytes()


class TestLocalWithoutAtomicRename(ExclusiveContract):
    """Like NFS and some FUSE mounts: `renameat2` answers EINVAL there."""

    @pytest.fixture
    def filesystem(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileSystem:
        monkeypatch.setattr(ftfile.storage.local_system, "_libc", lambda: None)
        filesystem = LocalFileSystem(str(tmp_path), SYSTEM)
        filesystem.put("probe", b"")
        filesystem.rename("probe", "probed")
        assert not filesystem.capabilities.atomic_rename
        filesystem.delete("probed")
        return filesystem


@pytest.fixture
def local(tmp_path: Path) -> LocalFileSystem:
    return LocalFileSystem(str(tmp_path), SYSTEM)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that make things durable, as they happen, with the last name of each path."""
    seen: list[str] = []
    real_fsync, real_link, real_unlink, real_write = os.fsync, os.link, os.unlink, os.write

    def name(descriptor: int) -> str:
        return shorten(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def shorten(path: str) -> str:
        return "temporary" if path.endswith(".tmp") else Path(path).name

    def fsync(descriptor: int) -> None:
        seen.append(f"fsync {name(descriptor)}")
        real_fsync(descriptor)

    def write(descriptor: int, data: bytes) -> int:
        seen.append(f"write {name(descriptor)}")
        return real_write(descriptor, data)

    def link(source: str, target: str, **options: Any) -> None:
        seen.append(f"link {shorten(source)} {shorten(target)}")
        real_link(source, target, **options)

    def unlink(path: str, **options: Any) -> None:
        seen.append(f"unlink {shorten(path)}")
        real_unlink(path, **options)

    for function in (fsync, write, link, unlink):
        monkeypatch.setattr(os, function.__name__, function)
    return seen


def fail(monkeypatch: pytest.MonkeyPatch, function: str, code: int, *, directories: bool) -> None:
    """Let calls of a function on directories, or on files, fail with an errno."""
    real = getattr(os, function)

    def failing(descriptor: int, *arguments: object) -> object:
        if Path(f"/proc/self/fd/{descriptor}").is_dir() == directories:
            raise OSError(code, os.strerror(code))
        return real(descriptor, *arguments)

    monkeypatch.setattr(os, function, failing)


@contextlib.contextmanager
def limited(kind: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def test_a_relative_root_is_refused() -> None:
    with pytest.raises(ConfigError, match="relative"):
        LocalFileSystem("out", SYSTEM)


def test_create_exclusive_is_durable_in_the_order_that_a_power_cut_demands(
    local: LocalFileSystem, calls: list[str]
) -> None:
    local.make_directories("log")
    local.create_exclusive("log/0", b"record")
    assert calls == [
        "write temporary",
        "fsync temporary",
        "link temporary 0",
        "unlink temporary",
        "fsync log",
    ]


def test_a_lost_race_leaves_no_temporary_file(local: LocalFileSystem, calls: list[str]) -> None:
    local.create_exclusive("0", b"first")
    calls.clear()
    with pytest.raises(AlreadyExists):
        local.create_exclusive("0", b"second")
    assert calls[-1] == "unlink temporary"
    assert [info.path for info in local.list("")] == ["0"]


def test_hsync_and_sync_directory_reach_the_device(local: LocalFileSystem, calls: list[str]) -> None:
    local.make_directories("directory")
    with local.create("directory/file") as stream:
        stream.write(b"data")
        stream.hsync()
    local.sync_directory("directory")
    assert calls == ["write file", "fsync file", "fsync directory"]


def test_a_missing_root_is_made_with_durable_names(tmp_path: Path, calls: list[str]) -> None:
    local = LocalFileSystem(str(tmp_path / "outer" / "root"), SYSTEM)
    local.make_directories("inner")
    assert calls == [f"fsync {tmp_path.name}", "fsync outer"]
    calls.clear()
    local.make_directories("inner/most")
    assert calls == []
    LocalFileSystem(local.root, SYSTEM).make_directories("")  # another process may have died before its sync
    assert calls == ["fsync outer"]


def test_short_writes_are_continued(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    content = bytes(range(256))
    with local.create("stream") as stream:
        stream.write(content)
    local.create_exclusive("exclusive", content)
    local.put("put", content)
    assert {local.read(path) for path in ("stream", "exclusive", "put")} == {content}


def test_short_reads_are_continued(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: real(descriptor, min(length, 7), offset))
    content = bytes(range(256))
    local.put("file", content)
    assert local.read("file") == content


def test_a_failed_fsync_is_final(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = local.create("file")
    stream.write(b"data")
    with monkeypatch.context() as patch:
        fail(patch, "fsync", errno.EIO, directories=False)
        with pytest.raises(OutcomeUnknown, match="file"):
            stream.hsync()
    # The kernel has marked the pages clean: another fsync would lie.
    for call in (stream.hsync, stream.close, lambda: stream.write(b"more")):
        with pytest.raises(StreamClosed, match="new name"):
            call()
    assert stream.abort()
    assert not local.exists("file")


def test_a_failed_sync_of_the_content_leaves_no_exclusive_file(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "fsync", errno.EIO, directories=False)
    with pytest.raises(OutcomeUnknown):
        local.create_exclusive("file", b"data")
    assert local.list("") == []


def test_a_failed_sync_of_the_name_leaves_the_outcome_unknown(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Even an error that normally causes a retry: the file already exists.
    for code in (errno.EIO, errno.EMFILE):
        with monkeypatch.context() as patch:
            fail(patch, "fsync", code, directories=True)
            with pytest.raises(OutcomeUnknown, match="it exists"):
                local.create_exclusive(f"file-{code}", b"data")
        assert local.read(f"file-{code}") == b"data"
    assert len(local.list("")) == 2


def test_a_write_cut_short_by_the_disk_leaves_no_exclusive_file(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "write", errno.ENOSPC, directories=False)
    with pytest.raises(OutOfSpace, match="free space"):
        local.create_exclusive("file", b"data")
    assert local.list("") == []


def test_a_lost_reply_of_link_is_recognised(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(source: str, target: str, **options: Any) -> None:
        real(source, target, **options)
        raise FileExistsError(errno.EEXIST, "sent again by the NFS client")

    monkeypatch.setattr(os, "link", link)
    local.create_exclusive("file", b"data")
    assert [(info.path, info.size_bytes) for info in local.list("")] == [("file", 4)]


def test_so_is_that_of_a_rename_by_link(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    real, lost = os.link, True
    monkeypatch.setattr(ftfile.storage.local_system, "_libc", lambda: None)

    def link(source: str, target: str, **options: Any) -> None:
        if lost:
            real(source, target, **options)
        raise TimeoutError(errno.ETIMEDOUT, "the NFS server does not answer")

    monkeypatch.setattr(os, "link", link)
    local.put("source", b"data")
    local.rename("source", "target")
    assert [info.path for info in local.list("")] == ["target"]
    lost = False
    local.put("other", b"data")
    for target in ("target", "free"):
        with pytest.raises(StorageError):
            local.rename("other", target)
    assert sorted(info.path for info in local.list("")) == ["other", "target"]


def test_a_rename_by_link_whose_unlink_fails_is_unknown(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("source", b"data")
    monkeypatch.setattr(ftfile.storage.local_system, "_libc", lambda: None)

    def unlink(path: str, **_: Any) -> None:
        raise PermissionError(errno.EACCES, "no", path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        with pytest.raises(OutcomeUnknown, match="target"):
            local.rename("source", "target")
    assert local.stat("source").identity == local.stat("target").identity


def test_a_full_disk(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, "write", errno.ENOSPC, directories=False)
    with pytest.raises(OutOfSpace, match=r"free space"):
        local.put("hint", b"data")


def test_a_file_that_may_not_grow(local: LocalFileSystem) -> None:
    stream = local.create("file")
    with limited(resource.RLIMIT_FSIZE, 1_000), pytest.raises(OutOfSpace, match="ulimit -f"):
        stream.write(b"x" * 2_000)
    with pytest.raises(StreamClosed):
        stream.write(b"x")
    stream.abort()
    assert local.list("") == []


def test_too_many_open_files_may_be_tried_again(local: LocalFileSystem) -> None:
    local.put("file", b"data")
    with limited(resource.RLIMIT_NOFILE, 1), pytest.raises(Unavailable, match="ulimit -n"):
        local.read("file")
    assert local.read("file") == b"data"
    with local.open("file") as file:
        with limited(resource.RLIMIT_NOFILE, 1), pytest.raises(Unavailable, match="ulimit -n"):
            file.mapped()
        assert bytes(file.mapped() or b"") == b"data"


@pytest.mark.parametrize(("mode", "is_mapped"), [(0o600, True), (0o644, True), (0o664, False), (0o646, False)])
def test_a_file_that_others_could_cut_is_not_mapped(local: LocalFileSystem, mode: int, is_mapped: bool) -> None:
    """Who reads behind the end of a file by a mapping is killed."""
    local.put("file", b"data")
    Path(local.root, "file").chmod(mode)
    with local.open("file") as file:
        assert (file.mapped() is not None) == is_mapped
        assert file.read_at(0, 4) == b"data"


def test_nor_is_that_of_another_user(local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    local.put("file", b"data")
    owner = Path(local.root, "file").stat().st_uid
    with local.open("file") as file:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        assert (file.mapped() is None) == (owner != 0)
        if os.getuid() == 0:
            os.chown(Path(local.root, "file"), 65_534, -1)
            assert file.mapped() is None


def test_without_permission(local: LocalFileSystem) -> None:
    local.put("file", b"data")
    Path(local.root).chmod(0)
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(NOBODY)
    try:
        for call in (lambda: local.read("file"), lambda: local.create("new"), lambda: local.list("")):
            with pytest.raises(PermissionDenied, match="user id"):
                call()
    finally:
        if was_root:
            os.seteuid(0)
        Path(local.root).chmod(0o700)


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    local = LocalFileSystem(str(tmp_path / "file"), SYSTEM)
    for call in (lambda: local.list(""), lambda: local.create("new"), lambda: local.make_directories("log")):
        with pytest.raises(NotADirectory, match="move it or choose another path"):
            call()
    assert not local.stat("").is_directory


@pytest.mark.parametrize("below", ["", "/some/where"])
def test_a_root_that_is_or_is_below_a_dangling_link(tmp_path: Path, below: str) -> None:
    (tmp_path / "link").symlink_to("no{where}")
    local = LocalFileSystem(f"{tmp_path}/link{below}", SYSTEM)
    for call in (
        lambda: local.make_directories("log"),
        lambda: local.stat(""),
        lambda: local.list(""),
        lambda: local.create("file"),
        lambda: ftfile.open(local.root),
        lambda: kv.open(local.root),
        lambda: kv.KeyValueStore(local.root, writer="w"),
    ):
        text = r"link' is a symbolic link to 'no\{where\}', which does not exist"
        with pytest.raises((NotADirectory, ConfigError), match=text):
            call()
    (tmp_path / "no{where}").mkdir()
    local.make_directories("log")
    assert local.stat("log").is_directory


@pytest.mark.parametrize(
    "target",
    ["nowhere", "file/x", "dangling", "x" * (NAME_BYTES_MAX + 1)],
    ids=["to nothing", "through a file", "to itself", "too long"],
)
def test_dangling_links_are_not_listed_where_links_are_followed(tmp_path: Path, target: str) -> None:
    local = LocalFileSystem(str(tmp_path), SYSTEM, follow_links=True)
    local.put("file", b"")
    Path(local.root, "dangling").symlink_to(target)
    assert [info.path for info in local.list("")] == ["file"]
    with pytest.raises(DanglingLink, match=r"a broken symbolic link to .*: correct the link, or remove it"):
        local.stat("dangling")


def test_a_directory_that_is_replaced_while_it_is_listed_is_listed_as_it_was(
    local: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries are never mixed with entries of another directory."""
    local.make_directories("d")
    local.put("d/file", b"12")
    scandir, directory = os.scandir, Path(local.root, "d")

    def replace(opened: int) -> Iterator[os.DirEntry[str]]:
        entries = scandir(opened)
        directory.rename(f"{directory}-moved")
        directory.mkdir()
        (directory / "file").write_bytes(b"123")
        return entries

    monkeypatch.setattr(os, "scandir", replace)
    assert [(info.path, info.size_bytes) for info in local.list("d")] == [("d/file", 2)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOENT, NotFound),
        (errno.EEXIST, AlreadyExists),
        (errno.ENOTDIR, NotADirectory),
        (errno.EACCES, PermissionDenied),
        (errno.EPERM, PermissionDenied),
        (errno.EROFS, PermissionDenied),
        (errno.ENOSPC, OutOfSpace),
        (errno.EDQUOT, OutOfSpace),
        (errno.EFBIG, OutOfSpace),
        (errno.EXDEV, Unsupported),
        (errno.ENAMETOOLONG, Unsupported),
        (errno.EOPNOTSUPP, Unsupported),
        (errno.EMFILE, Unavailable),
        (errno.EAGAIN, Unavailable),
        (errno.ENOMEM, Unavailable),
    ],
)
def test_errors_of_the_system(code: int, kind: type[StorageError]) -> None:
    for operation in ("stat", "rename"):
        error = storage_error(OSError(code, os.strerror(code)), operation, "a/b", "/data/out")
        assert type(error) is kind
        assert (error.operation, error.path) == (operation, "a/b")
        assert str(error).startswith(f"a/b: {operation} failed: {os.strerror(code)}: ")
        assert os.strerror(code) in str(error)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, None])
def test_after_other_errors_a_change_may_have_happened(code: int | None) -> None:
    broken = OSError("broken") if code is None else OSError(code, os.strerror(code))
    for operation, kind in (
        ("open", Unavailable),
        ("read_at", Unavailable),
        ("write", OutcomeUnknown),
        ("delete", OutcomeUnknown),
        ("create", OutcomeUnknown),
    ):
        assert type(storage_error(broken, operation, "a", "/data/out")) is kind
