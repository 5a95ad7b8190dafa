"""One step of a first batch or read, run as Spark's Python processes run it. Prints all imported modules."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

from ftfile.core.context import SYSTEM
from ftfile.rows.buffers import from_texts, numbers_from
from ftfile.spark.datasource import FtFileDataSource
from ftfile.writing.messages import StreamIdentity, TaskIdentity
from tests.unit.spark.pickled import pickled


def run(step: str, directory: Path) -> None:
    """Run a step: `plan`, `write`, `commit` or `read`. The step before it has stored its result in the directory."""
    planned, message = directory / "planned", directory / "message"
    if step == "write":
        from ftfile.spark.writers import TaskMessage
        from ftfile.writing.task import write_task

        writer = pickle.loads(planned.read_bytes())
        # A Spark worker receives Arrow batches. To convert a Python value, pyarrow imports pandas if it is installed.
        rows = pa.record_batch([from_texts(["a", "b"], pa.string()), numbers_from(np.arange(2))], names=["word", "n"])
        task = TaskIdentity(StreamIdentity("query", "run", 0), 0, 0)
        written = write_task(writer._plan, task, iter([rows]), SYSTEM)  # noqa: SLF001 - `write` asks Spark for the task
        message.write_bytes(pickled(TaskMessage(written)))
        return
    options = {} if step == "read" else {"fileFormat": "json"}
    source = FtFileDataSource({"path": str(directory / "out"), **options})
    if step == "read":
        reader = source.reader(source.schema())
        (partition,) = reader.partitions()
        assert [batch.num_rows for batch in reader.read(partition)] == [2]  # type: ignore[union-attr]  # they are Arrow's
        return
    writer = source.streamWriter(StructType().add("word", StringType()).add("n", LongType()), overwrite=False)
    if step == "plan":
        planned.write_bytes(pickled(writer))
    else:
        writer.commit([pickle.loads(message.read_bytes())], 0)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
    print(json.dumps(sorted(sys.modules)))
