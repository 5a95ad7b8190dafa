"""A secured HDFS used by real executors that have a delegation token and no ticket."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cluster import hdfs_job
from tests.hdfs.kdc import Kdc
from tests.hdfs.secured import SecuredCluster, why_not_secured

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(why_not_secured()), reason=why_not_secured() or "none")


def test_executors_write_and_read_by_a_token(
    cluster: Cluster, plain_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / f"in/{number}.json").write_text(f'{{"id": {number}}}\n')
    (tmp_path / "private").mkdir()
    tokens = tmp_path / "private/tokens"
    with Kdc() as kdc, SecuredCluster(kdc) as hdfs:
        cache = tmp_path / "cache"
        # The owner of the root.
        kdc.ticket(cache, "hdfs/localhost")
        hdfs.fetch_token(tokens, cache)
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": f"-Djava.security.krb5.conf={kdc.configuration}",
            "spark.executor.memory": "512m",
            "spark.executorEnv.HADOOP_TOKEN_FILE_LOCATION": "./tokens",
            "spark.files": tokens.as_uri(),
            "spark.sql.warehouse.dir": (tmp_path / "warehouse").as_uri(),
            "spark.ui.enabled": "false",
        }
        # Another name than in the token: the driver must detect that both are the same host.
        native = hdfs.url.replace("127.0.0.1", "localhost")
        job = {"master": cluster.url, "settings": settings, "outputs": [f"{native}/native", f"{hdfs.web_url}/web"]}
        paths = {"input": tmp_path / "in", "scratch": tmp_path, "result": tmp_path / "result.json"}
        (tmp_path / "job.json").write_text(json.dumps(job | {name: str(path) for name, path in paths.items()}))
        own = {"HADOOP_CONF_DIR": str(hdfs.conf), "HADOOP_TOKEN_FILE_LOCATION": str(tokens)}
        ended = subprocess.run(
            [sys.executable, hdfs_job.__file__, str(tmp_path / "job.json")],
            cwd=tmp_path,
            env=plain_environment | kdc.variables(tmp_path / "no-ticket") | own,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    said = ended.stdout + ended.stderr
    assert paths["result"].exists(), said[-5000:]
    result = json.loads(paths["result"].read_text())
    assert result["rows"] == {output: [0, 1, 2] for output in job["outputs"]}
    assert all(found == {"HADOOP_TOKEN_FILE_LOCATION": "./tokens"} for found in result["variables"])
    assert "delegation=" not in said
