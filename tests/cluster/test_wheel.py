"""ftfile distributed with an application, by `--py-files` and `--archives`, to Pythons without an installed ftfile."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster import wheel_job
from tests.cluster.cluster import SPARK_HOME
from tests.crash.share import in_long

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def packages(wheel: Path, filters: Path) -> tuple[Path, Path]:
    return wheel, filters


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Path:
    """The same Python, packed like by `venv-pack`, which reports how it was started."""
    found = tmp_path_factory.mktemp("environment") / "environment.tar.gz"
    script = python.with_name("packed")
    script.write_text(python.read_text().replace("\n", '\nexport STARTED_AS="$0"\n', 1))
    script.chmod(0o755)
    with tarfile.open(found, "w:gz") as archive:
        archive.add(script, "bin/python")
    return found


def submitted(home: Path, cluster: Cluster, variables: dict[str, str], *options: str) -> list[dict[str, str | None]]:
    """Run the application. Return the paths of ftfile and pyspark in its tasks, and how their Python was started."""
    (home / "in").mkdir()
    (home / "in/0.json").write_text("".join(f'{{"id": {number}}}\n' for number in range(10)))
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": "false",
    }
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [f"{SPARK_HOME}/bin/spark-submit", "--master", cluster.url, *options, *given]
    script = [wheel_job.__file__, str(home)]
    ended = subprocess.run(
        [*command, *script], cwd=home, env=variables, capture_output=True, text=True, timeout=600, check=False
    )
    assert (home / "result.json").exists(), (ended.stdout + ended.stderr)[-5000:]
    result = json.loads((home / "result.json").read_text())
    assert result["rows"] == list(range(10))
    assert result["places"]
    places: list[dict[str, str | None]] = result["places"]
    return places


@in_long  # a wheel by `--py-files` also runs on YARN
def test_a_wheel_by_py_files(
    cluster: Cluster, plain_environment: dict[str, str], packages: tuple[Path, Path], python: Path, tmp_path: Path
) -> None:
    wheel, filters = packages
    variables = plain_environment | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    found = submitted(tmp_path, cluster, variables, "--py-files", f"{wheel},{filters}")
    assert all("/ftfile.zip/" in str(place["ftfile"]) for place in found), found


@in_long  # an environment by `--archives` also runs with the launcher
def test_a_wheel_and_an_environment_by_archives(
    cluster: Cluster,
    plain_environment: dict[str, str],
    packages: tuple[Path, Path],
    environment: Path,
    tmp_path: Path,
) -> None:
    wheel, filters = packages
    # Spark starts the same Python in the driver's directory, to plan and to commit.
    (tmp_path / "environment").mkdir()
    subprocess.run(["tar", "-xzf", environment, "-C", tmp_path / "environment"], check=True)
    variables = plain_environment | {"PYSPARK_PYTHON": "./environment/bin/python", "PYTHONPATH": f"{wheel}:{filters}"}
    del variables["PYSPARK_DRIVER_PYTHON"]
    archives = f"{environment}#environment,{wheel}#ftfile,{filters}#filters"
    path = "spark.executorEnv.PYTHONPATH=./ftfile:./filters"
    found = submitted(tmp_path, cluster, variables, "--archives", archives, "--conf", path)
    expected = f"{cluster.home}/.*/ftfile/ftfile/core/__init__.py"
    assert all(re.fullmatch(expected, str(place["ftfile"])) for place in found), found
    assert all(place["python"] == "./environment/bin/python" for place in found), found


def test_the_launcher_in_an_environment_by_archives(
    cluster: Cluster, plain_environment: dict[str, str], launched: Path, tmp_path: Path
) -> None:
    (tmp_path / "environment").mkdir()
    subprocess.run(["tar", "-xzf", launched, "-C", tmp_path / "environment"], check=True)
    # A Spark home with pyspark.zip, as on clusters: the Spark home of quick tests has none.
    variables = plain_environment | {"PYSPARK_PYTHON": "./environment/bin/ftfile-python", "HOME": str(tmp_path)}
    variables |= {"SPARK_HOME": str(SPARK_HOME)}
    del variables["PYSPARK_DRIVER_PYTHON"]
    found = submitted(tmp_path, cluster, variables, "--archives", f"{launched}#environment")
    installed = f"{cluster.home}/.*/environment/lib/python3[^/]*/site-packages"
    assert all(re.fullmatch(f"{installed}/ftfile/core/__init__.py", str(place["ftfile"])) for place in found), found
    assert all(re.fullmatch(f"{installed}/pyspark/__init__.py", str(place["pyspark"])) for place in found), found
    assert all("pyspark.zip" not in str(place["path"]) for place in found), found
