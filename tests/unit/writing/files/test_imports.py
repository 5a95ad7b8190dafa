"""What a first batch need not import: pandas and the kernels of Arrow take longer than a small batch."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from ftfile.core.context import SYSTEM
from ftfile.rows.buffers import from_texts, numbers_from
from ftfile.rows.spark_types import spark_schema_json
from ftfile.writing.batch import commit_batch, plan_write
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.files.file_writer import FileSink
from ftfile.writing.messages import StreamIdentity, TaskIdentity
from ftfile.writing.task import write_task

if TYPE_CHECKING:
    from pathlib import Path

SLOW = {"pandas", "pyarrow.compute", "pyarrow.dataset", "cryptography", "difflib", "importlib.metadata"}


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize(("file_format", "needed"), [("json", []), ("parquet", ["pyarrow.compute"])])
def test_a_first_batch_imports_nothing_slow(tmp_path: Path, file_format: str, needed: list[str]) -> None:
    """pyarrow imports pandas, where it is installed, at the first conversion of a Python value."""
    code = (
        "import sys, pytest; before = {*sys.modules}; from tests.unit.writing.files.test_imports import SLOW, use; "
        "use(*sys.argv[1:]); print(sorted(SLOW & ({*sys.modules} - before)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out"), file_format]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{needed}\n"


def use(path: str, file_format: str) -> None:
    """Write a batch of rows from plain memory, as a Spark worker gets them."""
    rows = pa.record_batch([from_texts(["a", "b"], pa.string()), numbers_from(np.arange(2))], names=["word", "n"])
    schema = spark_schema_json(rows.schema)
    config = SinkConfig.from_options({"path": path, "fileFormat": file_format}, schema, overwrite=False)
    plan = plan_write(FileSink(), config, SYSTEM)
    task = TaskIdentity(StreamIdentity("query", "run", 0), 0, 0)
    commit_batch(plan.sink, plan.config, [write_task(plan, task, iter([rows]), SYSTEM)], 0, SYSTEM)
