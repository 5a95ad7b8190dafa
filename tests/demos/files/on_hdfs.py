"""The demonstration on HDFS: its servers and the driver are killed during the streams, and every row is counted.

The servers are real processes (`tests.hdfs.minicluster`). One stream uses WebHDFS, the other Hadoop's protocol. The
states of the streams are read from the NameNode's web server, and the rows of a plain reader from a copy of all files.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from tests.demos.files.hdfs_path import HdfsPath
from tests.demos.files.kill import LONGEST_DELAY_S, Kill, Moment, Victim
from tests.demos.files.restarts import DemoError
from tests.demos.files.run import JOB_SCRIPT, PARTITION_BY, judge, write_job
from tests.demos.files.sinks import Target
from tests.demos.files.struck import StruckJob
from tests.guarded import CannotStart
from tests.hdfs.minicluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.demos.files.report import Console
    from tests.demos.files.run import Settings, SinkRun, Workspace

__all__ = ("plan_blows", "run_on_hdfs")

DATANODES = 2
# As on a cluster: a task that loses its DataNode in the middle of a large file is retried.
TASK_ATTEMPTS = 4
# The NameNode stops offering a dead DataNode after a few seconds instead of minutes.
SETTINGS = {"dfs.namenode.avoid.write.stale.datanode": "true", "dfs.namenode.stale.datanode.interval": "3000"}

BLOWS = (
    (Victim.DATANODE, Moment.WRITING),
    (Victim.APPLICATION, Moment.WINDOW),
    (Victim.NAMENODE, Moment.WINDOW),
    (Victim.APPLICATION, Moment.WRITING),
    (Victim.EVERYTHING, Moment.WRITING),
)
QUICK_BLOWS = ((Victim.NAMENODE, Moment.WINDOW), (Victim.DATANODE, Moment.WRITING), (Victim.APPLICATION, Moment.WINDOW))


def plan_blows(
    seed: int, targets: Sequence[str], batches: int, blows: Sequence[tuple[Victim, Moment]]
) -> tuple[Kill, ...]:
    """Draw the stream that is watched for each kill, and its batch. The kills are spread over the batches."""
    drawn = random.Random(seed)
    step = batches / (len(blows) + 1)
    watched = drawn.sample(targets, len(targets))
    kills = []
    for index, (victim, moment) in enumerate(blows):
        not_before = round(step * (index + 0.6 + drawn.uniform(-0.2, 0.2)))
        delay_s = drawn.uniform(0.0, LONGEST_DELAY_S) if moment is Moment.WRITING else 0.0
        kills.append(Kill(watched[index % len(watched)], moment, max(not_before, 1), delay_s, victim))
    return tuple(kills)


def run_on_hdfs(settings: Settings, workspace: Workspace, console: Console) -> SinkRun:
    """Stream all rows to HDFS under the kills, then read the result.

    Raises:
        DemoError: HDFS cannot be started; or the application failed, stopped making progress, or ended too early.
    """
    console.progress("HDFS starts")
    try:
        with MiniCluster(DATANODES, SETTINGS) as cluster:
            targets = tuple(_target(workspace.root, cluster, each) for each in settings.formats)
            console.line(f"HDFS: a NameNode and {DATANODES} DataNodes, to be looked at on {cluster.pages}")
            for target in targets:
                console.line(f"  {target.name} into {target.output}")
            kills = plan_blows(
                settings.seed, settings.formats, workspace.batches, QUICK_BLOWS if settings.quick else BLOWS
            )
            argument = write_job(settings, workspace.root, targets, TASK_ATTEMPTS)
            job = HdfsJob(argument, targets, workspace.batches, console, cluster)
            started_s = time.monotonic()
            try:
                hits = [hit for kill in kills for hit in job.strike(kill, started_s)]
                job.run_on()
            finally:
                job.end()
            return judge(workspace, "ftfile", targets, hits, time.monotonic() - started_s, console)
    except CannotStart as error:
        raise DemoError(str(error)) from error


class HdfsJob(StruckJob):
    """The Spark application, which continues while the servers that it uses are killed and restarted."""

    def __init__(
        self, argument: Path, targets: tuple[Target, ...], batches: int, console: Console, cluster: MiniCluster
    ) -> None:
        super().__init__(JOB_SCRIPT, argument, targets, batches, console)
        self._cluster = cluster

    def _kill_servers(self, victim: Victim) -> None:
        if victim is not Victim.NAMENODE:
            self._cluster.kill_datanode(0)
        if victim is Victim.EVERYTHING:
            self._cluster.kill_datanode(1)
        if victim is not Victim.DATANODE:
            self._cluster.kill_namenode()

    def _start_servers(self, victim: Victim) -> None:
        if victim is not Victim.NAMENODE:
            self._cluster.start_datanode(0, wait=False)
        if victim is Victim.EVERYTHING:
            self._cluster.start_datanode(1, wait=False)
        if victim is not Victim.DATANODE:
            self._cluster.start_namenode(wait=False)
        self._cluster.wait_until_ready()

    def _name_servers(self, victim: Victim) -> str:
        return "HDFS" if victim is Victim.EVERYTHING else victim.value


def _target(root: Path, cluster: MiniCluster, file_format: str) -> Target:
    home = root / "ftfile"
    return Target(
        name=file_format,
        sink="ftfile",
        file_format=file_format,
        partition_by=PARTITION_BY[file_format],
        output=HdfsPath(
            cluster.pages, cluster.web_url if file_format == "json" else cluster.url, f"/demo/{file_format}"
        ),
        # On the local disk: Spark's HDFS client would not wait for a NameNode.
        checkpoint=home / f"{file_format}-checkpoint",
        read_back=home / f"{file_format}-read-by-spark",
    )
