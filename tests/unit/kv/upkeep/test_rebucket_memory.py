"""The memory of a change of the number of buckets, and of a scan of many: windows, however large the store is."""

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
ROW_BYTES = 1024
LONG = pa.schema([("id", pa.int64()), ("content", pa.binary())])
REBUCKET = """
import re, sys
from pathlib import Path
from ftfile import kv
kv.rebucket(sys.argv[1], 1)
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
# Without mapped memory: the kernel reclaims it when it needs memory.
SCAN = """
import re, sys
from pathlib import Path
from ftfile import kv
peak = 0
for _ in kv.open(sys.argv[1]).scan():
    peak = max(peak, int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]))
print(peak)
"""


def build(path: str, size_bytes: int, buckets: int, batches: int) -> int:
    """Write rows that do not compress, in some batches, and return their number."""
    definition = define(LONG, ["id"], buckets=buckets)
    store, random = Builder(path, definition), np.random.default_rng(0)
    rows = size_bytes // ROW_BYTES // batches
    for batch in range(batches):
        content = np.frombuffer(random.bytes(rows * ROW_BYTES), np.uint8)
        ids = pa.array(np.arange(batch, batches * rows, batches))
        columns = [ids, strings_from(np.arange(rows + 1) * ROW_BYTES, content, pa.binary())]
        table = pa.table(columns, schema=definition.schema)
        store.write_tables({bucket_number(name): bucket_rows for name, bucket_rows in by_bucket(table, definition)})
    return batches * rows


def peak_of(code: str, path: str) -> int:
    """Return the peak memory of a separate process, in bytes."""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return 1024 * int(done.stdout)


@pytest.mark.slow
def test_rows_of_a_large_store_go_through_windows(tmp_path: Path) -> None:
    peaks = []
    for size_bytes in (40 * MIB, 120 * MIB):
        path = str(tmp_path / f"store-{size_bytes}")
        rows = build(path, size_bytes, buckets=256, batches=4)
        peaks.append(peak_of(REBUCKET, path))
        with kv.open(path) as reader:
            assert reader.stats().rows == rows
            assert reader.definition.buckets == 1
    small, large = peaks
    assert large <= 600 * MIB, f"{large / MIB:.0f} MiB"
    assert large <= 1.3 * small, f"{small / MIB:.0f} and {large / MIB:.0f} MiB"


@pytest.mark.slow
def test_a_scan_of_many_buckets_holds_little_of_each(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    build(path, 600 * MIB, buckets=1024, batches=1)
    peak = peak_of(SCAN, path)
    assert peak <= 600 * MIB, f"{peak / MIB:.0f} MiB"
