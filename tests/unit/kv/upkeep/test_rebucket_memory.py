"""The memory of a change of the number of buckets: windows, however large the store is."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from ftfile import kv
from ftfile.kv.definition import define
from ftfile.kv.hashing import bucket_number, by_bucket
from ftfile.rows.buffers import strings_from
from tests.unit.kv.building import Builder

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
BATCHES, ROW_BYTES = 4, 1024
LONG = define(pa.schema([("id", pa.int64()), ("content", pa.binary())]), ["id"], buckets=256)
CODE = """
import re, sys
from pathlib import Path
from ftfile import kv
kv.rebucket(sys.argv[1], 1)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def build(path: str, size_bytes: int) -> int:
    """Write rows that do not compress, in some batches, and return their number."""
    store, random = Builder(path, LONG), np.random.default_rng(0)
    rows = size_bytes // ROW_BYTES // BATCHES
    for batch in range(BATCHES):
        content = np.frombuffer(random.bytes(rows * ROW_BYTES), np.uint8)
        ids = pa.array(np.arange(batch, BATCHES * rows, BATCHES))
        columns = [ids, strings_from(np.arange(rows + 1) * ROW_BYTES, content, pa.binary())]
        table = pa.table(columns, schema=LONG.schema)
        store.write_tables({bucket_number(name): bucket_rows for name, bucket_rows in by_bucket(table, LONG)})
    return BATCHES * rows


def peak_of_rebucket(path: str) -> int:
    """Return the bytes that a process of its own takes at most."""
    done = subprocess.run([sys.executable, "-c", CODE, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return 1024 * int(done.stdout)


@pytest.mark.slow
def test_rows_of_a_large_store_go_through_windows(tmp_path: Path) -> None:
    peaks = []
    for size_bytes in (80 * MIB, 320 * MIB):
        path = str(tmp_path / f"store-{size_bytes}")
        rows = build(path, size_bytes)
        peaks.append(peak_of_rebucket(path))
        with kv.open(path) as reader:
            assert reader.stats().rows == rows
            assert reader.definition.buckets == 1
    small, large = peaks
    assert large <= 600 * MIB, f"{large / MIB:.0f} MiB"
    assert large <= 1.3 * small, f"{small / MIB:.0f} and {large / MIB:.0f} MiB"
