"""A declarative pipeline of a stream and a stream that follows it, and kills of its run at planned moments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.cluster import ENDS_WITH_PARENT, PYTHON_PROCESS, SPARK_HOME, command_of, kill
from tests.cluster.numbered_rows import Numbers, Watch
from tests.demos.files.kill import hunt
from tests.demos.files.process import SessionApp, own_environment, session_members
from tests.demos.files.sinks import Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.demos.files.kill import Hit, Kill

__all__ = ("PipelineStream",)

FLOWS = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.getActiveSession()
dp.create_sink("numbers", format="ftfile", options={{"path": "{home}/numbers", "fileFormat": "json"}})
dp.create_sink("copies", format="ftfile", options={{"path": "{home}/copies", "fileFormat": "json"}})


@dp.append_flow(target="numbers")
def write():
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json("{home}/in")


@dp.append_flow(target="copies")
def copy():
    rows = spark.readStream.format("ftfile").schema("id long").option("maxFilesPerTrigger", 1)
    return rows.load("{home}/numbers")
"""
PIPELINE = """\
name: numbers
storage: file://{home}/pipeline
libraries:
  - glob:
      include: flows.py
"""


class PipelineStream:
    """A pipeline with two flows, one from files of numbers, and one from the directory of the first flow.

    Attributes:
        numbers: the input.
        written: the directory and the checkpoint of the first flow.
        copied: the same of the second flow.
        run: the newest run.

    Args:
        home: an empty directory.
        environment: more variables of all processes.
    """

    run: SessionApp

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self.numbers = Numbers(home / "in")
        checkpoints = home / "pipeline/_checkpoints"
        self.written = Stream("numbers", "ftfile", home / "numbers", checkpoints / "numbers/write/0")
        self.copied = Stream("copies", "ftfile", home / "copies", checkpoints / "copies/copy/0")
        self.streams = [self.written, self.copied]
        (home / "scratch").mkdir()
        (home / "flows.py").write_text(FLOWS.format(home=home))
        (home / "spark-pipeline.yml").write_text(PIPELINE.format(home=home))
        self._home = home
        self._environment = {"SPARK_HOME": str(SPARK_HOME), **own_environment(home), **environment}
        self._runs: list[SessionApp] = []

    def start(self) -> None:
        """Start a run, which ends after the data that exists now."""
        settings = {
            "spark.driver.memory": "512m",
            "spark.local.dir": str(self._home / "scratch"),
            "spark.sql.warehouse.dir": str(self._home / "tables"),
            "spark.ui.enabled": "false",
        }
        words = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        program = Path(self._environment["SPARK_HOME"], "bin/spark-pipelines")
        # Failed tasks are retried, as on a cluster.
        pipelines = [str(program), "--remote", "local[2,4]", *words, "run", "--spec", "spark-pipeline.yml"]
        self.run = SessionApp([*ENDS_WITH_PARENT, *pipelines], self._home / "log", self._environment)
        self._runs.append(self.run)

    def stop(self) -> None:
        """Kill all processes."""
        for run in self._runs:
            run.kill()

    def kill_run(self, planned: Kill) -> bool:
        """Kill all processes of a run; return False if it ended before the moment."""
        return self._hunt(planned) is not None

    def kill_python(self, planned: Kill) -> bool:
        """Kill the Python processes of the tasks and of the commits. Spark restarts the flows in the same run."""
        hit = self._hunt(planned, strikes=True)
        self.run_to_end()
        return hit is not None

    def python_processes(self) -> list[int]:
        """Return the Python processes of the newest run, without the process that reads the pipeline's files."""
        return [number for number in session_members(self.run.session) if PYTHON_PROCESS in command_of(number)]

    def run_to_end(self) -> None:
        """Wait for the end of the newest run."""
        self._watch().wait(lambda: self.run.exit_code is not None, "the end of the pipeline")
        assert self.run.exit_code == 0, self.run.last_words()
        self.run.kill()

    def _hunt(self, planned: Kill, *, strikes: bool = False) -> Hit | None:
        strike = (lambda: kill(*self.python_processes())) if strikes else None
        hit = hunt(self.run, planned, self.streams, self._watch(), strike)
        assert hit is not None or self.run.exit_code == 0, self.run.last_words()
        return hit

    def _watch(self) -> Watch:
        return Watch(self.streams, lambda: None)
