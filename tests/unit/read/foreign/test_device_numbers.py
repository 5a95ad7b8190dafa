"""Logs of disks that are mounted again under other device numbers, or that have equal inodes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.storage import local, local_system
from ftfile.testing.source_run import Killed
from tests.kit.files_run import FilesRun

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ftfile.storage.api import FileInfo

LINES = [f"line {number} {'x' * 60}\n" for number in range(16)]
READ = 10  # before the restart


def identify(monkeypatch: pytest.MonkeyPatch, identity_of: Callable[[str, Any], str]) -> None:
    """Give local files other identities, which depend on the path and the status of a file."""
    original = local_system.info_of

    def info_of(path: str, status: Any, *, is_link: bool = False) -> FileInfo:
        info = original(path, status, is_link=is_link)
        return info._replace(identity=identity_of(path, status))

    monkeypatch.setattr(local_system, "info_of", info_of)
    monkeypatch.setattr(local, "info_of", info_of)


def mount_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all files another device number."""
    identify(monkeypatch, lambda _, status: f"9{status.st_dev}:{status.st_ino}")


def on_two_disks(monkeypatch: pytest.MonkeyPatch, inodes: dict[int, int]) -> None:
    """Give each directory a disk of its own, and files the inodes to which `inodes` maps theirs."""
    disks: dict[str, int] = {}

    def identity_of(path: str, status: Any) -> str:
        disk = disks.setdefault(path.rpartition("/")[0], len(disks))
        return f"{disk}:{inodes.get(status.st_ino, status.st_ino)}"

    identify(monkeypatch, identity_of)


def query(folder: Path, tmp_path: Path, **options: str) -> FilesRun:
    options = {"fileFormat": "text", "stateLocation": str(tmp_path / "state"), "recursiveFileLookup": "true"} | options
    return FilesRun(str(folder), {"value": "string"}, options, pause_s=0.02)


def values(run: FilesRun) -> list[str]:
    return sorted(f"{row['value']}\n" for row in run.rows)


@pytest.mark.parametrize("identity", ["native", "content"])
@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_log_is_read_once_if_its_disk_is_mounted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: str, is_renamed: bool
) -> None:
    folder, log = tmp_path / "in", tmp_path / "in/a.log"
    folder.mkdir()
    log.write_text("".join(LINES[:READ]))
    run = query(folder, tmp_path, fileIdentity=identity)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, log = tmp_path / "in", tmp_path / "in/a.log"
    (folder / "old").mkdir(parents=True)
    log.write_text("".join(LINES))
    run = query(folder, tmp_path)
    run.kill_at = "offsets written"
    with pytest.raises(Killed):
        run.run()
    mount_again(monkeypatch)
    run.restart()
    log.rename(folder / "old/a.log")
    run.run()
    assert values(run) == sorted(LINES)


def test_files_of_two_disks_with_one_inode_are_both_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = [tmp_path / "in/one/a.log", tmp_path / "in/two/b.log"]
    for place, log in enumerate(logs):
        log.parent.mkdir(parents=True)
        log.write_text("".join(LINES[place:READ:2]))
    on_two_disks(monkeypatch, {logs[1].stat().st_ino: logs[0].stat().st_ino})
    run = query(tmp_path / "in", tmp_path)
    run.run()
    assert values(run) == sorted(LINES[:READ])
    for log in logs:  # each disk also has a new log
        log.rename(log.with_suffix(".1"))
    logs[0].write_text("".join(LINES[READ:]))
    run.run()
    assert values(run) == sorted(LINES)


def test_a_renamed_log_is_read_once_if_an_empty_one_of_another_disk_has_its_inode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, empty = tmp_path / "in/one/a.log", tmp_path / "in/two/b.log"
    for path in (log, empty):
        path.parent.mkdir(parents=True)
    log.write_text("".join(LINES))
    before_s = time.time() - 100
    os.utime(log, (before_s, before_s))
    empty.write_text("other\n")
    on_two_disks(monkeypatch, {empty.stat().st_ino: log.stat().st_ino})
    run = query(tmp_path / "in", tmp_path)
    run.run()
    empty.write_text("")  # it is known, and nothing was read of it
    run.run()
    empty.unlink()
    log.rename(log.with_suffix(".1"))
    run.run()
    assert values(run) == sorted([*LINES, "other\n"])
