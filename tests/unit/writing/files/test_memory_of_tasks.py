"""The memory of a task that writes to many directories."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.crash.share import THOROUGH

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

MIB = 1 << 20
# What a task may take: 96 MiB, and a quarter more than the rows it may hold.
BUDGET_BYTES = 96 * MIB + int(1.25 * 64 * MIB)


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


# In the suite each of both once.
CASES = [("json", "batch"), ("parquet", "policy"), *[("json", "policy"), ("parquet", "batch")] * THOROUGH]


@pytest.mark.parametrize(("file_format", "rolling"), CASES)
def test_a_thousand_directories_within_the_memory_of_a_task(out: str, file_format: str, rolling: str) -> None:
    """Far more rows than the budget, each directory among them everywhere; the peak is the kernel's own figure."""
    code = f"""
import re
from pathlib import Path
import numpy as np, pyarrow as pa, pyarrow.compute, pyarrow.parquet
from ftfile.writing.batch import plan_write
from ftfile.writing.task import write_task
from ftfile.testing.context import current
from ftfile.writing.files.file_options import SinkConfig
from ftfile.writing.messages import StreamIdentity, TaskIdentity
from ftfile.writing.files.file_writer import FileSink
from ftfile.testing.micro_batch import spark_schema

def memory(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

columns = {{"key": "string", "id": "long", "word": "string", "more": "string"}}
options = {{"path": {out!r}, "fileFormat": {file_format!r}, "partitionBy": "key", "rolling": {rolling!r}}}
plan = plan_write(FileSink(), SinkConfig.from_options(options, spark_schema(columns)), current())
random = np.random.default_rng(0)
text = random.bytes(10_000 * 80).hex()
words = [text[160 * n : 160 * n + 160] for n in range(10_000)]
keys = pa.array([f"k{{n:03}}" for n in range(1_000)])
batch = pa.record_batch({{"id": range(10_000), "word": words, "more": words}})

def batches():
    for _ in range(80):
        key = keys.take(pa.array(random.integers(0, 1_000, 10_000)))
        yield pa.record_batch({{"key": key, **dict(zip(batch.schema.names, batch.columns))}})

before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
message = write_task(plan, TaskIdentity(StreamIdentity("query", "run", 0), 0, 0), batches(), current())
written = [*message.parts, *message.segments]
print(memory("VmHWM") - before, len({{each.directory_key for each in written}}), sum(each.rows for each in written))
print(len(message.parts) or len({{segment.path for segment in message.segments}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    peak_bytes, directories, written, files = map(int, re.findall(r"\d+", done.stdout))
    assert (directories, written, files) == (1_000, 800_000, 1_000 if rolling == "batch" else 1)
    assert peak_bytes <= BUDGET_BYTES, f"{peak_bytes / MIB:.0f} MiB"
