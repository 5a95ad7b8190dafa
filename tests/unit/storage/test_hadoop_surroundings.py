"""Executors open HDFS as the driver does, though they find something else around them, or nothing."""

from __future__ import annotations

import json
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import ConfigError
from ftfile.storage.hdfs import webhdfs
from ftfile.storage.hdfs.configuration import configuration_directory
from ftfile.storage.registry import settings_for_others
from ftfile.testing.context import open_filesystem
from ftfile.writing.files.file_options import SinkConfig

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.hdfs.credentials.keytab import Login
    from ftfile.storage.hdfs.webhdfs_nodes import WebNodes

URL = "webhdfs://ns/out"
VARIABLES = ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "HADOOP_TOKEN_FILE_LOCATION")
SCHEMA = '{"type": "struct", "fields": [{"name": "value", "type": "string", "nullable": true, "metadata": {}}]}'


class Host:
    """The files and variables of one host for Hadoop's clients."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._home, self._patch = home, monkeypatch
        self.variables: dict[str, str] = {}

    def configure(self, **properties: str) -> None:
        """Write a configuration to HADOOP_CONF_DIR."""
        self._home.mkdir()
        self.write(**properties)
        self.variables["HADOOP_CONF_DIR"] = str(self._home)

    def write(self, **properties: str) -> None:
        """Write the configuration; take `a__b` for `a.b`."""
        given = {"dfs.ha.namenodes.ns": "n", **{name.replace("__", "."): text for name, text in properties.items()}}
        lines = [f"<property><name>{name}</name><value>{text}</value></property>" for name, text in given.items()]
        (self._home / "hdfs-site.xml").write_text(f"<configuration>{''.join(lines)}</configuration>")

    def enter(self) -> None:
        """Be there from now on."""
        for name in VARIABLES:
            self._patch.delenv(name, raising=False)
        for name, text in self.variables.items():
            self._patch.setenv(name, text)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    found = Host(tmp_path / "driver", monkeypatch)
    found.configure(
        **{"dfs__namenode__http-address__ns__n": "namenode:9870", "dfs__webhdfs__oauth2__credential": "hidden"}
    )
    found.enter()
    return found


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path / "executor", monkeypatch)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How each client of WebHDFS was made."""
    found: list[dict[str, Any]] = []

    def connect(
        nodes: WebNodes, timeout_s: float, user: str, token: str | None, *, kerberos: bool, login: Login | None
    ) -> None:
        del timeout_s, login
        found.append({"urls": nodes.in_order(), "user": user, "token": token, "kerberos": kerberos})

    monkeypatch.setattr(webhdfs, "connect", connect)
    return found


def test_what_a_query_ships_opens_the_same_where_nothing_is(
    driver: Host, executor: Host, asked: list[dict[str, Any]]
) -> None:
    driver.variables["HADOOP_USER_NAME"] = "etl"
    driver.enter()
    config = SinkConfig.from_options({"path": URL, "fileFormat": "text"}, SCHEMA)
    shipped = pickle.dumps(config)
    asked.clear()
    executor.enter()
    config = pickle.loads(shipped)
    open_filesystem(config.path, settings=dict(config.common.storage.settings))
    assert asked == [{"urls": ["http://namenode:9870"], "user": "etl", "token": None, "kerberos": False}]
    assert b"hidden" not in shipped
    assert "handedOver" not in json.dumps(config.common.storage.to_json()), "it is nobody's business later"


def test_a_changed_configuration_is_handed_over_with_the_next_batch(
    driver: Host, executor: Host, asked: list[dict[str, Any]]
) -> None:
    for node in ("namenode", "another"):
        driver.enter()
        driver.write(**{"dfs__namenode__http-address__ns__n": f"{node}:9870"})
        config = SinkConfig.from_options({"path": URL, "fileFormat": "text"}, SCHEMA)
        executor.enter()
        open_filesystem(config.path, settings=dict(config.common.storage.settings))
        assert asked[-1]["urls"] == [f"http://{node}:9870"]


def test_what_the_driver_has_counts_more(driver: Host, executor: Host, asked: list[dict[str, Any]]) -> None:
    settings = settings_for_others(URL, {})
    executor.configure(
        **{"dfs__namenode__http-address__ns__n": "other:9870", "hadoop__security__authentication": "kerberos"}
    )
    executor.enter()
    open_filesystem(URL, settings=settings)
    assert asked[-1]["urls"] == ["http://namenode:9870"]
    assert asked[-1]["kerberos"], "what the driver does not say is as it is found"
    assert driver.variables != executor.variables


def test_with_kerberos_nobody_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: Host, asked: list[dict[str, Any]]
) -> None:
    driver = Host(tmp_path / "secured", monkeypatch)
    driver.configure(
        **{"dfs__namenode__http-address__ns__n": "namenode:9870", "hadoop__security__authentication": "Kerberos"}
    )
    driver.variables["HADOOP_USER_NAME"] = "etl"
    driver.enter()
    settings = settings_for_others(URL, {})
    executor.enter()
    open_filesystem(URL, settings=settings)
    assert asked[-1]["kerberos"]
    assert asked[-1]["user"] is None


def test_a_user_id_without_a_name_is_named_by_a_variable(
    executor: Host, monkeypatch: pytest.MonkeyPatch, asked: list[dict[str, Any]]
) -> None:
    executor.enter()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000)
    with pytest.raises(ConfigError, match="4000000, has no name: set the variable HADOOP_USER_NAME"):
        open_filesystem("webhdfs://namenode:9870/out")
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    open_filesystem("webhdfs://namenode:9870/out")
    assert asked[-1]["user"] == "etl"


def test_the_native_library_is_told(driver: Host, executor: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []
    monkeypatch.setitem(sys.modules, "hdfs_native", type("Library", (), {"Client": lambda *given: made.append(given)}))
    driver.variables["HADOOP_USER_NAME"] = "etl"
    driver.enter()
    settings = settings_for_others("hdfs:///out", {})
    executor.enter()
    open_filesystem("hdfs:///out", settings=settings)
    assert made[-1][0] is None
    assert made[-1][1]["dfs.namenode.http-address.ns.n"] == "namenode:9870"
    assert made[-1][1]["dfs.client.failover.max.attempts"] == "2"
    assert os.environ["HADOOP_USER_NAME"] == "etl"


@pytest.mark.parametrize("text", ["x", "[]", "null", "[1, 2, 3]"])
def test_what_the_driver_did_not_make_is_refused(text: str) -> None:
    for url in (URL, "hdfs://ns/out"):
        with pytest.raises(ConfigError, match=r"storage\.handedOver"):
            open_filesystem(url, settings={"handedOver": text})


def test_other_storage_needs_nothing(driver: Host) -> None:
    del driver
    assert settings_for_others("s3://bucket/out", {"region": "r"}) == {"region": "r"}


@pytest.mark.parametrize("variable", [None, "CONTAINER_ID", "HADOOP_CONF_DIR", "HADOOP_HOME"])
def test_a_container_of_yarn_has_the_configuration_of_the_submitter(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark sends it to the working directory of each container, and sets no variable."""
    for name in (*VARIABLES, "CONTAINER_ID"):
        monkeypatch.delenv(name, raising=False)
    sent = tmp_path / "__spark_conf__/__hadoop_conf__"
    sent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    if variable is not None:
        monkeypatch.setenv(variable, "/named")
    if variable in {"HADOOP_CONF_DIR", "HADOOP_HOME"}:
        monkeypatch.setenv("CONTAINER_ID", "container_1")
    directories = {
        None: None,
        "CONTAINER_ID": str(sent),
        "HADOOP_CONF_DIR": "/named",
        "HADOOP_HOME": "/named/etc/hadoop",
    }
    assert configuration_directory() == directories[variable]
