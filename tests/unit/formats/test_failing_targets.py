"""Errors of a target, and Ctrl-C during its calls, when compiled code writes to it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import gc, sys
import pyarrow as pa
from ftfile.core.errors import OutOfSpace
from ftfile.formats.api import format_from_options

class Target:
    def __init__(self, writes, error):
        self.position, self._writes_left, self._error = 0, writes, error

    def write(self, data):
        if self._writes_left == 0:
            raise self._error
        self._writes_left -= 1
        self.position += len(data)
        return len(data)

schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
rows = pa.RecordBatch.from_pydict({"n": range(1000), "t": [str(n) * 50 for n in range(1000)]}, schema=schema)
failures = 0
for kind in (OutOfSpace, KeyboardInterrupt, SystemExit):
    for writes in range(1000):
        error = kind("write", "file", "it is full") if kind is OutOfSpace else kind()
        try:
            encoder = format_from_options(sys.argv[1], {}).encoder(schema, Target(writes, error))
            for _ in range(3):
                encoder.write(rows, None)
                encoder.flush()
            encoder.finish()
        except BaseException as raised:
            assert raised is error, (kind, writes, raised)
            failures += 1
        else:
            break
        raised = encoder = None
        gc.collect()
print(failures)
"""


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "arrow", "json", "csv", "text"])
def test_an_error_at_any_write_is_raised_as_it_is_and_ends_no_process(file_format: str) -> None:
    program = _PROGRAM
    if file_format == "text":
        program = program.replace('("n", pa.int64()), ', "").replace('"n": range(1000), ', "")
    run = subprocess.run([sys.executable, "-c", program, file_format], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert int(run.stdout) >= 3
