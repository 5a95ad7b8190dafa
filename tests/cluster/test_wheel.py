"""ftfile distributed with an application, by `--py-files` and `--archives`, to Pythons without an installed ftfile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster import wheel_job
from tests.cluster.cluster import SPARK_HOME
from tests.unit.filters import filters_of_users

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel under a name that Spark adds to the path: Spark accepts .zip but not .whl."""
    home = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", home], cwd=ROOT, check=True)
    (built,) = home.glob("*.whl")
    return Path(shutil.move(built, home / "ftfile.zip"))


@pytest.fixture(scope="module")
def filters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's package with a filter as its entry point, in the form of a wheel."""
    found = tmp_path_factory.mktemp("filters") / "filters.zip"
    with zipfile.ZipFile(found, "w") as package:
        package.write(filters_of_users.__file__, "filters_of_users.py")
        metadata = "Metadata-Version: 2.1\nName: filters_of_users\nVersion: 1.0\n"
        package.writestr("filters_of_users-1.0.dist-info/METADATA", metadata)
        entry = "[ftfile.filters]\ncounter = filters_of_users:ByteCounter\n"
        package.writestr("filters_of_users-1.0.dist-info/entry_points.txt", entry)
    return found


@pytest.fixture(scope="module")
def packages(wheel: Path, filters: Path) -> tuple[Path, Path]:
    return wheel, filters


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, plain_environment: dict[str, str]) -> Path:
    """A Python with the packages of this one, without editable installs, so without ftfile."""
    found = tmp_path_factory.mktemp("python") / "python"
    packages = sysconfig.get_path("purelib")
    path = f"${{PYTHONPATH:+$PYTHONPATH:}}{packages}"
    found.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec {sys.executable} -S "$@"\n')
    found.chmod(0o755)
    script = "import importlib.util; print(importlib.util.find_spec('ftfile'))"
    assert subprocess.check_output([found, "-c", script], env=plain_environment, text=True) == "None\n"
    return found


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


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory, wheel: Path, filters: Path) -> Path:
    """A virtual environment, packed like by `venv-pack`, with ftfile and its launcher installed from the wheel."""
    home = tmp_path_factory.mktemp("launched")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / "environment"], check=True)
    (packages,) = (home / "environment").glob("lib/python3*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "ftfile" not in package.name:
            (packages / package.name).symlink_to(package)
    for archive in (wheel, filters):
        with zipfile.ZipFile(archive) as content:
            content.extractall(packages)
    (launcher,) = packages.glob("*.data/scripts/ftfile-python")
    shutil.move(launcher, home / "environment/bin")
    (home / "environment/bin/ftfile-python").chmod(0o755)
    found = home / "environment.tar.gz"
    with tarfile.open(found, "w:gz") as packed:
        packed.add(home / "environment", ".")
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


def test_a_wheel_by_py_files(
    cluster: Cluster, plain_environment: dict[str, str], packages: tuple[Path, Path], python: Path, tmp_path: Path
) -> None:
    wheel, filters = packages
    variables = plain_environment | {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    found = submitted(tmp_path, cluster, variables, "--py-files", f"{wheel},{filters}")
    assert all("/ftfile.zip/" in str(place["ftfile"]) for place in found), found


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
