"""The status of local files, with and without the system call that knows their times of birth."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.storage import local_status
from ftfile.storage.local_status import StatusReader, status_of
from ftfile.storage.local_system import Name

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    os.utime(path, ns=(0, -1_500_000))
    return path


def failing(code: int) -> Any:
    """Return a system call that fails."""

    def statx(*_: object) -> int:
        ctypes.set_errno(code)
        return -1

    return statx


def test_a_status_is_that_of_the_system(file: Path) -> None:
    found, status = file.stat(), status_of(Name(str(file)))
    assert (status.mode, status.size_bytes, status.inode) == (found.st_mode, 3, found.st_ino)
    assert status.modified_ms == found.st_mtime_ns // 1_000_000 == -2
    assert status.device == os.major(found.st_dev) << 32 | os.minor(found.st_dev)


def test_a_time_of_birth_stays_if_a_file_is_written_and_renamed(file: Path) -> None:
    born_ns = status_of(Name(str(file))).born_ns
    told = subprocess.run(["stat", "-c", "%W", str(file)], check=True, capture_output=True, text=True).stdout
    assert int(told) == (0 if born_ns is None else born_ns // 10**9)  # 0 if the file system does not know it
    file.write_bytes(b"other")
    assert status_of(Name(str(file.rename(file.with_name("b"))))).born_ns == born_ns


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("code", [None, errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_without_the_system_call_only_the_time_of_birth_is_missing(
    file: Path, monkeypatch: pytest.MonkeyPatch, code: int | None, follow: bool
) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    directory = os.open(file.parent, os.O_RDONLY)
    try:
        expected = StatusReader(directory, follow=follow).read("link")
        monkeypatch.setattr(local_status, "_statx", lambda: None if code is None else failing(code))
        assert StatusReader(directory, follow=follow).read("link") == expected._replace(born_ns=None)
    finally:
        os.close(directory)


def test_a_missing_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        status_of(Name(str(tmp_path / "nothing")))
    monkeypatch.setattr(local_status, "_statx", lambda: failing(errno.EACCES))
    with pytest.raises(PermissionError):
        status_of(Name(str(tmp_path)))
