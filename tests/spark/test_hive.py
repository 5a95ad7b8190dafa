"""A Hive metastore, and Spark with a table in it over the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.spark import hive_job
from tests.spark.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def test_a_table_over_the_files_has_each_version(tmp_path: Path) -> None:
    job, found = tmp_path / "job.json", tmp_path / "found.json"
    home = tmp_path / "home"
    home.mkdir()
    job.write_text(json.dumps({"home": str(home), "found": str(found)}))
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    with (tmp_path / "log").open("w+") as log:
        application = subprocess.Popen(
            [sys.executable, hive_job.__file__, str(job)], stdin=subprocess.PIPE, stdout=log, stderr=log,
            env=environment, cwd=home,
        )  # fmt: skip
        try:
            code = application.wait(900)
        finally:
            application.kill()
            application.communicate()
    assert code == 0, (tmp_path / "log").read_text()[-5000:]
    report = json.loads(found.read_text())
    assert [len(look["own"]) for look in report["looks"]] == [8, 16, 11, 8]
    for look in report["looks"]:
        assert look["files"] == look["own"]
    assert report["left"] == list(range(8))
