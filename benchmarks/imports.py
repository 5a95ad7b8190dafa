"""Time until a fresh Python worker can write: imports, and the first task."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table, percentile

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROUNDS, SMOKE_ROUNDS = 15, 2
COLUMNS = ("step", "after", "p50 ms", "p90 ms")
NOTE = (
    "Each in a fresh interpreter, byte code and page cache warm. Spark's worker imports pyarrow and pyspark "
    "for any Arrow sink. 'first task' is everything from there to a durable staged file of one row."
)
PROGRAM = """
import sys, time
exec(sys.argv[1])
began = time.perf_counter()
exec(sys.argv[2])
print((time.perf_counter() - began) * 1000)
"""
WORKER = "import pyarrow, pyspark.worker, pyspark.sql.datasource"
# The rows come as Spark's do, in Arrow: making them of Python values would import pandas.
FIRST_TASK = """
import numpy, pickle, pyarrow
import ftfile.spark.writers
from ftfile.arrays.buffers import from_numpy
from ftfile.attempt.identity import TaskIdentity
from ftfile.testing.context import current
from ftfile.testing.micro_batch import MicroBatch
query = MicroBatch({path!r}, {{"sequence": "long"}}, {{"fileFormat": {file_format!r}}})
batch = pyarrow.RecordBatch.from_arrays([from_numpy(numpy.ones(1, numpy.int64), pyarrow.int64())], ["sequence"])
pickle.loads(query.plan()).write(TaskIdentity(query.identity(0), 0, 0), [batch], current())
"""


@dataclass(frozen=True, slots=True)
class Step:
    """Python code to time, and what ran before it."""

    label: str
    code: str
    after: str = ""
    setup: str = ""


def run(settings: Settings) -> list[Table]:
    """Time every step in turn, many times."""
    rounds = SMOKE_ROUNDS if settings.smoke else ROUNDS
    steps = _steps(settings.directory)
    for step in steps:  # byte code and page cache
        _time_ms(step)
    times_ms: dict[Step, list[float]] = {step: [] for step in steps}
    for _ in range(rounds):
        for step in steps:
            times_ms[step].append(_time_ms(step))
    rows = tuple(_row(step, times_ms[step]) for step in steps)
    return [Table(f"imports: {rounds} rounds", COLUMNS, rows, NOTE)]


def _steps(directory: Path) -> tuple[Step, ...]:
    first_tasks = (
        Step(
            f"ftfile {file_format}: first task",
            FIRST_TASK.format(path=str(directory / file_format), file_format=file_format),
            "pyspark's worker",
            WORKER,
        )
        for file_format in ("json", "parquet")
    )
    return (
        Step("pyarrow", "import pyarrow"),
        Step("pyspark's worker", WORKER, "pyarrow", "import pyarrow"),
        Step("ftfile", "import ftfile.spark.writers", "pyspark's worker", WORKER),
        *first_tasks,
    )


def _time_ms(step: Step) -> float:
    command = [sys.executable, "-c", PROGRAM, step.setup, step.code]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def _row(step: Step, times_ms: list[float]) -> tuple[Cell, ...]:
    LOGGER.info("imports: %s: %s ms", step.label, [round(time_ms) for time_ms in times_ms])
    return (step.label, step.after or "nothing", percentile(times_ms, 50), percentile(times_ms, 90))
