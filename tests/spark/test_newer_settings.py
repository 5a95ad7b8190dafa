"""All newer settings of Spark at once, which change how its Python processes run: each row is written once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

from tests.spark import newer_settings_job
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

# Settings that a version of Spark does not have are ignored.
SETTINGS = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.idleTimeoutSeconds": "5",
    "spark.python.worker.killOnIdleTimeout": "true",
    "spark.sql.execution.arrow.maxBytesPerBatch": "4k",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "70",
    "spark.sql.pyspark.dataSource.profiler": "perf",
    "spark.sql.pyspark.worker.logging.enabled": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


def test_each_row_is_written_once(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"home": str(tmp_path), "settings": SETTINGS}))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, newer_settings_job.__file__, str(tmp_path / "job.json")]
    ended = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900, check=False
    )
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-5000:]
    result = json.loads((tmp_path / "result.json").read_text())
    rows = range(800)
    assert Counter(result["files"]) == Counter(rows)
    assert Counter(result["followed"]) == Counter(rows)
    assert result["words"] == Counter(f"w{row % 7}" for row in rows)
    assert result["batch"] == 1000
    assert "the row is bad" in result["error"]
    assert result["versions"] == 4, "two batches of each run"
    assert "v2" in (tmp_path / "files-checkpoint/offsets/3").read_text().splitlines()[0]
