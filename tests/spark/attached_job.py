"""A Spark application with an attached session, whose stream leaves files open and waits.

It is started as a script with one argument, a JSON file: `paths` (`out`, `checkpoint`, `script`), `scratch`, and
`exits_at_sigterm`.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import ftfile.spark
from tests.demos.files.application import begin, build_session
from tests.spark.scripted_source import Script, ScriptedSource, start

__all__ = ("READY",)

READY = "all rows are committed"


def main() -> None:
    job = begin()
    if job["exits_at_sigterm"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    spark = build_session(job["scratch"])
    ftfile.spark.attach(spark)
    spark.dataSource.register(ScriptedSource)
    query = start(spark, job["paths"], rolling="policy")
    Script(Path(job["paths"]["script"])).release(2)
    query.processAllAvailable()
    print(READY, flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
