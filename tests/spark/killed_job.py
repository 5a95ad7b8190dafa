"""The Spark application that is killed in the middle of a stream from a script.

It is started as a script with one argument, a JSON file: `paths` (`out`, `checkpoint`, `script`), `batches` (the number
of the script's batches to run), `options`, and `home`, for Spark's files, including its event log.
"""

from __future__ import annotations

from pathlib import Path

from tests.demos.files.application import begin, build_session
from tests.spark.scripted_source import Script, ScriptedSource, run

__all__ = ()


def main() -> None:
    job = begin()
    home = job["home"]
    events = {
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": Path(home, "events").as_uri(),
        "spark.eventLog.enabled": "true",
    }
    spark = build_session(f"{home}/scratch", events)
    spark.dataSource.register(ScriptedSource)
    script = Script(Path(job["paths"]["script"]))
    run(spark, job["paths"], script, job["batches"], **job["options"])


if __name__ == "__main__":
    main()
