from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ci_scripts import run_script
from tests.demos.files.process import list_processes
from tests.guarded import CannotStart, java
from tests.hdfs import jars
from tests.hdfs.jars import class_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.hdfs.minicluster import MiniCluster

ROOT = Path(__file__).parents[2]


def test_servers_come_back_after_a_kill(cluster: MiniCluster) -> None:
    before = cluster.processes
    assert set(before) == {"namenode", "datanode0"}
    cluster.kill_datanode()
    cluster.kill_namenode()
    assert cluster.processes == {}
    assert cluster.bean("FSNamesystemState") == {}
    cluster.start_datanode(wait=False)
    cluster.start_namenode()
    assert set(cluster.processes.values()).isdisjoint(before.values())
    assert cluster.bean("FSNamesystemState")["NumLiveDataNodes"] == 1
    assert not alive(before.values())


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
# The same command with servers that do nothing and start at once.
IDLE = """\
import sys
from tests.hdfs import __main__, minicluster
cluster = minicluster.MiniCluster
cluster._command = lambda *_: ["sleep", "1000"]
cluster._run_to_end = lambda *_, **more: ""
cluster._is_ready = lambda _: True
sys.exit(__main__.main())
"""


def test_nothing_is_left_however_it_ends(seed: int, tmp_path: Path) -> None:
    chosen = ENDS[seed % len(ENDS)]
    commands = {end: ["-c", IDLE] for end in ENDS if end != chosen} | {chosen: ["-m", "tests.hdfs"]}
    with contextlib.ExitStack() as stack:
        started = {end: stack.enter_context(Started(command, tmp_path / end.name)) for end, command in commands.items()}
        for end, one in started.items():
            one.read_addresses()
            one.owner.send_signal(end)
        for end, one in started.items():
            one.check_end(end)


class Started:
    """A running `make hdfs` with a separate directory for its temporary files."""

    def __init__(self, command: list[str], directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.servers: set[int] = set()
        self.owner = subprocess.Popen(
            # Below nohup, SIGHUP is ignored.
            ["env", "--default-signal=HUP", sys.executable, *command],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(directory)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def read_addresses(self) -> None:
        assert self.owner.stdout is not None
        printed = [self.owner.stdout.readline() for _ in range(5)]
        assert printed[0].startswith("native   hdfs://127.0.0.1:")
        assert printed[1].startswith("WebHDFS  webhdfs://127.0.0.1:")
        self.servers = {each.number for each in list_processes() if each.parent == self.owner.pid}
        assert len(self.servers) == 3, "NameNode, DataNode, guard"

    def __enter__(self) -> Started:  # noqa: PYI034 - typing.Self comes with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.owner.kill()
        for number in alive(self.servers):
            os.kill(number, signal.SIGKILL)
        self.owner.communicate()

    def check_end(self, end: signal.Signals) -> None:
        said, _ = self.owner.communicate(timeout=300)
        is_asked = end in {signal.SIGINT, signal.SIGTERM}
        assert self.owner.returncode == (0 if is_asked else -end)
        assert ("HDFS has ended, and its files are removed" in said) == is_asked
        if is_asked:  # the message must be true
            assert self.left() == []
        deadline_s = time.monotonic() + 300
        while self.left() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert self.left() == []

    def left(self) -> list[object]:
        return [*alive(self.servers), *self.directory.iterdir()]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(jars, "SERVERS", tmp_path)
        with pytest.raises(CannotStart, match=r"install it \(apt-get install maven"):
            class_path()
        (tmp_path / "hadoop-client-minicluster-3.4.2.jar").touch()
        with pytest.raises(CannotStart, match=r"versions 3\.4\.2 and 3\.5\.0.*tests/hdfs/pom\.xml"):
            class_path()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CannotStart, match="install a JDK"):
        java()


def test_without_a_kdc_and_the_right_to_install_one_it_is_said(tmp_path: Path) -> None:
    done = run_script("kerberos", tmp_path, sys.executable)
    assert done.returncode == 0
    assert "the tests on a secured HDFS, or of a dead host, are skipped (apt-get install krb5-kdc" in done.stderr


def alive(processes: Iterable[int]) -> list[int]:
    wanted = set(processes)
    return [each.number for each in list_processes() if each.number in wanted and each.state != "Z"]
