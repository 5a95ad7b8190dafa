"""Streams on a secured YARN whose processes are killed after the end of their tokens."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.storage.hdfs.credentials.process_tokens import FILE_VARIABLE
from ftfile.storage.hdfs.credentials.token_file import read_tokens
from ftfile.testing.checker import check_directory
from ftfile.testing.context import open_filesystem
from tests.cluster import secured_yarn_job
from tests.cluster.cluster import command_of, kill
from tests.cluster.secured_yarn import SecuredYarn
from tests.crash.share import THOROUGH
from tests.hdfs.kdc import REALM, Kdc
from tests.hdfs.secured import SecuredCluster, why_not_secured

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(why_not_secured()), reason=why_not_secured() or "none")

OWNER = "hdfs/localhost"
USER = "etl"
# A token ends after this time unless it is renewed.
RENEW_INTERVAL_S = 30
HDFS_SETTINGS = {
    "dfs.namenode.delegation.token.renew-interval": f"{RENEW_INTERVAL_S * 1000}",
    "dfs.namenode.delegation.token.max-lifetime": "3600000",
    # The user writes below the root, which belongs to the NameNode's user.
    "dfs.permissions.enabled": "false",
}
TOKEN_LIVES = 3 if THOROUGH else 1
# Spark's Python processes, except for the program itself.
WORKER = " -m pyspark."


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with Kdc() as kdc:
        kdc.add(USER)
        yield kdc


@pytest.fixture(scope="module")
def secured(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """An HDFS whose owner is this process."""
    with SecuredCluster(kdc, HDFS_SETTINGS) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(cluster.conf))
        patch.delenv(FILE_VARIABLE, raising=False)
        for name, text in kdc.ticket(tmp_path_factory.mktemp("owner") / "cache", OWNER).items():
            patch.setenv(name, text)
        yield cluster


@pytest.fixture(scope="module")
def yarn(kdc: Kdc, secured: SecuredCluster) -> Iterator[SecuredYarn]:
    with SecuredYarn(kdc, secured) as servers:
        yield servers


class Application:
    """A stream from a local directory to HDFS, in cluster mode.

    Attributes:
        home: the directory of `spark-submit`, whose name is the name of the application.

    Args:
        yarn: runs it.
        kdc: has the keytab of its user.
        hdfs: the file system.
        home: an empty directory.
        variables: the environment of `spark-submit`.
    """

    def __init__(
        self, yarn: SecuredYarn, kdc: Kdc, hdfs: SecuredCluster, home: Path, variables: dict[str, str]
    ) -> None:
        self.home = home
        self._yarn, self._kdc = yarn, kdc
        self._variables = variables | {"PYSPARK_PYTHON": sys.executable}
        self._output = f"{hdfs.url}/{home.name}/out"
        self._log = open_filesystem(f"{self._output}/_ftfile/log")
        self._checkpoint = f"{hdfs.url}/{home.name}/checkpoint"
        self._files = 0
        for name in ("in", "events", "scratch"):
            (home / name).mkdir()

    def start(self, *options: str) -> None:
        """Run `spark-submit` with a keytab; the options are of the program."""
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (self.home / "events").as_uri(),
            "spark.eventLog.compress": "false",
            "spark.executor.instances": "1",
            "spark.security.credentials.renewalRatio": "0.3",
            "spark.yarn.appMasterEnv.TMPDIR": str(self.home / "scratch"),
        }
        credentials = ["--principal", f"{USER}@{REALM}", "--keytab", str(self._kdc.directory / f"{USER}.keytab")]
        words = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        urls = [(self.home / "in").as_uri(), self._output, self._checkpoint, str(self.home / "end")]
        arguments = ["--deploy-mode", "cluster", *credentials, *words, secured_yarn_job.__file__, *urls, *options]
        environment = self._variables | self._kdc.variables(self.home / "no-ticket")
        self._yarn.submit(self.home.name, self.home, environment, arguments)

    def write_input(self) -> None:
        """Write the file of one batch."""
        name = self.home / f"in/{self._files}"
        name.with_suffix(".new").write_text(f'{{"id": {self._files}}}\n')
        name.with_suffix(".new").rename(name.with_suffix(".json"))
        self._files += 1

    def run_batch(self) -> None:
        """Write the file of one batch and wait for its commit."""
        self.write_input()
        self._yarn.wait_for("commit a batch", lambda: self.batches() == self._files)

    def batches(self) -> int:
        """Return the number of committed batches."""
        try:
            return sum(file.path.endswith(".record") for file in self._log.list(""))
        except ftfile.errors.NotFound:
            return 0

    def outlive_tokens(self) -> None:
        """Run batches until all tokens that the application has now have ended."""
        end_s = self.newest_token_s() + RENEW_INTERVAL_S
        while time.time() <= end_s:
            self.run_batch()

    def newest_token_s(self) -> float:
        """Return when the newest token of Python processes was issued, since 1970."""
        tokens = [token for file in self.token_files() for token in read_tokens(file.read_bytes())]
        return max(token.issued_ms for token in tokens if token.kind == "HDFS_DELEGATION_TOKEN") / 1000

    def token_files(self) -> list[Path]:
        """Return the token files of the containers, and the files of the driver's program."""
        variable = re.compile(f"^{FILE_VARIABLE}=(.*)$".encode(), re.MULTILINE)
        files = {*self.home.glob("scratch/ftfile-*/tokens-*[0-9]")}
        for process in self.processes():
            with contextlib.suppress(OSError):  # the process has ended
                for name in variable.findall(Path(f"/proc/{process}/environ").read_bytes().replace(b"\0", b"\n")):
                    files.add(Path(name.decode()))
        return sorted(files)

    def kill_workers(self) -> None:
        """Kill the Python processes of the master and the executors, except for the program."""
        kill(*(process for process in self.processes() if WORKER in command_of(process)))

    def processes(self, ending: str = "") -> list[int]:
        """Return the processes of the containers whose id has this ending."""
        number = self.description()["id"].partition("_")[2]
        return self._yarn.container_processes(f"{number}_.*{ending}")

    def description(self) -> dict[str, Any]:
        """Return the application as the ResourceManager describes it."""
        applications = self._yarn.report("apps")["apps"]["app"]
        [description] = [item for item in applications if item["name"] == self.home.name]
        return dict(description)

    def end(self) -> None:
        """End the application."""
        (self.home / "end").touch()
        self._yarn.wait_for_end(self.home.name)

    def check(self) -> None:
        """Check that each row is there once, for a plain reader and for ftfile."""
        lines = Counter(b'{"id":%d}' % row for row in range(self._files))
        assert check_directory(open_filesystem(self._output)).visible_rows == lines
        assert Counter(ftfile.open(self._output).to_arrow().column("id").to_pylist()) == Counter(range(self._files))


@pytest.fixture
def application(
    yarn: SecuredYarn, kdc: Kdc, secured: SecuredCluster, plain_environment: dict[str, str], tmp_path: Path
) -> Application:
    variables = {name: text for name, text in plain_environment.items() if not name.startswith("PYSPARK_")}
    return Application(yarn, kdc, secured, tmp_path, variables)


def test_a_stream_continues_after_the_end_of_each_token(application: Application) -> None:
    """Open connections outlive their token, so the Python processes are killed after its end."""
    application.start("--attach")
    application.run_batch()
    for _ in range(TOKEN_LIVES):
        application.outlive_tokens()
        application.kill_workers()
        application.run_batch()
    application.end()
    application.check()
