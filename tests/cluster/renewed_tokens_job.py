"""Streams that run while the driver's tokens are replaced; one argument, a JSON file.

It contains `master`, `settings` of Spark, `input` (a directory of JSON files), `outputs` (URLs), `scratch` (a
directory), and `result`, the file to which the last committed batch of each output is written again and again. If a
file `reissued` with tokens appears in `scratch`, the driver's JVM gets the tokens. A query that
fails by another error than ftfile's is started again. The application ends when its standard input is closed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import ftfile.spark
from tests.cluster.job import end_with_parent

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ()


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    threading.Thread(target=end_with_parent, daemon=True).start()
    builder = SparkSession.builder.master(job["master"])
    for name, value in job["settings"].items():
        builder.config(name, value)
    spark = builder.getOrCreate()
    ftfile.spark.attach(spark)
    queries = {output: start(spark, job, output) for output in job["outputs"]}
    result, temporary = Path(job["result"]), Path(f"{job['result']}.new")
    while True:
        errors = {}
        for output, query in queries.items():
            if query.exception() is not None and "ftfile.core.errors" in str(query.exception()):
                errors[output] = str(query.exception())
            elif not query.isActive:
                # Spark ends a query whose Python processes were killed.
                queries[output] = start(spark, job, output)
        committed = {output: batch_of(query.lastProgress) for output, query in queries.items()}
        temporary.write_text(json.dumps({"committed": committed, "errors": errors}))
        temporary.replace(result)
        reissued = Path(job["scratch"], "reissued")
        if reissued.exists():
            add_tokens(spark, reissued)
            reissued.unlink()
        time.sleep(0.1)


def start(spark: SparkSession, job: dict[str, Any], output: str) -> StreamingQuery:
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(f"file://{job['input']}")
    checkpoint = f"file://{job['scratch']}/checkpoint-{job['outputs'].index(output)}"
    writer = rows.writeStream.format("ftfile").option("fileFormat", "json").option("checkpointLocation", checkpoint)
    return writer.start(output)


def add_tokens(spark: SparkSession, path: Path) -> None:
    """Give the driver's JVM the tokens of a file, as Spark does when it replaces tokens."""
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm_path = jvm.org.apache.hadoop.fs.Path(path.as_uri())
    hadoop = jvm.org.apache.hadoop.security
    credentials = hadoop.Credentials.readTokenStorageFile(jvm_path, jvm.org.apache.hadoop.conf.Configuration())
    hadoop.UserGroupInformation.getCurrentUser().addCredentials(credentials)


def batch_of(progress: dict[str, int] | None) -> int:
    """Return the last batch with rows; -1 without one."""
    if progress is None:
        return -1
    return progress["batchId"] - (0 if progress["numInputRows"] else 1)


if __name__ == "__main__":
    main()
