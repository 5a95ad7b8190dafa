"""The driver's HDFS configuration reaches executors that have none: name services, the user, delegation tokens."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest
import requests

from ftfile.testing.context import open_filesystem
from tests.cluster import hdfs_job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.hdfs.minicluster import MiniCluster

USER = "etl"


@pytest.fixture(scope="module")
def configuration(hdfs: MiniCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for HADOOP_CONF_DIR that names the HDFS `ns`."""
    found = tmp_path_factory.mktemp("hadoop")
    settings = {
        "dfs.nameservices": "ns",
        "dfs.ha.namenodes.ns": "away,here",
        # No process listens there.
        "dfs.namenode.rpc-address.ns.away": "127.0.0.1:1",
        "dfs.namenode.http-address.ns.away": "127.0.0.1:1",
        "dfs.namenode.rpc-address.ns.here": urllib.parse.urlsplit(hdfs.url).netloc,
        "dfs.namenode.http-address.ns.here": urllib.parse.urlsplit(hdfs.web_url).netloc,
        "dfs.client.failover.proxy.provider.ns": "org.apache.hadoop.hdfs.server.namenode.ha."
        "ConfiguredFailoverProxyProvider",
    }
    for name, properties in (("core", {"fs.defaultFS": "hdfs://ns"}), ("hdfs", settings)):
        lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in properties.items()]
        (found / f"{name}-site.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>"]))
    return found


def token_file(hdfs: MiniCluster, path: Path) -> Path:
    """Write a token of the user in Hadoop's format."""
    asking = {"op": "GETDELEGATIONTOKEN", "user.name": USER, "renewer": USER}
    text = requests.get(f"{hdfs.pages}webhdfs/v1/", asking, timeout=600).json()["Token"]["urlString"]
    token = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    path.write_bytes(b"HDTS\x00\x01\x01a" + token + b"\x00")  # and no keys
    return path


def owners(hdfs: MiniCluster, directory: str) -> set[str]:
    """Return the owners of the finished parts, which executors write."""
    found: dict[str, Any] = requests.get(f"{hdfs.pages}webhdfs/v1{directory}?op=LISTSTATUS", timeout=600).json()
    children = found["FileStatuses"]["FileStatus"]
    return {child["owner"] for child in children if child["pathSuffix"].startswith("part-")}


def test_executors_that_know_nothing_write_and_read(
    cluster: Cluster, hdfs: MiniCluster, configuration: Path, plain_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / f"in/{number}.json").write_text(f'{{"id": {number}}}\n')
    # Writable for all: with a token and without Kerberos, a NameNode treats every HTTP client as the default user.
    for directory in ("native", "web"):
        open_filesystem(f"{hdfs.url}/", settings={"directoryPermission": "777"}).make_directories(directory)
    tokens = token_file(hdfs, tmp_path / "tokens")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": (tmp_path / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
    }
    job = {"master": cluster.url, "settings": settings, "outputs": ["hdfs://ns/native", "webhdfs://ns/web"]}
    paths = {"input": tmp_path / "in", "scratch": tmp_path, "result": tmp_path / "result.json"}
    (tmp_path / "job.json").write_text(json.dumps(job | {name: str(path) for name, path in paths.items()}))
    of_the_driver = {"CONF_DIR": str(configuration), "TOKEN_FILE_LOCATION": str(tokens), "USER_NAME": USER}
    ended = subprocess.run(
        [sys.executable, hdfs_job.__file__, str(tmp_path / "job.json")],
        cwd=tmp_path,
        env=plain_environment | {f"HADOOP_{name}": text for name, text in of_the_driver.items()},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert paths["result"].exists(), ended.stdout[-5000:] + ended.stderr[-5000:]
    result = json.loads(paths["result"].read_text())
    assert result["rows"] == {output: [0, 1, 2] for output in job["outputs"]}
    assert all(found == {} for found in result["variables"])
    assert result["again"] == 3
    assert owners(hdfs, "/native") == {USER}
    assert owners(hdfs, "/web") == {"dr.who"}, "like any client that shows a token there, and not a name"
