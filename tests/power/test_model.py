"""The comparison of a disk with the model of a disk, on disks that are made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.testing.fs.crashing import CrashingFileSystem
from tests.power.model import violations

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.testing.fs.disk import Operation


@pytest.fixture
def journal() -> list[Operation]:
    """A synced file, a renamed file that is not synced, and a hint that was written twice."""
    disk = CrashingFileSystem()
    disk.make_directories("out")
    disk.create_exclusive("out/synced", b"synced")
    disk.sync_directory("")
    with disk.create("out/staged") as stream:
        stream.write(b"staged")
    disk.rename("out/staged", "out/final")
    disk.put("out/hint", b"1st")
    disk.put("out/hint", b"2nd")
    return disk.journal


def found(journal: list[Operation], place: Path, files: dict[str, bytes], *, in_order: bool = True) -> list[str]:
    """Return the violations of a disk with these files in one directory."""
    (place / "out").mkdir()
    for name, content in files.items():
        (place / "out" / name).write_bytes(content)
    return violations(journal, len(journal), len(journal), place, in_order=in_order)


@pytest.mark.parametrize(
    "files",
    [
        {"synced": b"synced"},
        {"synced": b"synced", "staged": b"sta"},
        {"synced": b"synced", "final": b"staged"},
        {"synced": b"synced", "final": bytes(6), "hint": b"1st"},
        {"synced": b"synced", "final": b"stag\0\0", "hint": b"2st"},
    ],
)
def test_what_a_power_cut_can_leave_is_admitted(
    journal: list[Operation], tmp_path: Path, files: dict[str, bytes]
) -> None:
    assert found(journal, tmp_path, files) == []


@pytest.mark.parametrize(
    "files",
    [
        {},  # the first file was synced
        {"synced": b"sync"},
        {"synced": b"synced", "staged": b"staged", "final": b"staged"},
        {"synced": b"synced", "final": b"strange"},
        {"synced": b"synced", "final": b"staged", "hint": b"3rd"},
        {"synced": b"synced", "hint": b"1st"},  # a later change without the earlier one
        {"synced": b"synced", "other": b""},
    ],
)
def test_what_no_power_cut_leaves_is_found(journal: list[Operation], tmp_path: Path, files: dict[str, bytes]) -> None:
    assert len(found(journal, tmp_path, files)) == 1


def test_a_file_system_may_keep_a_later_change_of_another_name(journal: list[Operation], tmp_path: Path) -> None:
    for number, files in enumerate([{"hint": b"1st"}, {"hint": b"2nd", "staged": b"staged"}, {"final": b"staged"}]):
        (tmp_path / str(number)).mkdir()
        assert found(journal, tmp_path / str(number), {"synced": b"synced", **files}, in_order=False) == []
    for number, files in enumerate([{"hint": b"3rd"}, {"other": b""}], 3):
        (tmp_path / str(number)).mkdir()
        assert len(found(journal, tmp_path / str(number), {"synced": b"synced", **files}, in_order=False)) == 1


def test_a_running_call_may_have_had_its_effect(journal: list[Operation], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/synced").write_bytes(b"synced")
    begun = next(number for number, step in enumerate(journal) if step.kind == "link")
    assert violations(journal, begun, begun + 1, tmp_path) == []
    assert len(violations(journal, begun, begun, tmp_path)) == 1
