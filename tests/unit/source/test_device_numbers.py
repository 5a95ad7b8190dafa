"""Logs of disks that are mounted again under other device numbers, and different files with one inode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.storage.local_status import StatusReader
from ftfile.testing.source_run import Killed
from tests.kit.files_run import FilesRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ftfile.storage.local_status import Status

LINES = [f"line {number} {'x' * 60}\n" for number in range(16)]
READ = 10  # before the restart
STARTED = "started\n"


def replace_status(monkeypatch: pytest.MonkeyPatch, replaced: Callable[[Status], Status]) -> None:
    """Let local files have another status."""
    original = StatusReader.read
    monkeypatch.setattr(StatusReader, "read", lambda reader, name: replaced(original(reader, name)))


def mount_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all files another device number."""
    replace_status(monkeypatch, lambda status: status._replace(device=status.device + 1))


def share_inode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each file of the input the same inode, and a disk of its own by its time of birth."""

    def replaced(status: Status) -> Status:
        return status._replace(device=status.born_ns or 0, inode=257)

    replace_status(monkeypatch, replaced)


def query(folder: Path, **options: str) -> FilesRun:
    state = str(folder.parent / "state")
    options = {"fileFormat": "text", "stateLocation": state, "recursiveFileLookup": "true"} | options
    return FilesRun(str(folder), {"value": "string"}, options, pause_s=0.02)


def values(run: FilesRun) -> list[str]:
    return sorted(f"{row['value']}\n" for row in run.rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / "in" / name).mkdir(parents=True)
    return tmp_path / "in"


@pytest.mark.parametrize("identity", ["native", "content"])
@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_log_is_read_once_if_its_disk_is_mounted_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, identity: str, is_renamed: bool
) -> None:
    log = folder / "a.log"
    log.write_text("".join(LINES[:READ]))
    run = query(folder, fileIdentity=identity)
    run.run()
    mount_again(monkeypatch)
    run.restart()
    if is_renamed:
        log.rename(folder / "a.log.1")
    with log.open("a") as file:
        file.writelines(LINES[READ:])
    run.run()
    assert values(run) == sorted(LINES)


def test_a_planned_batch_finds_a_log_that_is_renamed_while_its_disk_is_mounted_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = folder / "one/a.log"
    log.write_text("".join(LINES))
    run = query(folder)
    run.kill_at = "offsets written"
    with pytest.raises(Killed):
        run.run()
    mount_again(monkeypatch)
    run.restart()
    log.rename(folder / "two/a.log")
    run.run()
    assert values(run) == sorted(LINES)


def test_a_log_that_is_renamed_is_read_again_if_only_its_device_and_inode_are_known(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_status(monkeypatch, lambda status: status._replace(born_ns=None))
    log = folder / "a.log"
    log.write_text("".join(LINES))
    run = query(folder)
    run.run()
    log.rename(folder / "b.log")
    run.run()
    assert values(run) == sorted(LINES)
    mount_again(monkeypatch)
    run.run()
    assert values(run) == sorted(LINES)
    (folder / "b.log").rename(log)
    run.run()
    assert values(run) == sorted(LINES * 2)


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_file_with_the_inode_and_the_content_of_a_deleted_one_is_read(folder: Path, is_cleaned: bool) -> None:
    """Ext4 and XFS give the inode of a deleted file to the next one."""
    run = query(folder, **({"cleanSource": "delete"} if is_cleaned else {}))
    for number in range(6):
        for path in [] if is_cleaned else folder.glob("*.log"):
            path.unlink()
        (folder / f"{number}.log").write_text(STARTED)
        run.run()
    assert values(run) == [STARTED] * 6


def test_files_of_two_disks_with_one_inode_are_each_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share_inode(monkeypatch)
    logs = [folder / "one/a.log", folder / "two/b.log"]
    for place, log in enumerate(logs):
        log.write_text(STARTED + "".join(LINES[place:READ:2]))
    run = query(folder)
    run.run()
    for log in logs:
        log.rename(log.with_suffix(".1"))
    logs[0].write_text(STARTED + "".join(LINES[READ:]))
    run.run()
    assert values(run) == sorted([STARTED] * 3 + LINES)


def test_a_longer_file_of_another_disk_is_not_a_continuation_of_a_shorter_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_inode(monkeypatch)
    short, long = folder / "one/a", folder / "two/b"
    short.write_text(STARTED)
    long.write_text(STARTED + LINES[0])
    run = query(folder)
    run.run()
    for path in (short, long):
        path.rename(path.with_suffix(".1"))
    run.run()
    assert values(run) == sorted([STARTED] * 2 + LINES[:1])


@pytest.mark.parametrize("clean", ["off", "delete"])
def test_a_new_file_of_another_disk_is_not_the_deleted_one_with_its_inode(
    folder: Path, monkeypatch: pytest.MonkeyPatch, clean: str
) -> None:
    share_inode(monkeypatch)
    gone, new = folder / "one/a", folder / "two/b"
    gone.write_text(STARTED)
    run = query(folder, cleanSource=clean)
    run.run()
    gone.unlink(missing_ok=True)
    new.write_text(STARTED + LINES[0])
    run.run()
    assert values(run) == sorted([STARTED] * 2 + LINES[:1])
