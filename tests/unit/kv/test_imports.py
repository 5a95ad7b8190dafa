"""What a worker need not import: pandas takes as long as a small batch."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.core.context import SYSTEM
from ftfile.kv.config import StoreConfig
from ftfile.kv.writer import StoreSink
from ftfile.rows.buffers import from_texts, numbers_from
from ftfile.rows.spark_types import spark_schema_json
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.messages import OperationIdentity, TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 500
UNUSED = {"ftfile.kv.operator.windows", "ftfile.kv.reading.reader", "ftfile.kv.upkeep.compact"}


@pytest.mark.packages
@pytest.mark.slow
def test_writing_merging_and_reading_do_not_import_pandas(tmp_path: Path) -> None:
    """pyarrow does so, where pandas is installed, at the first conversion of a Python value."""
    assert printed("own.use(sys.argv[1]); print('pandas' in sys.modules)", tmp_path) == "False\n"


@pytest.mark.slow
def test_batches_import_neither_readers_nor_operators(tmp_path: Path) -> None:
    """Each worker of Spark, and each process of a driver, imports for itself."""
    assert printed("own.write(sys.argv[1]); print(sorted(own.UNUSED & {*sys.modules}))", tmp_path) == "[]\n"


def printed(code: str, folder: Path) -> str:
    """Return the output of code in a separate process, given the path of a store."""
    code = f"import sys; from tests.unit.kv import test_imports as own; {code}"
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder / "store")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def use(path: str) -> None:
    """Write two batches of rows; merge them, and read."""
    words = write(path)
    kv.compact(path, full=True)
    with kv.open(path) as reader:
        assert reader.get("word 7") == reader.multi_get([f"word {number}" for number in range(ROWS)])[7] == 14
        assert reader.lookup(words).num_rows == sum(batch.num_rows for batch in reader.scan()) == ROWS


def write(path: str) -> pa.Array:
    """Write two batches of rows from plain memory, as a Spark worker gets them; return their words."""
    words = from_texts([f"word {number}" for number in range(ROWS)], pa.string())
    rows = pa.record_batch([words, numbers_from(np.arange(ROWS))], names=["word", "n"])
    schema = spark_schema_json(rows.schema).replace('"nullable": false', '"nullable": true')
    config = StoreConfig.from_options({"path": path, "keyColumns": "word", "merge": "n:sum", "buckets": "2"}, schema)
    for batch in range(2):
        plan = plan_write(StoreSink(), config, SYSTEM)
        message = write_task(plan, TaskIdentity(OperationIdentity(str(batch)), 0, 0), iter([rows]), SYSTEM)
        commit_batch(plan.sink, plan.config, [message], None, SYSTEM)
    return words
