"""Streams on YARN whose executors, servers and drivers are killed or frozen in the middle of their batches."""

from __future__ import annotations

import random
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.cluster import held_commit
from tests.cluster.cluster import SPECULATION
from tests.cluster.yarn_application import Application
from tests.cluster.yarn_client_stream import ClientStream
from tests.cluster.yarn_stream import SHUFFLED, HeldStream
from tests.crash.share import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.cluster.yarn import Yarn
    from tests.hdfs.minicluster import MiniCluster

# A few batches are committed for each kill.
FILES = 24
FILES_WITH_SHUFFLES = 12
FILES_IN_CLIENT_MODE = 60 if THOROUGH else 48
MASTER_LOG_BYTES = 1_000_000
DYNAMIC = SPECULATION | {
    "spark.decommission.enabled": "true",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.maxExecutors": str(SHUFFLED),
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.timeout": "20s",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout": "1s",
    "spark.executor.instances": "1",
    # Too much for three executors on one node: a speculative attempt of a task only starts on another host.
    "spark.executor.memory": "1200m",
}
ARCHIVES = ("ftfile.zip", "held_commit.zip")
OPTIONS = ("--deploy-mode", "cluster", "--py-files", ",".join(ARCHIVES))
# Spark finds a source in a wheel only in cluster mode.
CLIENT_OPTIONS = ("--deploy-mode", "client", "--py-files", ",".join(ARCHIVES))
REGISTER = ("--register",)


def as_options(settings: Mapping[str, str]) -> list[str]:
    """Return settings as options of `spark-submit`."""
    return [word for item in settings.items() for word in ("--conf", "=".join(item))]


@pytest.fixture
def stream(yarn: Yarn, hdfs: MiniCluster, plain_environment: dict[str, str], tmp_path: Path, wheel: Path) -> HeldStream:
    variables = {name: text for name, text in plain_environment.items() if not name.startswith("PYSPARK_")}
    application = Application(yarn, hdfs, tmp_path, variables)
    shutil.copy(wheel, application.home)
    held_commit.pack(application.home / "held_commit.zip")
    return HeldStream(yarn, application)


def test_each_row_and_word_is_there_once_if_processes_are_killed(yarn: Yarn, stream: HeldStream, python: Path) -> None:
    application = stream.application
    application.extend_input(FILES)
    application.hold_commits()
    holds = ["--hold", str(stream.directory), "--orders", str(stream.directory)]
    application.start(str(python), *OPTIONS, more=[*holds, "--words", application.store])
    stream.interrupt(stream.kill_executor)
    # Batches are also committed while it is away.
    stream.interrupt(stream.kill_resource_manager)
    yarn.start_resource_manager()
    yarn.wait_for_nodes()
    stream.replace_driver(stream.kill_master_jvm)
    stream.replace_driver(stream.kill_node)
    yarn.start_missing_nodes()
    if THOROUGH:
        stream.replace_driver(stream.kill_node_with_containers)
        yarn.start_missing_nodes()
    stream.freeze_commit()
    stream.end_hold()
    yarn.wait_for_end(application.name)
    assert len(yarn.attempts(application.name)) == (5 if THOROUGH else 4)
    # The thawed commit was refused. It was a replay, so the old driver created no other record and deleted nothing.
    first, *later = stream.commit.calls()
    assert re.fullmatch(r"create_exclusive _ftfile/log/\w+\.record AlreadyExists", first)
    assert not [call for call in later if call.startswith(("create_exclusive", "delete"))]
    application.check()
    application.check_words()


def test_each_row_is_there_once_if_attempts_race_and_executors_come_and_go(
    yarn: Yarn, stream: HeldStream, python: Path
) -> None:
    application = stream.application
    application.extend_input(FILES_WITH_SHUFFLES)
    more = ["--hold", str(stream.directory), "--shuffle", str(SHUFFLED)]
    application.start(str(python), *OPTIONS, *as_options(DYNAMIC), more=more)
    stream.race_attempts()
    stream.decommission_executor()
    stream.end_hold()
    yarn.wait_for_end(application.name)
    # A signal without its handler would only kill the executor.
    assert re.search(r"Received executor \d+ decommissioned message", yarn.container_output(MASTER_LOG_BYTES))
    application.check()


def test_each_row_is_there_once_in_client_mode_if_processes_are_killed(
    yarn: Yarn, stream: HeldStream, python: Path, seed: int
) -> None:
    application, rng = stream.application, random.Random(seed)
    application.extend_input(FILES_IN_CLIENT_MODE)
    options = [*CLIENT_OPTIONS, *as_options(SPECULATION)]
    client = ClientStream(yarn, application, rng=rng, python=str(python), options=options, more=REGISTER)
    client.start()
    kills = [client.kill_driver, client.kill_executor, client.kill_workers, client.kill_master]
    chosen = rng.sample(kills, len(kills) if THOROUGH else 2)
    # Batches are also committed while the ResourceManager is away.
    for kill in [*chosen, client.kill_resource_manager]:
        client.strike(kill)
    yarn.wait_for_end(application.name)
    # Another driver is another application.
    assert len(yarn.applications(application.name)) == 1 + (client.kill_driver in chosen)
    application.check()
