"""A table over the files in a Hive metastore, which a session must be created with.

It is started as a script with one argument, a JSON file: `home`, for all files that are kept, and `found`, to which it
writes the content of the table at each step, as JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ftfile
from ftfile.testing.micro_batch import MicroBatch
from tests.demos.files.application import begin, build_session

__all__ = ()

FILES = "CREATE EXTERNAL TABLE files (id bigint, word string) PARTITIONED BY (k string) STORED AS PARQUET LOCATION "


def main() -> None:
    job = begin()
    home, out = job["home"], f"{job['home']}/o t"
    hive = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    }
    spark = build_session(home, hive)
    spark.sparkContext.setLogLevel("OFF")
    found: list[dict[str, Any]] = []

    def look() -> None:
        spark.sql("MSCK REPAIR TABLE files SYNC PARTITIONS")
        spark.sql("REFRESH TABLE files")
        rows = [(row.id, row.word, row.k) for row in spark.table("files").select("id", "word", "k").collect()]
        own = [(row["id"], row["word"], row["k"]) for row in ftfile.open(out).to_arrow().to_pylist()]
        found.append({"own": sorted(own), "files": sorted(rows)})

    query = MicroBatch(out, {"id": "long", "word": "string", "k": "string"}, {"partitionBy": "k"})
    keys = ["a b", "x/y%=", "it's", None]
    query.run(0, [[{"id": number, "word": f"w{number}", "k": keys[number % 4]} for number in range(8)]])
    spark.sql(f"{FILES} '{out}'")
    look()
    query.run(1, [[{"id": number, "word": None, "k": keys[number % 3]} for number in range(8, 16)]])
    ftfile.compact(out)
    look()
    ftfile.drop(out, {"k": "a b"})
    look()
    ftfile.restore(out, 0)
    look()
    spark.sql("DROP TABLE files")
    left = sorted(ftfile.open(out).to_arrow()["id"].to_pylist())
    Path(job["found"]).write_text(json.dumps({"looks": found, "left": left}))


if __name__ == "__main__":
    main()
