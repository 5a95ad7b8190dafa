"""The files that a discard may delete: only files whose names contain the identity of the attempt."""

from __future__ import annotations

import pytest

from ftfile.core.context import SYSTEM
from ftfile.core.errors import PermissionDenied, Unavailable
from ftfile.log.format import layout
from ftfile.storage.local import LocalFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.writing.dropped_files import DroppedFile, delete_dropped, is_own

STEM = layout.attempt_stem("orders", 5, 0, 1)


@pytest.mark.parametrize(
    ("path", "file_id", "expected"),
    [
        (f"{layout.STAGED}/orders/_5-00000-1-abc.staged", "abc", True),
        (f"{layout.STAGED}/orders/_5-00000-1-abc.spool", "", True),
        (f"{layout.STAGED}/orders/_4-00000-1-abc.spool", "abc.16.0", False),
        (f"{layout.STAGED}/orders/_5-00000-0-abc.spool", "abc", False),
        (f"{layout.STAGED}/orders/_5-00001-1-abc.spool", "abc", False),
        (f"{layout.STAGED}/orders/_5-00000-10-abc.spool", "abc", False),
        (f"{layout.STAGED}/other/_5-00000-1-abc.spool", "abc", False),
        ("month=7/part-0000000005-00000-0123456789ab.json", "0123456789abcdef", True),
        ("month=7/part-0000000004-00000-ba9876543210.json", "0123456789abcdef", False),
        ("month=0123456789ab/part.json", "0123456789abcdef", False),
        ("month=7/part.json", "", False),
    ],
)
def test_names_contain_the_identity_of_the_attempt(path: str, file_id: str, *, expected: bool) -> None:
    assert is_own(STEM, DroppedFile(file_id, path)) == expected


@pytest.fixture
def fs(tmp_path: object) -> LocalFileSystem:
    return LocalFileSystem(str(tmp_path), SYSTEM)


def stage(fs: LocalFileSystem, *names: str) -> list[DroppedFile]:
    fs.make_directories(f"{layout.STAGED}/orders")
    files = [DroppedFile("", f"{layout.STAGED}/orders/{name}") for name in names]
    for file in files:
        fs.create_exclusive(file.path, b"row")
    return files


def left(fs: LocalFileSystem) -> list[str]:
    return sorted(layout.name_of(info.path) for info in fs.list(f"{layout.STAGED}/orders"))


def test_other_files_and_missing_files_do_not_matter(fs: LocalFileSystem) -> None:
    files = stage(fs, "_5-00000-1-a.staged", "_4-00000-1-b.spool", "_5-00000-1-c.staged")
    fs.delete(files[0].path)
    delete_dropped(fs, STEM, files)
    delete_dropped(fs, STEM, files)
    assert left(fs) == ["_4-00000-1-b.spool"]


def test_a_file_that_cannot_be_deleted_does_not_keep_the_others(fs: LocalFileSystem) -> None:
    files = stage(fs, "_5-00000-1-a.staged", "_5-00000-1-b.staged")
    faulty = FaultyFileSystem(fs, [Fault(PermissionDenied, operations=frozenset({"delete"}))])
    delete_dropped(faulty, STEM, files)
    assert left(fs) == ["_5-00000-1-a.staged"]


def test_storage_that_does_not_respond_is_not_called_for_each_file(fs: LocalFileSystem) -> None:
    class Away(FaultyFileSystem):
        deletes = 0

        def delete(self, path: str) -> None:
            self.deletes += 1
            error = Unavailable("delete", path, "no response")
            error.waited_s = 60
            raise error

    away = Away(fs)
    delete_dropped(away, STEM, stage(fs, "_5-00000-1-a.staged", "_5-00000-1-b.staged"))
    assert away.deletes == 1
