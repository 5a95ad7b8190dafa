"""Spark's client, scheduler and executors of Kubernetes, with the documented settings, on a server of the test."""

from __future__ import annotations

import base64
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from tests.archives import spark_options
from tests.cluster.cluster import SPARK_HOME, wait_for
from tests.cluster.held_stream import HeldStream
from tests.cluster.kubernetes import ApiServer, container_of, file_at, name_of
from tests.cluster.pods import Node, claim_directory
from tests.unit.writing.files.encrypted import FIRST, ring_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.kubernetes import Json

DOCS = Path(__file__).parents[2] / "docs"
# Hadoop's file of tokens, without a token.
NO_TOKENS = b"HDTS\0\0\0"
RING = ring_text(first=FIRST)
CORE_SITE = "<configuration><property><name>dfs.nameservices</name><value>ns</value></property></configuration>"
SMALL = ("spark.driver.memory=512m", "spark.executor.memory=512m")
EXECUTORS = "spark.executor.instances=2"
# Spark detects pods that were deleted while they ran only if it lists the pods.
QUICK_POLLING = (
    "spark.kubernetes.executor.apiPollingInterval=1s",
    "spark.kubernetes.executor.missingPodDetectDelta=1s",
)


def documented_command(page: str) -> tuple[list[str], list[str]]:
    """Return the settings of a page's command for Kubernetes as options, and the application with its arguments."""
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "spark.kubernetes" in block]
    command, *words = shlex.split(block.replace("\\\n", " "))
    assert command == "spark-submit"
    options = []
    while words[0].startswith("--"):
        option, value, *words = words
        if option == "--conf":
            options += [option, value]
    return options, words


def documented_settings() -> list[str]:
    """Return the settings of all documented commands for Kubernetes, as options."""
    return [*documented_command("running.md")[0], *documented_command("hdfs.md")[0]]


def check_pod(api: ApiServer, pod: Json) -> None:
    """Check that a pod of a driver or an executor has the documented image, variables and mounts."""
    variables = api.variables_of(pod)
    assert file_at(pod, "/data/in") == ("persistentvolumeclaims", "words", "in")
    assert variables["FTFILE_KEYS"] == RING
    assert container_of(pod)["image"] == "spark-ftfile"


@pytest.fixture
def api() -> Iterator[ApiServer]:
    files = {"tokens": NO_TOKENS, "ring": RING.encode()}
    data = {key: base64.b64encode(content).decode() for key, content in files.items()}
    with ApiServer() as server:
        server.put("secrets", {"metadata": {"name": "etl"}, "data": data})
        server.put("persistentvolumeclaims", {"metadata": {"name": "words"}})
        yield server
    assert not server.refused


@pytest.fixture
def node(api: ApiServer, tmp_path: Path, plain_environment: dict[str, str]) -> Iterator[Node]:
    image = plain_environment | {"JAVA_TOOL_OPTIONS": spark_options(), "SPARK_LOCAL_IP": "127.0.0.1"}
    with Node(api, tmp_path / "pods", image) as running:
        yield running


def submit(api: ApiServer, home: Path, variables: dict[str, str], *options: str) -> None:
    """Run `spark-submit` in cluster mode until it has created the driver's pod and its config maps."""
    command = [f"{SPARK_HOME}/bin/spark-submit", "--master", api.master, "--deploy-mode", "cluster"]
    for setting in (*SMALL, EXECUTORS, "spark.kubernetes.submission.waitAppCompletion=false"):
        command += ["--conf", setting]
    (home / "conf").mkdir()
    (home / "conf/core-site.xml").write_text(CORE_SITE)
    ended = subprocess.run(
        [*command, *options],
        cwd=home,
        env=variables | {"HADOOP_CONF_DIR": str(home / "conf")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-5000:]


def test_cluster_mode_as_documented(
    api: ApiServer, node: Node, tmp_path: Path, plain_environment: dict[str, str]
) -> None:
    volume = claim_directory(tmp_path / "pods", "words")
    (volume / "in").mkdir(parents=True)
    (volume / "in/0.json").write_text("".join(f'{{"word": "{letter}"}}\n' for letter in "abcdefgh"))
    _, (application, *arguments) = documented_command("running.md")
    blocks = re.findall(r"```python\n(# job.py\n.*?)```", (DOCS / "running.md").read_text(), re.DOTALL)
    (tmp_path / "job.py").write_text(blocks[0])
    assert application == "local:///jobs/job.py"
    submit(api, tmp_path, plain_environment, *documented_settings(), f"local://{tmp_path}/job.py", *arguments)
    (driver,) = api.wait_for_pods("driver", 1)
    executors = api.wait_for_pods("executor", 2)
    # Executors get tokens with each batch.
    token_file = api.variables_of(driver)["HADOOP_TOKEN_FILE_LOCATION"]
    assert file_at(driver, token_file) == ("secrets", "etl", "tokens")
    assert all("HADOOP_TOKEN_FILE_LOCATION" not in api.variables_of(pod) for pod in executors)
    (configuration,) = [value for value in api.objects("configmaps") if "core-site.xml" in value["data"]]
    assert configuration["data"]["core-site.xml"] == CORE_SITE
    for pod in (driver, *executors):
        check_pod(api, pod)
        directory = api.variables_of(pod)["HADOOP_CONF_DIR"]
        assert file_at(pod, f"{directory}/core-site.xml") == ("configmaps", name_of(configuration), "core-site.xml")

    def has_ended() -> bool:
        pod = api.get("pods", name_of(driver))
        assert pod is not None
        phase: str = pod["status"]["phase"]
        assert phase != "Failed", node.logs()
        return phase == "Succeeded"

    wait_for(has_ended, "the end of the driver's pod")
    assert sorted(ftfile.open(str(volume / "out")).to_arrow()["word"].to_pylist()) == list("abcdefgh")


def test_each_row_is_there_once_over_deaths_of_pods(
    api: ApiServer, node: Node, tmp_path: Path, plain_environment: dict[str, str]
) -> None:
    """Client mode, with the documented settings: the driver is a process, and its executors are pods."""
    tokens = tmp_path / "tokens"
    tokens.write_bytes(NO_TOKENS)
    options = ["--deploy-mode", "client", *documented_settings()]
    for setting in (EXECUTORS, *QUICK_POLLING):
        options += ["--conf", setting]
    variables = {"PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"])}
    variables["HADOOP_TOKEN_FILE_LOCATION"] = str(tokens)
    stream = HeldStream(tmp_path, api.master, plain_environment | variables)
    try:
        stream.interrupted(lambda held: node.kill(node.pod_of(held[0])))
        stream.interrupted(lambda held: node.delete(node.pod_of(held[0])))
        stream.interrupted(lambda held: node.lose(*map(node.pod_of, held)))
        stream.interrupted(lambda _: stream.driver_dies())
        stream.run_to_end()
    finally:
        stream.app.kill()
    stream.check()
    pods = [pod for change, pod in api.changes("pods") if change == "ADDED"]
    # Two executors of each driver, and one for each executor that died.
    assert len(pods) >= 2 + 4 + 2
    for pod in pods:
        check_pod(api, pod)
