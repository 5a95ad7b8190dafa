"""Streams on a secured YARN whose processes are killed after the end of their tokens."""

from __future__ import annotations

import contextlib
import re
import shutil
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
from tests.cluster.cluster import EXECUTOR, command_of, kill, wait_for
from tests.cluster.secured_yarn import SecuredYarn
from tests.cluster.yarn import MASTER
from tests.crash.share import THOROUGH
from tests.hdfs.kdc import REALM, Kdc
from tests.hdfs.secured import SecuredCluster, why_not_secured
from tests.hdfs.test_secured import secrets_of, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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
# The user may submit applications for other users.
PROXY = {f"hadoop.proxyuser.{USER}.{kind}": "*" for kind in ("hosts", "users")}
# Spark's Python processes, except for the program itself.
WORKER = " -m pyspark."
MASTER_CLASS = "org.apache.spark.deploy.yarn.ApplicationMaster"
ONE_ATTEMPT = ("--conf", "spark.yarn.maxAppAttempts=1")
# The error of a token that has ended.
ERROR = (
    r"PermissionDenied.*The token for \S+ is from the file '\S+/container_tokens', which "
    rf"{FILE_VARIABLE} names\. It was issued at .* UTC, and ends at .* UTC.*ftfile\.spark\.attach\(spark\)"
)


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with Kdc() as kdc:
        kdc.add(USER)
        yield kdc


@pytest.fixture(scope="module")
def secured(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    """An HDFS whose owner is this process."""
    with SecuredCluster(kdc, HDFS_SETTINGS | PROXY) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HADOOP_CONF_DIR", str(cluster.conf))
        patch.delenv(FILE_VARIABLE, raising=False)
        for name, text in kdc.ticket(tmp_path_factory.mktemp("owner") / "cache", OWNER).items():
            patch.setenv(name, text)
        yield cluster


@pytest.fixture(scope="module")
def yarn(kdc: Kdc, secured: SecuredCluster) -> Iterator[SecuredYarn]:
    with SecuredYarn(kdc, secured, PROXY) as servers:
        yield servers


class Application:
    """A stream from a local directory to HDFS, in cluster mode.

    Attributes:
        home: the directory of `spark-submit`, whose name is the name of the application.
        checkpoint: the URL of the checkpoint.
        secrets: parts of its tokens.

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
        self.checkpoint = f"{hdfs.url}/{home.name}/checkpoint"
        self._files = 0
        self.secrets: set[str] = set()
        for name in ("in", "events", "scratch"):
            (home / name).mkdir()

    def start(self, *options: str, more: Sequence[str] = ()) -> None:
        """Run `spark-submit` with options, and more arguments of the program."""
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (self.home / "events").as_uri(),
            "spark.eventLog.compress": "false",
            "spark.executor.instances": "1",
            "spark.security.credentials.renewalRatio": "0.3",
            "spark.yarn.appMasterEnv.TMPDIR": str(self.home / "scratch"),
        }
        words = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        urls = [(self.home / "in").as_uri(), self._output, self.checkpoint, str(self.home / "end")]
        arguments = ["--deploy-mode", "cluster", *words, *options, secured_yarn_job.__file__, *urls, *more]
        environment = self._variables | self._kdc.variables(self.home / "cache")
        self._yarn.submit(self.home.name, self.home, environment, arguments)

    def keytab(self) -> list[str]:
        """Return the options with which Spark replaces the tokens."""
        return ["--principal", f"{USER}@{REALM}", "--keytab", str(self._kdc.directory / f"{USER}.keytab")]

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
        files = self.token_files()
        for file in files:
            self.secrets.update(secrets_of(file))
        tokens = [token for file in files for token in read_tokens(file.read_bytes())]
        return max(token.issued_ms for token in tokens if token.kind == "HDFS_DELEGATION_TOKEN") / 1000

    def token_files(self, ending: str = "") -> list[Path]:
        """Return the token files of the containers with this ending, and the files of the driver's program."""
        variable = re.compile(f"^{FILE_VARIABLE}=(.*)$".encode(), re.MULTILINE)
        files = {*self.home.glob("scratch/ftfile-*/tokens-*[0-9]")}
        for process in self.processes(ending):
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

    def has_executor(self) -> bool:
        """Return True if an executor runs."""
        return any(EXECUTOR in command_of(process) for process in self.processes())

    def kill_master(self) -> None:
        """Kill the JVM of the application master."""
        kill(*(process for process in self.processes(MASTER) if MASTER_CLASS in command_of(process)))

    def end(self) -> None:
        """End the application."""
        (self.home / "end").touch()
        self._yarn.wait_for_end(self.home.name)

    def wait_for_failure(self) -> str:
        """Wait until the application fails, and return the output of its containers."""
        wait_for(lambda: self.description()["finalStatus"] == "FAILED", f"the failure of {self.home.name}")
        self._yarn.kill(self.home.name)
        return self._container_output()

    def check(self) -> None:
        """Check that each row is there once, for a plain reader and for ftfile."""
        lines = Counter(b'{"id":%d}' % row for row in range(self._files))
        assert check_directory(open_filesystem(self._output)).visible_rows == lines
        assert Counter(ftfile.open(self._output).to_arrow().column("id").to_pylist()) == Counter(range(self._files))

    def records(self) -> Iterator[str]:
        """Return the content of each file of the log."""
        return written(self._log)

    def check_secrets(self, *texts: str) -> None:
        """Look for tokens in the output of the containers, in the event log, and in more texts."""
        events = "".join(file.read_text() for file in self.home.glob("events/**/*") if file.is_file())
        assert "SparkListenerApplicationStart" in events
        assert self.secrets
        for text in (events, self._container_output(), *texts):
            assert not any(secret in text for secret in self.secrets)

    def _container_output(self) -> str:
        files = sorted(self._yarn.directory.glob(f"logs*/{self.description()['id']}/*/std*"))
        return "".join(file.read_text(errors="replace") for file in files)


@pytest.fixture(scope="module")
def create(
    yarn: SecuredYarn,
    kdc: Kdc,
    secured: SecuredCluster,
    plain_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Application]:
    """Create an application with a name."""
    variables = {name: text for name, text in plain_environment.items() if not name.startswith("PYSPARK_")}
    return lambda name: Application(yarn, kdc, secured, tmp_path_factory.mktemp(name, numbered=False), variables)


@pytest.fixture(scope="module")
def not_attached(create: Callable[[str], Application]) -> Application:
    """An application without `attach`, whose tokens end while other tests run."""
    application = create("not-attached")
    application.start(*application.keytab(), *ONE_ATTEMPT)
    return application


@pytest.fixture(scope="module")
def proxied(create: Callable[[str], Application], kdc: Kdc) -> Application:
    """An application of another user, whose tokens Spark does not replace. Only ftfile uses HDFS after the start."""
    application = create("proxied")
    application.checkpoint = (application.home / "checkpoint").as_uri()
    kdc.ticket(application.home / "cache", USER)
    application.start("--proxy-user", "guest", *ONE_ATTEMPT)
    return application


def cancel_token_of_driver(application: Application, kdc: Kdc, secured: SecuredCluster, directory: Path) -> None:
    """End the token of the submission, which only its renewer can do."""
    kdc.ticket(directory / "renewer", "rm/localhost")
    secured.cancel_token(application.token_files(MASTER)[0], directory / "renewer")


@pytest.mark.usefixtures("not_attached", "proxied")
def test_a_stream_continues_after_the_end_of_each_token(
    create: Callable[[str], Application], yarn: SecuredYarn
) -> None:
    """Open connections outlive their token, so the Python processes are killed after its end."""
    application = create("attached")
    application.start(*application.keytab(), more=["--attach"])
    application.run_batch()
    for _ in range(TOKEN_LIVES):
        application.outlive_tokens()
        application.kill_workers()
        application.run_batch()
    application.kill_master()
    application.run_batch()
    assert len(yarn.attempts("attached")) == 2, yarn.container_output()
    application.newest_token_s()
    application.end()
    application.check()
    application.check_secrets(*application.records())


@pytest.mark.skipif(not THOROUGH, reason="takes a minute: FTFILE_THOROUGH=1")
def test_with_a_keytab_on_all_hosts_no_process_needs_tokens(create: Callable[[str], Application], kdc: Kdc) -> None:
    """The command of docs/hdfs.md. Spark itself also needs the keytab."""
    application = create("keytab")
    shutil.copy(kdc.directory / f"{USER}.keytab", application.home / "copy.keytab")
    variables = [f"spark.{process}.KRB5_CONFIG={kdc.configuration}" for process in ("yarn.appMasterEnv", "executorEnv")]
    options = ["--files", str(application.home / "copy.keytab"), "--conf", variables[0], "--conf", variables[1]]
    settings = ["storage.keytab=copy.keytab", f"storage.principal={USER}@{REALM}", "storage.handTokens=false"]
    more = [word for setting in settings for word in ("--option", setting)]
    application.start(*application.keytab(), *options, more=more)
    application.run_batch()
    application.outlive_tokens()
    application.kill_workers()
    application.run_batch()
    application.end()
    application.check()


def test_without_attach_batches_are_committed_until_the_end_of_the_driver_s_token(
    not_attached: Application, kdc: Kdc, secured: SecuredCluster, tmp_path: Path
) -> None:
    """The ResourceManager renews this token up to its maximum lifetime, so the test cancels it as the renewer."""
    wait_for(not_attached.has_executor, "an executor")
    # No batch ran before, so no process has an open connection.
    end_s = not_attached.newest_token_s() + RENEW_INTERVAL_S
    wait_for(lambda: time.time() > end_s, "the end of the executor's token")
    not_attached.run_batch()
    cancel_token_of_driver(not_attached, kdc, secured, tmp_path)
    not_attached.kill_workers()
    not_attached.write_input()
    output = not_attached.wait_for_failure()
    assert re.search(ERROR, output), output[-5000:]
    not_attached.check_secrets()


def test_the_error_of_a_proxy_user_names_the_ended_token(
    proxied: Application, kdc: Kdc, secured: SecuredCluster, tmp_path: Path
) -> None:
    wait_for(proxied.has_executor, "an executor")
    proxied.newest_token_s()
    cancel_token_of_driver(proxied, kdc, secured, tmp_path)
    proxied.write_input()
    output = proxied.wait_for_failure()
    assert re.search(ERROR, output), output[-5000:]
    proxied.check_secrets()
