"""Delta's history and details of a table, as `command` asks for them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.spark_session import open_session, transports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ()

CALLS = {
    "DESCRIBE DETAIL": "DESCRIBE DETAIL delta.`{}`",
    "DESCRIBE HISTORY LIMIT 1000": "DESCRIBE HISTORY delta.`{}` LIMIT 1000",
    "DESCRIBE HISTORY": "DESCRIBE HISTORY delta.`{}`",
}


def main(asked: str) -> None:
    """Call twice each, and write figures as JSON to the file that a JSON object names."""
    work = json.loads(asked)
    more = {"spark.driver.memory": "6g"} | work["session"]
    calls: list[dict[str, Any]] = []
    with open_session(Path(work["directory"]), unix_sockets=[*transports().values()][-1], more=more) as spark:
        spark.range(1).collect()
        for call, statement in CALLS.items():
            seconds = []
            for _ in range(2):
                began = time.perf_counter()
                lines = len(spark.sql(statement.format(work["table"])).collect())
                seconds.append(time.perf_counter() - began)
            calls.append({"call": call, "lines": lines, "s": seconds})
        mb = _most_mb_of_jvm(spark)
    Path(work["figures"]).write_text(json.dumps({"calls": calls, "mb": mb}))


def _most_mb_of_jvm(spark: SparkSession) -> float:
    """Return the greatest resident size of the JVM."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - nothing else knows its process
    pid = jvm.java.lang.ProcessHandle.current().pid()
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    main(sys.argv[1])
