"""Commands that only read never write, neither if the storage refuses writes nor if permissions forbid them."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

import ftfile
from ftfile.core.errors import PermissionDenied
from ftfile.storage.api import READING
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.context import open_filesystem
from ftfile.testing.fs.memory import mounted
from tests.unit.tools.cli.running import COMMAND, ENVIRONMENT, run

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

Result = TypeVar("Result")

OF_FILES = [
    ["status"], ["ls"], ["ls", "--version", "0"], ["history"], ["show", "1"], ["diff", "0"], ["schema"], ["count"],
    ["cat"], ["head"], ["tail"], ["verify"], ["verify", "--full"], ["doctor"], ["flush", "--dry-run"],
    ["compact", "--dry-run"], ["repair", "--dry-run"], ["drop", "--where", "all", "--dry-run"],
    ["report", "-o", os.devnull],
]  # fmt: skip
OF_STORES = [
    ["history"],
    ["report", "-o", os.devnull],
    ["kv", "get", "a"],
    ["kv", "scan"],
    ["kv", "stats"],
    ["kv", "verify"],
    ["kv", "compact", "--dry-run"],
]


class ReadOnly(WrapperFileSystem):
    """Refuses all calls that write."""

    def around(self, operation: str, path: str, call: Callable[[], Result]) -> Result:
        if operation not in READING:
            raise PermissionDenied(operation, path, "this storage is only read")
        return call()


def with_path(command: list[str], url: str) -> list[str]:
    at = 2 if command[0] == "kv" else 1
    return [*command[:at], url, *command[at:]]


@pytest.mark.parametrize("command", OF_FILES, ids=" ".join)
def test_on_storage_that_refuses(command: list[str], out: str) -> None:
    with mounted(ReadOnly(open_filesystem(out))) as url:
        run(*with_path(command, url))


@pytest.mark.parametrize("command", OF_STORES, ids=" ".join)
def test_of_a_keyed_store_on_storage_that_refuses(command: list[str], store: str) -> None:
    with mounted(ReadOnly(open_filesystem(store))) as url:
        run(*with_path(command, url))


def test_other_commands_are_refused_by_it(out: str) -> None:
    with mounted(ReadOnly(open_filesystem(out))) as url:
        assert "only read" in run("drop", url, "--where", "all", "--yes", code=3).stderr


def test_in_a_directory_that_is_only_read(out: str) -> None:
    everything = [Path(out), *Path(out).rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in everything}
    file = ftfile.open(out).files()[0].path
    for path in everything:
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    try:
        for command in (["status", out], ["show", out, file], ["verify", "--full", out]):
            done = subprocess.run([*COMMAND, *command], capture_output=True, env=ENVIRONMENT, check=False)
            assert done.returncode == 0, done.stderr
    finally:
        for path in everything:
            path.chmod(stat.S_IRWXU)
    assert {path: path.stat().st_mtime_ns for path in [Path(out), *Path(out).rglob("*")]} == before
