"""The command ``python -m tests.kafka``."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from tests.cluster.cluster import Cluster
from tests.demos.files.command import run_command
from tests.demos.files.process import own_environment
from tests.hdfs.minicluster import MiniCluster
from tests.kafka.broker import Broker
from tests.kafka.proof import FORMATS
from tests.kafka.report import print_summary
from tests.kafka.run import PARTITIONS, TOPIC, Settings, Surroundings, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.demos.files.report import Console

__all__ = ()

FLIGHTS = 336_776


def main(arguments: Sequence[str] | None = None) -> int:
    """Stream from Kafka to files under kills. Exit codes: 0 exact, 1 not exact, 2 could not run."""
    options = _parse(arguments)
    rows, seconds, rollover = (30_000, 30.0, "5s") if options.quick else (FLIGHTS, 120.0, "15s")
    settings = Settings(
        seed=options.seed,
        rows=min(options.rows or rows, FLIGHTS),
        seconds=options.seconds or seconds,
        file_format=options.format,
        rolling={"rolloverInterval": rollover},
        quick=options.quick,
    )
    demonstrate = partial(_demonstrate, settings, on_hdfs=options.fs == "hdfs")
    return run_command("demo-kafka", demonstrate, keep=options.keep)


def _demonstrate(settings: Settings, home: Path, console: Console, *, on_hdfs: bool) -> bool:
    started_s = time.monotonic()
    where = "HDFS" if on_hdfs else "a local directory"
    console.line(
        f"Kafka to {settings.file_format} files on {where} by Spark {version('pyspark')}: {settings.rows:,} flights in "
        f"{settings.seconds:.0f} s, topic {TOPIC} of {PARTITIONS} partitions, kills drawn from seed {settings.seed}"
    )
    with contextlib.ExitStack() as servers:
        console.progress("a Kafka broker starts")
        broker = servers.enter_context(Broker())
        console.progress("HDFS starts")
        hdfs = servers.enter_context(MiniCluster()) if on_hdfs else None
        environment = own_environment(home) | ({"HADOOP_CONF_DIR": str(hdfs.conf)} if hdfs else {})
        console.progress("a Spark cluster starts")
        cluster = Cluster(home, environment)
        servers.callback(cluster.stop)
        cluster.wait()
        for name in ("a", "b"):
            cluster.start_worker(name)
        pages = f", HDFS {hdfs.pages}" if hdfs else ""
        console.line(f"  Kafka {broker.address}{pages}, {cluster.url} with two workers")
        outcome = run(settings, Surroundings(cluster, broker, hdfs, home, environment), console)
        print_summary(console, TOPIC, outcome)
    console.line(f"\n{time.monotonic() - started_s:.0f} s in all")
    return outcome.exact


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kafka", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=2013, help="draws the kills; same seed, same plan")
    parser.add_argument("--rows", type=int, help=f"send only the first ROWS flights (default: all {FLIGHTS:,})")
    parser.add_argument("--seconds", type=float, help="in which they are sent, unless kills take longer (default: 120)")
    parser.add_argument("--format", choices=sorted(FORMATS), default="parquet", help="of the files (default: parquet)")
    parser.add_argument("--fs", choices=("hdfs", "local"), default="hdfs", help="where to (default: hdfs)")
    parser.add_argument("--quick", action="store_true", help="30,000 flights in 30 s, three kills")
    parser.add_argument("--keep", action="store_true", help="keep logs and a copy of the files, and print where")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
