"""The start of every Spark application that runs as a separate process: its argument, its end, its session."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from tests import quick_python, quick_spark

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("begin", "build_session")

NO_MORE: Mapping[str, str] = MappingProxyType({})


def begin() -> dict[str, Any]:
    """Return the JSON of the file that the command line names. From now on the process ends with its parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    job: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    return job


def build_session(
    scratch: str,
    settings: Mapping[str, str] = NO_MORE,
    *,
    memory: str = "512m",
    task_attempts: int = 1,
    master: str = "",
) -> SparkSession:
    """Return a session, which starts quickly.

    Args:
        scratch: existing directory for its temporary files.
        settings: more settings of Spark.
        memory: of the JVM.
        task_attempts: number of failures of one task after which its query fails, if there is no master.
        master: of Spark; by default two cores of this process.
    """
    common = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch} {quick_spark.java_options()}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        # Hadoop's client waits for a busy DataNode.
        "spark.hadoop.dfs.client.block.write.locateFollowingBlock.retries": "12",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    quick_python.start(Path(scratch))
    builder = SparkSession.builder.master(master or f"local[2,{task_attempts}]")
    for name, value in {**common, **settings}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _end_with_parent() -> None:
    """Exit at once when the parent has ended, which closes our standard input."""
    sys.stdin.read()
    os._exit(1)
