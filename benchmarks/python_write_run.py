"""One write of generated rows in this process, as `pywrite` asks for it, and its memory."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa

import ftfile
from benchmarks.memory import memory_mib
from benchmarks.python_write_rows import SCHEMA, rows_between

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_ROWS = 65_536


def main(path: str, gigabytes: float) -> None:
    """Write rows that take this many GB in memory, and print figures as JSON."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    rows = pa.RecordBatchReader.from_batches(SCHEMA, _batches(int(gigabytes * 1e9)))
    ftfile.write(path, rows, file_format="parquet")
    figures = {
        "wall_s": time.perf_counter() - began_s,
        "cpu_s": time.process_time() - began_cpu_s,
        "peak_mib": memory_mib("VmHWM"),
    }
    print(json.dumps(figures))


def _batches(size_bytes: int) -> Iterator[pa.RecordBatch]:
    start = made_bytes = 0
    while made_bytes < size_bytes:
        (batch,) = rows_between(start, start + BATCH_ROWS).to_batches()
        yield batch
        made_bytes += batch.nbytes
        start += BATCH_ROWS


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
