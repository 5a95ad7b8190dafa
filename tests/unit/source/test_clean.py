"""Files are moved or deleted after they were read, unless another program changed them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import pytest

from ftfile.core.errors import ConfigError, PermissionDenied
from ftfile.source.stream import Cleaner, open_cleaner
from ftfile.testing.context import current
from tests.unit.source.planned import Files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "in").mkdir()
    return Files(tmp_path / "in")


def cleaner(files: Files, mode: Literal["archive", "delete"] = "archive", archive: str | None = None) -> Cleaner:
    if mode == "archive" and archive is None:
        archive = str(files.root.parent / "archive")
    made = open_cleaner(str(files.root), mode, archive, current())
    assert made is not None
    return made


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_archive_keeps_paths_and_is_repeatable(files: Files) -> None:
    files.write("a=1/x", b"x\n")
    files.write("y", b"y\n")
    ranges = [files.range("a=1/x"), files.whole("y")]
    assert cleaner(files).clean(ranges) == 2
    assert names(files.root.parent) == ["archive/a=1/x", "archive/y"]
    assert cleaner(files).clean(ranges) == 0
    assert names(files.root.parent) == ["archive/a=1/x", "archive/y"]


def test_delete_is_repeatable(files: Files) -> None:
    files.write("x", b"x\n")
    planned = files.range("x")
    assert [cleaner(files, "delete").clean([planned]) for _ in range(2)] == [1, 0]
    assert names(files.root) == []


@pytest.mark.parametrize("mode", ["archive", "delete"])
def test_what_was_changed_or_not_read_to_its_end_stays(
    files: Files, mode: Literal["archive", "delete"], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("grown", "touched", "replaced", "half", "packed"):
        files.write(name, b"x\ny\n")
    ranges = [files.range(name) for name in ("grown", "touched", "replaced")]
    ranges += [files.range("half", 0, 2), files.range("packed", compression="gzip")]
    files.write("grown", b"x\ny\nz\n")
    os.utime(files.root / "touched", (1, 1))
    status = (files.root / "replaced").stat()
    other = files.write("other", b"z\nx\n")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(files.root / "replaced")
    assert cleaner(files, mode).clean(ranges) == 0
    assert names(files.root) == ["grown", "half", "packed", "replaced", "touched"]
    assert all(name in caplog.text for name in ("grown", "touched", "replaced"))


def test_nothing_in_the_archive_is_written_over(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.write("x", b"new\n")
    Files(files.root.parent / "archive").write("x", b"old\n")
    assert cleaner(files).clean([files.range("x")]) == 0
    assert (files.root / "x").read_bytes() == b"new\n"
    assert (files.root.parent / "archive/x").read_bytes() == b"old\n"
    assert "cleanSource skips" in caplog.text


def test_an_archive_that_is_a_file_is_told(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.write("a=1/x", b"x\n")
    (files.root.parent / "archive").write_bytes(b"")
    assert cleaner(files).clean([files.range("a=1/x")]) == 0
    assert names(files.root) == ["a=1/x"]
    assert "cleanSource skips" in caplog.text


def test_a_move_that_was_interrupted_is_finished(files: Files) -> None:
    """On storage systems that copy a file and then delete it, the copy has the identity of the file."""
    file = files.write("x", b"x\n")
    planned = files.range("x")
    archive = files.root.parent / "archive"
    archive.mkdir()
    (archive / "x").hardlink_to(file)
    assert cleaner(files).clean([planned]) == 1
    assert names(files.root.parent) == ["archive/x"]


def test_storage_that_refuses_does_not_fail_the_query(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files.write("x", b"x\n")
    files.write("y", b"y\n")
    made = cleaner(files, "delete")

    def delete(path: str) -> None:
        if path == "x":
            raise PermissionDenied("delete", path, "not yours")
        (files.root / path).unlink()

    monkeypatch.setattr(made.fs, "delete", delete)
    assert made.clean([files.range("x"), files.range("y")]) == 1
    assert names(files.root) == ["x"]
    assert "not yours" in caplog.text


def test_off_cleans_nothing(files: Files) -> None:
    assert open_cleaner(str(files.root), "off", None, current()) is None


@pytest.mark.parametrize("mode", ["off", "delete"])
def test_an_archive_to_which_nothing_is_moved(files: Files, mode: Any) -> None:
    with pytest.raises(ConfigError, match="sourceArchiveDir is only for cleanSource=archive"):
        open_cleaner(str(files.root), mode, str(files.root.parent / "archive"), current())


@pytest.mark.parametrize("archive", [None, "in", "in/archive", ".", "memory:///archive"])
def test_archives_that_cannot_be(files: Files, archive: str | None) -> None:
    root = files.root.parent
    url = archive if archive is None or "://" in archive else str(root / archive)
    with pytest.raises(ConfigError, match="sourceArchiveDir"):
        open_cleaner(str(files.root), "archive", url, current())
