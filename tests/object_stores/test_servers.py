"""Missing servers of the tests on object stores are reported, and the tests continue without them."""

from __future__ import annotations

import importlib.util
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.ci_scripts import run_script
from tests.object_stores import azure, conftest, gcs, servers

if TYPE_CHECKING:
    from tests.object_stores.servers import Storage

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("s3-server", "Go is not installed: the tests on S3 only use moto, and no real server (apt-get install golang"),
        ("gcs-server", "Go is not installed: the tests on GCS are skipped (apt-get install golang"),
        ("azure-server", "Node is not installed: the tests on Azure are skipped (apt-get install npm"),
    ],
)
def test_building_a_server_says_what_is_missing_and_goes_on(script: str, said: str, tmp_path: Path) -> None:
    run = run_script(script, tmp_path)
    assert run.returncode == 0
    assert said in run.stderr
    assert not list((tmp_path / ".servers").rglob("stamp")), "it is taken for built"


@pytest.mark.parametrize(
    ("what", "tests"),
    [("object-stores", "spark"), ("hdfs", "hdfs"), ("kafka", "kafka"), ("kafka-connector", "kafka/connector")],
)
def test_bringing_jars_says_that_maven_is_missing(what: str, tests: str, tmp_path: Path) -> None:
    (tmp_path / "tests" / tests).mkdir(parents=True)
    shutil.copy(ROOT / "tests" / tests / "pom.xml", tmp_path / "tests" / tests)
    run = run_script("jars", tmp_path, what)
    assert run.returncode == 1
    assert "install Maven (apt-get install maven" in run.stderr
    assert not list((tmp_path / ".jars").rglob("stamp")), "they are taken for brought"


def test_the_clients_of_hadoop_are_of_the_version_that_spark_has() -> None:
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    [client] = (Path(pyspark.origin).parent / "jars").glob("hadoop-client-api-*.jar")
    pom = (ROOT / "tests/spark/pom.xml").read_text()
    versions = re.findall(r"<artifactId>hadoop-(?:aws|azure)</artifactId>\s*<version>(.*?)</version>", pom)
    assert [f"hadoop-client-api-{version}.jar" for version in versions] == [client.name] * 2


def test_the_tests_say_what_they_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "VERSITY", tmp_path)
    assert {conftest.drawn_server(f"test {number}") for number in range(100)} == {"moto", "real"}
    monkeypatch.setattr(servers, "VERSITY", tmp_path / "versitygw")
    monkeypatch.setattr(azure, "AZURITE", tmp_path)
    monkeypatch.setattr(gcs, "SERVER", tmp_path / "fake-gcs-server")
    said = "\n".join(conftest.pytest_report_header())
    assert "moto is tried alone" in said
    assert "Azure is left out" in said
    assert "GCS is left out" in said
    with pytest.raises(pytest.skip.Exception, match="moto is tried alone"):
        next(conftest.start_real())
    assert {conftest.drawn_server(f"test {number}") for number in range(100)} == {"moto"}


def test_moto_shows_an_object_as_a_whole_or_not_at_all(moto: Storage) -> None:
    """Also while the object is being created; and only one of two creators succeeds."""
    asked, content = servers.client(moto.endpoint), bytes(1 << 20)

    def put(key: str) -> bool:
        try:
            asked.put_object(Bucket=servers.BUCKET, Key=key, Body=content, Metadata={"id": "x"}, IfNoneMatch="*")
        except ClientError:
            return False
        return True

    def get(key: str) -> tuple[int, dict[str, str]]:
        while True:
            try:
                answer: dict[str, Any] = asked.get_object(Bucket=servers.BUCKET, Key=key)
            except ClientError:
                continue
            return len(answer["Body"].read()), answer["Metadata"]

    with ThreadPoolExecutor(3) as pool:
        for number in range(20):
            key = f"whole-{number}"
            seen = pool.submit(get, key)
            made = [pool.submit(put, key) for _ in range(2)]
            assert sorted(each.result() for each in made) == [False, True]
            assert seen.result() == (len(content), {"id": "x"})
