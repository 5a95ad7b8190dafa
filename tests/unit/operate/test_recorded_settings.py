"""The log contains the storage settings for maintenance. A record sets no other option of the client of the storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.log.opening import file_settings
from ftfile.storage.registry import open_filesystem, register, unregister
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch
from tests.hostile.forging import ANY, forge, forged_header
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ftfile.storage.api import FileSystem
    from ftfile.storage.paths import Location

SAFE = {"filePermission": "600", "directoryPermission": "0700"}
FORGED = {**SAFE, "user": "root", "password": "env:HOME", "endpoint_url": "http://127.0.0.1:9", "blockSize": "-1"}
MINE = {"user": "me", "filePermission": "640"}


@pytest.fixture
def openings(tmp_path: Path) -> Iterator[list[dict[str, str]]]:
    """Register a scheme for a storage system on this disk; return the settings of each opening."""
    settings: list[dict[str, str]] = []

    def open_location(location: Location) -> FileSystem:
        settings.append(dict(location.settings))
        return open_filesystem(f"file://{location.path}", current())

    register("noting", open_location)
    path = tmp_path / "out"
    MicroBatch(str(path), {"id": "long"}, {"rolling": "policy"}).run(0, [[{"id": 1}]])
    assert forge(path, ("definitions", ANY, "storage"), FORGED) == 1
    yield settings
    unregister("noting")


OPERATIONS: dict[str, Callable[..., object]] = {
    "flush": ftfile.flush,
    "compact": ftfile.compact,
    "vacuum": ftfile.vacuum,
    "repair": ftfile.repair,
}


@pytest.mark.parametrize("dry_run", [True, False])
@parametrize("name", OPERATIONS, quick=2)
def test_maintenance_takes_settings_of_files_alone(
    openings: list[dict[str, str]], tmp_path: Path, name: str, dry_run: bool
) -> None:
    OPERATIONS[name](f"noting://store{tmp_path}/out", dry_run=dry_run, storage=MINE)
    assert openings
    assert all(settings in (MINE, {**SAFE, **MINE}) for settings in openings), openings


@pytest.mark.parametrize(
    "recorded", [None, 7, "user", ["filePermission"], {"filePermission": 600}, {"replication": "0"}, FORGED], ids=str
)
def test_what_is_no_setting_of_files_is_left_out(recorded: object) -> None:
    assert dict(file_settings(recorded)) == (SAFE if recorded is FORGED else {})


@pytest.mark.parametrize("settings", [SAFE, {"replication": "2", "blockSize": "1073741824"}], ids=str)
def test_settings_of_files_are_kept(settings: dict[str, str]) -> None:
    assert dict(file_settings(settings)) == settings


ELSEWHERE = "elsewhere://host/table"


@pytest.mark.slow
@pytest.mark.parametrize("export_to", ["delta", ["delta", "iceberg"], ELSEWHERE, {"delta": ELSEWHERE}], ids=str)
def test_maintenance_exports_nothing_because_a_record_says_so(
    openings: list[dict[str, str]], tmp_path: Path, export_to: object
) -> None:
    asked: list[Location] = []
    register("elsewhere", asked.append)  # type: ignore[arg-type] # nothing is to come from there
    out = tmp_path / "out"
    with forged_header(out) as header:
        for definition in header["definitions"].values():
            if isinstance(definition, dict):
                definition["exportTo"] = export_to
                definition.setdefault("storage", {})["exportTo"] = export_to
    for operation in OPERATIONS.values():
        operation(f"noting://store{out}", dry_run=False, storage=MINE)
    ftfile.report(f"noting://store{out}", storage=MINE)
    unregister("elsewhere")
    assert openings
    assert asked == []
    assert [file.name for file in out.iterdir() if file.is_dir()] == ["_ftfile"]
