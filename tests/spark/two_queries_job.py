"""The Spark application that is killed: two streams into one directory, with files that stay open over batches.

It is started as a script with one argument, a JSON file: `input` (of each query a directory of JSON files),
`checkpoints`, `options` (of each query), `output`, `scratch`. It ends after the last file of both inputs.
"""

from __future__ import annotations

from tests.demos.files.application import begin, build_session

__all__ = ()

SCHEMA = "id long, k string, name string"


def main() -> None:
    job = begin()
    settings = {"spark.sql.files.openCostInBytes": "1m", "spark.sql.shuffle.partitions": "3"}
    spark = build_session(job["scratch"], settings, memory="1g")
    queries = []
    for name, options in job["options"].items():
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(job["input"][name])
        if name == "b":
            frame = frame.repartition("name")  # an exchange, so that AQE chooses the number of tasks of a batch
        writer = frame.writeStream.format("ftfile").queryName(name).trigger(availableNow=True).options(**options)
        queries.append(writer.option("checkpointLocation", job["checkpoints"][name]).start(job["output"]))
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
