"""Declarative pipelines: the example of docs/running.md, run as its users run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import ftfile
from tests.cluster.cluster import SPARK_HOME

PAGE = Path(__file__).parents[2] / "docs/running.md"


def test_a_pipeline_writes_and_follows(plain_environment: dict[str, str], tmp_path: Path) -> None:
    shown = re.findall(r"```(?:python|yaml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, text in zip(("flows.py", "spark-pipeline.yml"), shown[:2], strict=True):
        (tmp_path / name).write_text(re.sub(r"(?<![\w])/data/", f"{tmp_path}/", text))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text('{"word": "a"}\n')
    command = [str(SPARK_HOME / "bin/spark-pipelines"), "--conf", "spark.ui.enabled=false"]
    command += ["--conf", f"spark.sql.warehouse.dir={tmp_path}/tables", "run", "--spec", "spark-pipeline.yml"]
    environment = plain_environment | {
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ftfile.open(tmp_path / "words").to_arrow().to_pylist() == [{"word": "a"}]
    # Spark runs both flows at once: the second flow may begin before the first row exists.
    assert ftfile.open(tmp_path / "copies").count() <= 1
