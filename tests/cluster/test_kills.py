"""A stream on a cluster whose executors, Python workers, worker and driver are killed in the middle of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.cluster import executor_of, kill
from tests.cluster.held_stream import HeldStream

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.cluster import Cluster


def test_each_row_is_there_once_whatever_is_killed(
    cluster: Cluster, tmp_path: Path, plain_environment: dict[str, str]
) -> None:
    stream = HeldStream(tmp_path, cluster.url, plain_environment)
    try:
        # The executor of one task, and the Python workers of the other.
        stream.interrupted(lambda held: kill(executor_of(held[0]), *cluster.python_workers(executor_of(held[1]))))
        stream.interrupted(lambda _: cluster.workers["a"].kill())
        cluster.start_worker("a")
        stream.interrupted(lambda _: stream.driver_dies())
        stream.run_to_end()
    finally:
        stream.app.kill()
    stream.check()
