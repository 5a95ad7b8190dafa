"""A secured HDFS used by real executors whose only credentials are the tokens in the driver's batches."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from tests.cluster import hdfs_job, renewed_tokens_job
from tests.cluster.cluster import Cluster, command_of, kill, processes_below, wait_for
from tests.cluster.conftest import ROOT
from tests.hdfs.kdc import Kdc
from tests.hdfs.secured import SecuredCluster, why_not_secured
from tests.hdfs.test_secured import secrets_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(why_not_secured()), reason=why_not_secured() or "none")

OWNER = "hdfs/localhost"


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with Kdc() as kdc:
        yield kdc


@pytest.fixture(scope="module")
def secured(kdc: Kdc) -> Iterator[SecuredCluster]:
    with SecuredCluster(kdc) as cluster:
        yield cluster


class Application:
    """A program of Spark whose driver has a token file and no ticket, and whose executors have neither."""

    def __init__(self, program: str, kdc: Kdc, secured: SecuredCluster, directory: Path) -> None:
        self.directory = directory
        self.tokens = directory / "private/tokens"
        self.events = directory / "events"
        for name in ("in", "private", "events"):
            (directory / name).mkdir()
        self._program, self._kdc, self._secured = program, kdc, secured
        self._cache = directory / "cache"
        # The owner of the root.
        kdc.ticket(self._cache, OWNER)
        # Another name than in the token: the driver must detect that both are the same host.
        native = secured.url.replace("127.0.0.1", "localhost")
        self.outputs = [f"{native}/{directory.name}/native", f"{secured.web_url}/{directory.name}/web"]
        self.secrets: set[str] = set()

    def fetch_token(self) -> Path:
        """Return a file with a new token."""
        path = self.directory / f"private/{time.monotonic_ns()}"
        self._secured.fetch_token(path, self._cache)
        self.secrets |= {*secrets_of(path)}
        return path

    def replace_file(self, path: Path) -> None:
        """Replace the driver's token file."""
        shutil.copy(path, self.tokens.with_suffix(".new"))
        self.tokens.with_suffix(".new").rename(self.tokens)

    def cancel_token(self, path: Path) -> None:
        """End a token."""
        self._secured.cancel_token(path, self._cache)

    def reissue(self, path: Path) -> None:
        """Let the driver's JVM have a new token, as Spark does, and wait until the program keeps it for Python."""
        content = self._kept()
        shutil.copy(path, self.directory / "reissued.new")
        (self.directory / "reissued.new").rename(self.directory / "reissued")
        wait_for(lambda: self._kept() != content, "a kept token")

    def _kept(self) -> bytes:
        return b"".join(path.read_bytes() for path in self.directory.glob("ftfile-*/tokens-*"))

    def write_input(self, number: int) -> None:
        (self.directory / f"in/{number}.new").write_text(f'{{"id": {number}}}\n')
        (self.directory / f"in/{number}.new").rename(self.directory / f"in/{number}.json")

    def start(self, cluster: Cluster, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": f"-Djava.security.krb5.conf={self._kdc.configuration}",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.executor.memory": "512m",
            "spark.sql.warehouse.dir": (self.directory / "warehouse").as_uri(),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        job = {"master": cluster.url, "settings": settings, "outputs": self.outputs}
        paths = {"input": self.directory / "in", "scratch": self.directory, "result": self.directory / "result.json"}
        job |= {name: str(path) for name, path in paths.items()}
        (self.directory / "job.json").write_text(json.dumps(job))
        own = {"HADOOP_CONF_DIR": str(self._secured.conf), "HADOOP_TOKEN_FILE_LOCATION": str(self.tokens)}
        own |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.directory)}
        with (self.directory / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, self._program, str(self.directory / "job.json")],
                cwd=self.directory,
                env=environment | self._kdc.variables(self.directory / "no-ticket") | own,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def result(self) -> dict[str, Any]:
        path = self.directory / "result.json"
        result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        assert not result.get("errors"), result["errors"]
        return result

    def rows(self, monkeypatch: pytest.MonkeyPatch) -> list[Counter[int]]:
        """Return how often each row is in each output, read with a ticket."""
        monkeypatch.setenv("HADOOP_CONF_DIR", str(self._secured.conf))
        for name, text in self._kdc.variables(self._cache).items():
            monkeypatch.setenv(name, text)
        return [Counter(ftfile.open(output).to_arrow().column("id").to_pylist()) for output in self.outputs]

    def check_secrets(self, home: Path) -> None:
        """Look for tokens in the logs of driver and executors, in the event log, and in the records of the outputs."""
        texts = [self.log(), *(path.read_text() for path in self.events.iterdir())]
        texts += [path.read_text(errors="replace") for path in home.rglob("*") if path.name in {"stdout", "stderr"}]
        assert any("SparkListenerSQLExecutionStart" in text for text in texts)
        for text in texts:
            assert "delegation=" not in text
            assert not any(secret in text for secret in self.secrets)


def python_processes_below(process: int) -> list[int]:
    """Return the Python processes that Spark started in the driver."""
    return [each for each in processes_below(process) if "python" in command_of(each).split(" ")[0]]


def test_executors_write_and_read_by_the_tokens_of_batches(
    cluster: Cluster, kdc: Kdc, secured: SecuredCluster, plain_environment: dict[str, str], tmp_path: Path
) -> None:
    application = Application(hdfs_job.__file__, kdc, secured, tmp_path)
    for number in range(3):
        application.write_input(number)
    application.replace_file(application.fetch_token())
    application.start(cluster, plain_environment).communicate(timeout=600)
    assert (tmp_path / "result.json").exists(), application.log()[-5000:]
    result = application.result()
    assert result["rows"] == {output: [0, 1, 2] for output in application.outputs}
    assert result["again"] == 3
    assert all(found == {} for found in result["variables"])
    application.check_secrets(cluster.home)


def test_a_stream_goes_on_with_each_new_token_of_the_driver(
    cluster: Cluster,
    kdc: Kdc,
    secured: SecuredCluster,
    plain_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first new token is written to the driver's file, and the second one only the driver's JVM has.

    Open connections outlive their token, so the Pythons of the driver and the executors are killed after its end.
    """
    application = Application(renewed_tokens_job.__file__, kdc, secured, tmp_path)
    tokens = [application.fetch_token()]
    application.replace_file(tokens[0])
    driver = application.start(cluster, plain_environment)

    def run_batch(number: int) -> None:
        def is_committed() -> bool:
            assert driver.poll() is None, application.log()[-5000:]
            committed: dict[str, int] = application.result().get("committed", {"": -1})
            return min(committed.values()) >= number

        application.write_input(number)
        wait_for(is_committed, f"batch {number}")

    try:
        for number in range(6):
            run_batch(number)
            if number in {1, 3}:
                tokens.append(application.fetch_token())
                if number == 1:
                    application.replace_file(tokens[-1])
                else:
                    application.reissue(tokens[-1])
                application.cancel_token(tokens[-2])
                kill(*cluster.python_processes(), *python_processes_below(driver.pid))
    finally:
        driver.communicate(timeout=600)
    assert application.rows(monkeypatch) == [Counter(range(6))] * 2
    application.check_secrets(cluster.home)
