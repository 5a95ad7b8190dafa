"""A local path that leads to another directory on another host: refused by the task, before it writes anything."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.context import SYSTEM
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.log.directory import read_marker, write_marker
from ftfile.storage.local import LocalFileSystem
from ftfile.storage.registry import WrapperFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.api import OutputStream

ROWS = [{"id": 1}]


class Hosts:
    """Two hosts with a directory each, at the same path, which is the link `out`."""

    def __init__(self, home: Path) -> None:
        self.link = home / "out"
        self.homes = {name: home / name for name in ("driver", "executor")}
        for each in self.homes.values():
            each.mkdir()
        self.query = MicroBatch(str(self.link), {"id": "long"}, {"fileFormat": "json"})

    def go_to(self, host: str) -> None:
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(self.homes[host])

    def plan(self) -> bytes:
        self.go_to("driver")
        return self.query.pickled_plan()

    def files(self, host: str) -> list[str]:
        return [str(path.relative_to(self.homes[host])) for path in self.homes[host].rglob("*")]


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path)


def test_a_task_that_sees_no_such_directory_writes_nothing(hosts: Hosts) -> None:
    planned = hosts.plan()
    hosts.go_to("executor")
    with pytest.raises(ConfigError, match=r"path='.*/out'.* sees no such directory .* the same storage on every host"):
        hosts.query.run_task(planned, hosts.query.identity(0), 0, ROWS)
    assert hosts.files("executor") == []


def test_a_task_that_sees_another_directory_writes_nothing(hosts: Hosts) -> None:
    hosts.go_to("executor")
    hosts.query.run(0, [ROWS])
    before = hosts.files("executor")
    hosts.query.restart()
    planned = hosts.plan()
    hosts.go_to("executor")
    with pytest.raises(ConfigError, match="sees another directory there"):
        hosts.query.run_task(planned, hosts.query.identity(0), 0, ROWS)
    assert hosts.files("executor") == before


def test_each_batch_is_looked_at(hosts: Hosts) -> None:
    """A mount may go away at any time, and leave an empty directory."""
    hosts.go_to("driver")
    hosts.query.run(0, [ROWS])
    planned = hosts.plan()
    hosts.go_to("executor")
    with pytest.raises(ConfigError, match="sees no such directory"):
        hosts.query.run_task(planned, hosts.query.identity(1), 0, ROWS)


def test_a_task_on_another_disk_with_a_copy_of_the_directory_is_noticed_by_the_commit(hosts: Hosts) -> None:
    planned = hosts.plan()
    shutil.copytree(hosts.homes["driver"], hosts.homes["executor"], dirs_exist_ok=True)
    hosts.go_to("executor")
    message = hosts.query.run_task(planned, hosts.query.identity(0), 0, ROWS)
    hosts.go_to("driver")
    with pytest.raises(CorruptData, match=r"no such file.* its host wrote to a local disk"):
        hosts.query.commit(0, [message])


def test_a_mount_under_another_path_is_the_same_directory(hosts: Hosts, tmp_path: Path) -> None:
    planned = hosts.plan()
    hosts.link.unlink()
    hosts.link.symlink_to(tmp_path / "driver/../driver")
    message = hosts.query.run_task(planned, hosts.query.identity(0), 0, ROWS)
    hosts.query.commit(0, [message])
    assert ftfile.open(hosts.link).to_arrow().to_pylist() == ROWS


def test_the_mark_is_made_once_and_stays(hosts: Hosts) -> None:
    hosts.plan()
    mark = (hosts.homes["driver"] / "_ftfile/directory/_marker").read_text()
    hosts.query.restart()
    hosts.query.run(0, [ROWS])
    assert (hosts.homes["driver"] / "_ftfile/directory/_marker").read_text() == mark


def test_of_two_drivers_that_mark_at_once_both_take_what_is_there(tmp_path: Path) -> None:
    class Late(WrapperFileSystem):
        """Another driver is faster whenever this one has looked."""

        def create_exclusive(self, path: str, content: bytes) -> None:
            super().create_exclusive(path, b"of another")
            super().create_exclusive(path, content)

        def create(self, path: str) -> OutputStream:
            raise NotImplementedError

    marker = write_marker(Late(LocalFileSystem(str(tmp_path), SYSTEM)))
    assert marker is not None
    assert marker.text == "of another"


def test_a_reader_marks_nothing(tmp_path: Path) -> None:
    assert read_marker(LocalFileSystem(str(tmp_path), SYSTEM)) is None
    assert list(tmp_path.iterdir()) == []


def test_where_every_host_sees_the_same_nothing_is_marked() -> None:
    storage = MemoryFileSystem("seen-by-every-host")
    assert write_marker(storage) is None
    assert storage.list("") == []
