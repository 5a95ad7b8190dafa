from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.demo.process import list_processes
from tests.hdfs import jars
from tests.hdfs.jars import CannotStart, class_path, java

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


def test_nothing_is_left_however_it_ends(seed: int, tmp_path: Path) -> None:
    number = (signal.SIGINT, signal.SIGKILL)[seed % 2]
    command = [sys.executable, "-m", "tests.hdfs"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        printed = [owner.stdout.readline() for _ in range(5)]
        assert printed[0].startswith("native   hdfs://127.0.0.1:")
        assert printed[1].startswith("WebHDFS  webhdfs://127.0.0.1:")
        servers = {each.number for each in list_processes() if each.parent == owner.pid}
        assert len(servers) == 3, "NameNode, DataNode, guard"
        owner.send_signal(number)
        owner.communicate(timeout=30)
    deadline_s = time.monotonic() + 60
    while (alive(servers) or any(tmp_path.iterdir())) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not alive(servers)
    assert not any(tmp_path.iterdir())


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


def test_bringing_the_jar_says_that_maven_is_missing(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "cksum", "cat", "dirname", "mkdir", "env"):
        (tools / name).symlink_to(str(shutil.which(name)))
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / "tests/hdfs").mkdir(parents=True)
    shutil.copy(ROOT / "tests/hdfs/pom.xml", tmp_path / "tests/hdfs")
    command = [str(bash), str(tmp_path / ".ci/hdfs-jars")]
    run = subprocess.run(command, env={"PATH": str(tools)}, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "install Maven (apt-get install maven" in run.stderr


def alive(processes: Iterable[int]) -> list[int]:
    wanted = set(processes)
    return [each.number for each in list_processes() if each.number in wanted and each.state != "Z"]
