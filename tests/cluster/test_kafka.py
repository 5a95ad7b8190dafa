"""`make demo-kafka` in short, on the cluster and the HDFS of this folder: each offset is in the files once."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from tests.demos.files.kill import Victim
from tests.demos.files.report import Console
from tests.kafka.broker import Broker
from tests.kafka.proof import FORMATS
from tests.kafka.report import print_summary
from tests.kafka.run import TOPIC, Settings, Surroundings, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.hdfs.minicluster import MiniCluster

ROWS = 9_000


def test_each_offset_is_in_the_files_once_whatever_is_killed(
    seed: int, cluster: Cluster, hdfs: MiniCluster, tmp_path: Path, plain_environment: dict[str, str]
) -> None:
    file_format = sorted(FORMATS)[seed % len(FORMATS)]
    # By number, not by age: otherwise, on a slow machine, each batch could become a separate file.
    rolling = {"maxBatchesPerFile": "4"}
    settings = Settings(seed, ROWS, seconds=9.0, file_format=file_format, rolling=rolling, quick=True)
    environment = plain_environment | {"HADOOP_CONF_DIR": str(hdfs.conf)}
    printed = io.StringIO()
    with Broker() as broker:
        outcome = run(settings, Surroundings(cluster, broker, hdfs, tmp_path, environment), Console(printed))
    print_summary(Console(printed), TOPIC, outcome)
    assert outcome.exact, printed.getvalue()
    assert outcome.sent == sum(partition.in_files for partition in outcome.partitions) == ROWS
    victims = {hit.kill.victim for hit in outcome.hits if hit.counts}
    assert {Victim.BROKER, Victim.DRIVER} < victims
    assert len(victims) == 3
    assert 1 < outcome.files.files < len(outcome.versions), "rolled"
    assert "each (topic, partition, offset) is in the files once, without a gap" in printed.getvalue()
