"""The application of the soak as a declarative pipeline: runs of it until all input is processed.

It is started as a script with the same argument as `job.py`. The pipeline has a flow and a sink for each query. A run
processes the data that exists when the run begins, so the last run begins after the first flow has written all rows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import pipelines
from pyspark.sql import SparkSession

from tests.cluster.cluster import ENDS_WITH_PARENT, SPARK_HOME, command_of, java_processes, kill
from tests.demos.files.application import begin, build_session
from tests.demos.files.process import list_processes, session_members
from tests.soak.job import FAILURES_MAX, PAUSE_S, SETTINGS, finish, note, numbers, options_of
from tests.soak.rows import ROW_IN_SPARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

__all__ = ("FLOWS", "clients_in", "define")

# The flow of each query. The checkpoint is below `_checkpoints/QUERY/FLOW` of the pipeline's storage.
FLOWS = {"rows": "to_rows", "words": "to_words", "followed": "to_followed"}
FORMATS = {"rows": "ftfile", "words": "ftkv", "followed": "ftfile"}
# A client whose JVM was killed tries to connect for minutes. At the end of a run, it ends soon after its JVM.
END_S = 15.0
CLIENT = "pyspark/pipelines/cli.py"
PIPELINE = """\
name: soak
storage: {storage}
libraries:
  - glob:
      include: flows.py
"""
DEFINITION = """\
from tests.soak.pipeline_job import define

define({argument!r})
"""


def main() -> None:
    """Run the pipeline until all rows are in all directories, finish the open files, and dump the store.

    Raises:
        RuntimeError: the pipeline failed repeatedly.
    """
    job = begin()
    home = Path(job["scratch"])
    storage = Path(job["checkpoints"]["rows"]).parents[3]
    (home / "job.json").write_text(json.dumps(job), encoding="utf-8")
    (home / "flows.py").write_text(DEFINITION.format(argument=str(home / "job.json")), encoding="utf-8")
    (home / "spark-pipeline.yml").write_text(PIPELINE.format(storage=storage.as_uri()), encoding="utf-8")
    # The end of this process closes the other end, which ends the runs.
    living, _ = os.pipe()
    successes = failures = 0
    while successes < 2:
        if _run(job, home, living):
            successes, failures = successes + 1, 0
        elif failures == FAILURES_MAX:
            raise RuntimeError(f"the pipeline failed {FAILURES_MAX} times in a row")
        else:
            failures += 1
            time.sleep(PAUSE_S)
    spark = build_session(job["scratch"], {**SETTINGS, **job["settings"]}, memory="1g", task_attempts=4)
    finish(spark, job)
    spark.stop()


def clients_in(processes: Iterable[int]) -> list[int]:
    """Return the processes that read the definition of the pipeline, and wait for its end."""
    return [number for number in processes if CLIENT in command_of(number)]


def define(argument: str) -> None:
    """Define the sinks and the flows.

    Args:
        argument: JSON file with the settings of the application.
    """
    job: dict[str, Any] = json.loads(Path(argument).read_text(encoding="utf-8"))
    spark = SparkSession.getActiveSession()
    assert spark is not None

    def rows() -> DataFrame:
        return numbers(spark, job).selectExpr(*ROW_IN_SPARK)

    def words() -> DataFrame:
        return numbers(spark, job).selectExpr(ROW_IN_SPARK[1], "1L AS n")

    def followed() -> DataFrame:
        # While the directory is empty, only this schema is known.
        reader = spark.readStream.format("ftfile").schema("id long, word string, text string")
        return reader.option("maxFilesPerTrigger", job["files_per_trigger"]).load(job["rows"])

    flows = {"rows": rows, "words": words, "followed": followed}
    for name, flow in flows.items():
        options = {option: str(value) for option, value in options_of(job, name).items()}
        pipelines.create_sink(name, format=FORMATS[name], options={"path": job[name], **options})
        pipelines.append_flow(target=name, name=FLOWS[name])(flow)


def _run(job: dict[str, Any], home: Path, living: int) -> bool:
    """Run the pipeline once; return True if it has processed all data that existed when it began."""
    settings = {
        **SETTINGS,
        "spark.driver.memory": "1g",
        "spark.local.dir": job["scratch"],
        "spark.sql.warehouse.dir": f"{job['scratch']}/warehouse",
        "spark.ui.enabled": "false",
        **job["settings"],
    }
    words = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    program = Path(os.environ.get("SPARK_HOME", SPARK_HOME), "bin/spark-pipelines")
    command = [str(program), "--remote", job["master"], *words, "run", "--spec", "spark-pipeline.yml"]
    log = home / "run.log"
    with log.open("wb") as output:
        running = subprocess.Popen([*ENDS_WITH_PARENT, *command], stdin=living, stdout=output, stderr=output, cwd=home)
        served_s = float("inf")
        while (code := running.poll()) is None:
            time.sleep(PAUSE_S)
            if _has_server():
                served_s = time.monotonic()
            elif time.monotonic() > served_s + END_S and (clients := clients_in(session_members(os.getsid(0)))):
                kill(*clients)
    _end_left_processes()
    text = log.read_text(encoding="utf-8", errors="replace")
    print(text[-5000:], flush=True)
    # Spark starts a flow again after a failure. The run can succeed then.
    if code or re.search(r"\berrors\.\w+", text):
        note(job, "pipeline", text)
    return code == 0


def _has_server() -> bool:
    """Return True if the client of a run has a JVM."""
    members = session_members(os.getsid(0))
    jvms = java_processes(members)
    parents = {each.parent for each in list_processes() if each.number in jvms}
    return not parents.isdisjoint(clients_in(members))


def _end_left_processes() -> None:
    """Kill the JVM and the client of a run that has ended: only one driver may use a checkpoint.

    If the client or the JVM that starts it was killed, they would live for a while. Python processes live on.
    """
    members = session_members(os.getsid(0))
    if left := [*java_processes(members), *clients_in(members)]:
        kill(*left)


if __name__ == "__main__":
    main()
