"""An application whose Python processes record which of their modules are loaded from Spark's archives."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

MODULE = """
import os
import sys
import time
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

def note(step):
    files = [getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]]
    archived = sum("pyspark.zip" in file or "-src.zip" in file for file in files)
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{step} {archived} {time.process_time():.3f} {sys.prefix}\\n")

class Writer(DataSourceStreamWriter):
    def write(self, rows):
        list(rows)
        note("write")
        return WriterCommitMessage()

    def commit(self, messages, batch_id):
        note("commit")

class Source(DataSource):
    @classmethod
    def name(cls):
        return "noting"

    def streamWriter(self, schema, overwrite):
        note("plan")
        return Writer()
"""


def write_installed_source(directory: Path) -> None:
    """Write a module whose source `found` Spark finds by itself, as it finds ftfile."""
    code = MODULE.replace('note("', 'note("found-').replace('"noting"', '"found"')
    (directory / "pyspark_noting.py").write_text(code.replace("class Source(", "class DefaultSource("))


def main(home: Path) -> None:
    """Run a UDF, and streams to a registered source, to an installed one, and to ftfile."""
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    (home / "user_module.py").write_text(MODULE)
    spark.sparkContext.addPyFile(str(home / "user_module.py"))
    # In the folder that addPyFile has added to the path.
    import user_module  # type: ignore[import-not-found]

    @udf("string")
    def noted(number: int) -> str:
        import user_module

        user_module.note("udf")
        return str(number)

    assert spark.range(1).select(noted("id")).collect()[0][0] == "0"
    spark.dataSource.register(user_module.Source)
    (home / "in").mkdir()
    (home / "in/rows.txt").write_text("a\nb\n")
    rows = spark.readStream.format("text").load(str(home / "in"))
    for sink, options in (("noting", {}), ("found", {}), ("ftfile", {"path": str(home / "out"), "fileFormat": "json"})):
        writer = rows.writeStream.format(sink).options(**options).option("checkpointLocation", str(home / sink))
        writer.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps(sorted(row.value for row in spark.read.format("ftfile").load(str(home / "out")).collect())))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
