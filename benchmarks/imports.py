"""Processor time until a fresh Python process of Spark has done its step of a first batch, mostly imports."""

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
    "Of the processor, each in a fresh interpreter, byte code and page cache warm. Spark imports pyarrow for any Arrow "
    "sink where it plans and writes, and not where it commits. Each step of ftfile has its imports in it, and a batch "
    "of one row, from the options to the record."
)
# A process takes itself for one that Spark started by the name of its main module.
PROGRAM = """
import importlib.machinery, sys, time
__spec__ = importlib.machinery.ModuleSpec("pyspark.sql.worker", None)
exec(sys.argv[1])
began = time.process_time()
exec(sys.argv[2])
print((time.process_time() - began) * 1000)
"""
DRIVER = "import pyspark.sql.datasource, pyspark.sql.types, pyspark.cloudpickle"
WORKER = "import pyarrow, pyspark.worker, pyspark.sql.datasource"
SOURCE = """
import pathlib, pickle
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructType
from ftfile.spark.datasource import FtFileDataSource
directory = pathlib.Path({path!r})
source = FtFileDataSource({{"path": str(directory / "out"), "fileFormat": {file_format!r}}})
writer = source.streamWriter(StructType().add("sequence", LongType()), overwrite=False)
"""
PLAN = (
    """
import shutil
shutil.rmtree({path!r}, ignore_errors=True)
"""
    + SOURCE
    + """
directory.mkdir(parents=True, exist_ok=True)
(directory / "planned").write_bytes(cloudpickle.dumps(writer))
"""
)
# The rows come as Spark's do, in Arrow: making them of Python values would import pandas.
TASK = """
import numpy, pathlib, pickle, pyarrow
from pyspark import cloudpickle
directory = pathlib.Path({path!r})
writer = pickle.loads((directory / "planned").read_bytes())
from ftfile.rows.buffers import from_numpy
from ftfile.writing.messages import StreamIdentity, TaskIdentity
from ftfile.core.context import SYSTEM
from ftfile.spark.writers import TaskMessage
batch = pyarrow.RecordBatch.from_arrays([from_numpy(numpy.ones(1, numpy.int64), pyarrow.int64())], ["sequence"])
from ftfile.writing.task import write_task
written = write_task(writer._plan, TaskIdentity(StreamIdentity("query", "run", 0), 0, 0), [batch], SYSTEM)
(directory / "message").write_bytes(cloudpickle.dumps(TaskMessage(written)))
"""
COMMIT = (
    SOURCE
    + """
writer.commit([pickle.loads((directory / "message").read_bytes())], 0)
"""
)


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
    return (
        Step("pyarrow", "import pyarrow"),
        Step("pyspark's driver", DRIVER),
        Step("pyspark's worker", WORKER, "pyarrow", "import pyarrow"),
        *(step for file_format in ("json", "parquet") for step in _batch(directory / file_format, file_format)),
    )


def _batch(directory: Path, file_format: str) -> tuple[Step, ...]:
    """Return the steps of a batch, of which each needs the one before."""
    planner = "pyspark's driver, pyarrow", f"{DRIVER}, pyarrow"
    steps = (
        ("plan", PLAN, *planner),
        ("task", TASK, "pyspark's worker", WORKER),
        ("commit", COMMIT, "pyspark's driver", DRIVER),
    )
    filled = {"path": str(directory), "file_format": file_format}
    return tuple(Step(f"ftfile {file_format}: {name}", code.format(**filled), *after) for name, code, *after in steps)


def _time_ms(step: Step) -> float:
    command = [sys.executable, "-c", PROGRAM, step.setup, step.code]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def _row(step: Step, times_ms: list[float]) -> tuple[Cell, ...]:
    LOGGER.info("imports: %s: %s ms", step.label, [round(time_ms) for time_ms in times_ms])
    return (step.label, step.after or "nothing", percentile(times_ms, 50), percentile(times_ms, 90))
