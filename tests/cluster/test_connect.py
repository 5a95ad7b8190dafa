"""Spark Connect: the client has no JVM, and ftfile runs where the server does."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import ftfile
import ftfile.kv
from tests.cluster import connect_job

if TYPE_CHECKING:
    from pathlib import Path


def test_streams_batches_and_reads(plain_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text("".join(f'{{"id": {number}}}\n' for number in range(10)))
    command = [sys.executable, connect_job.__file__, str(tmp_path)]
    environment = plain_environment | {"SPARK_TESTING": "1"}  # a free port, because another program may use 15002
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert (tmp_path / "result.json").exists(), ended.stdout + ended.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["session"] == "pyspark.sql.connect.session"
    assert result["rows"] == list(range(12))
    assert "fileFormat" in result["bad option"]
    assert "Spark Connect" in result["attach"]
    assert "ftfile.monitor(path)" in result["listen"]
    assert (result["loaded"], result["finished"], result["whole"]) == (12, 1, True)
    assert ftfile.open(tmp_path / "next").count() == 12
    assert "set the number of `tasks`" in result["compact"]
    with ftfile.kv.open(tmp_path / "store") as store:
        assert result["merged"] == len(store.runs()) == 2
        assert store.multi_get(range(5)) == [3] * 5
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(12))
