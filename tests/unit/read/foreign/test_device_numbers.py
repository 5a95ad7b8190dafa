"""Logs of a disk that is mounted again under another device number, as after a restart of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile.storage import local, local_system
from tests.kit.files_run import FilesRun

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import FileInfo

pytestmark = pytest.mark.slow

LINES = [f"line {number} {'x' * 60}\n" for number in range(16)]
READ = 10  # before the restart


def mount_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all files another device number."""
    original = local_system.info_of

    def info_of(path: str, status: Any, *, is_link: bool = False) -> FileInfo:
        info = original(path, status, is_link=is_link)
        return info._replace(identity=f"9{info.identity}")

    monkeypatch.setattr(local_system, "info_of", info_of)
    monkeypatch.setattr(local, "info_of", info_of)


@pytest.mark.parametrize(
    ("identity", "is_renamed", "twice"),
    [("native", False, 0), ("native", True, READ), ("content", False, 0), ("content", True, 0)],
)
def test_a_log_is_read_again_only_if_it_is_renamed_and_recognized_by_its_inode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: str, is_renamed: bool, twice: int
) -> None:
    folder, log = tmp_path / "in", tmp_path / "in/a.log"
    folder.mkdir()
    log.write_text("".join(LINES[:READ]))
    options = {"fileFormat": "text", "stateLocation": str(tmp_path / "state"), "fileIdentity": identity}
    run = FilesRun(str(folder), {"value": "string"}, options, pause_s=0.02)
    run.run()
    mount_again(monkeypatch)
    run.restart()
    if is_renamed:
        log.rename(folder / "a.log.1")
    with log.open("a") as file:
        file.writelines(LINES[READ:])
    run.run()
    found = sorted(row["value"] for row in run.rows)
    assert found == sorted(line.rstrip("\n") for line in LINES + LINES[:twice])
