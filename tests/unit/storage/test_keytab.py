"""Which keytab a process uses: of its settings, its variables, or the one that Spark brought to a container of YARN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import ConfigError
from ftfile.storage.hdfs.credentials.keytab import Login, login_from
from ftfile.storage.registry import settings_for_others
from ftfile.testing.context import open_filesystem
from tests.hdfs.servers import write_site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with two keytabs."""
    for name in ("FTFILE_KEYTAB", "FTFILE_PRINCIPAL", "CONTAINER_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("one.keytab", "two.keytab"):
        (tmp_path / name).touch()
    return tmp_path


def test_settings_come_before_variables(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert login_from({}, is_executor=False) is None
    monkeypatch.setenv("FTFILE_KEYTAB", "two.keytab")
    with pytest.raises(ConfigError, match="FTFILE_KEYTAB and FTFILE_PRINCIPAL belong together"):
        login_from({}, is_executor=False)
    monkeypatch.setenv("FTFILE_PRINCIPAL", "two")
    assert login_from({}, is_executor=False) == Login("two", str(directory / "two.keytab"))
    settings = {"keytab": "one.keytab", "principal": "one"}
    assert login_from(settings, is_executor=False) == Login("one", str(directory / "one.keytab"))


def test_executors_without_the_keytab_use_tokens(directory: Path) -> None:
    settings = {"keytab": "/etc/none.keytab", "principal": "one"}
    with pytest.raises(ConfigError, match=r"storage\.keytab='/etc/none\.keytab': this process cannot read"):
        login_from(settings, is_executor=False)
    assert login_from(settings, is_executor=True) is None
    shipped = {"keytab": "one.keytab", "principal": "one"}
    assert login_from(shipped, is_executor=True) == Login("one", str(directory / "one.keytab"))


@pytest.mark.parametrize("keytab", ["one.keytab", "one\\:x.keytab"])
def test_the_keytab_of_the_submission_is_in_the_container_of_the_driver(
    directory: Path, monkeypatch: pytest.MonkeyPatch, keytab: str
) -> None:
    properties = directory / "__spark_conf__/__spark_conf__.properties"
    properties.parent.mkdir()
    properties.write_text(f"#Spark\nspark.kerberos.keytab={keytab}\nspark.kerberos.principal=etl@EXAMPLE.COM\n")
    path = directory / keytab.replace("\\", "")
    path.touch()
    assert login_from({}, is_executor=False) is None, "outside a container, the directory has another meaning"
    monkeypatch.setenv("CONTAINER_ID", "container_e01_1700000000000_0001_01_000001")
    assert login_from({}, is_executor=False) == Login("etl@EXAMPLE.COM", str(path))
    path.unlink()
    assert login_from({}, is_executor=False) is None, "as in the containers of executors"


def test_a_keytab_of_a_cluster_without_kerberos_is_refused(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_site(directory / "hdfs-site.xml", {})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(directory))
    settings = {"keytab": "one.keytab", "principal": "one"}
    for more in ({}, settings_for_others("webhdfs://namenode:9870/out", {})):
        with pytest.raises(ConfigError, match=r"storage\.keytab .* hadoop\.security\.authentication is not kerberos"):
            open_filesystem("webhdfs://namenode:9870/out", settings=settings | more)
    for name, text in settings.items():
        monkeypatch.setenv(f"FTFILE_{name.upper()}", text)
    open_filesystem("webhdfs://namenode:9870/out")
