"""The start of Spark's Python processes is measured, and the remedy names the setting that makes it faster."""

from __future__ import annotations

import compileall
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.operate import worker_start
from ftfile.operate.worker_start import check_start, spark_archives

if TYPE_CHECKING:
    from pathlib import Path

MODULE = "pyspark/sql/worker/python_streaming_sink_runner"
# Replaces the compiler.
SLOW = "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 0.5:\n    pass\n"


def write_spark(home: Path, text: str = "") -> None:
    archive = home / "python/lib/pyspark.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as content:
        for folder in ("pyspark", "pyspark/sql", "pyspark/sql/worker"):
            content.writestr(f"{folder}/__init__.py", "")
        content.writestr(f"{MODULE}.py", text)


def write_program(path: Path, *, own_path: str = "", keeps_archives: bool = True) -> str:
    path.parent.mkdir(exist_ok=True)
    kept = "$PYTHONPATH:" if keeps_archives else ""
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{kept}{own_path}" exec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "spark [home]"
    monkeypatch.setenv("SPARK_HOME", str(home))
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    return home


def write_installed(folder: Path, *, is_compiled: bool) -> str:
    for parent in ("pyspark", "pyspark/sql", "pyspark/sql/worker"):
        (folder / parent).mkdir(parents=True)
        (folder / parent / "__init__.py").write_text("")
    (folder / f"{MODULE}.py").write_text("")
    if is_compiled:
        compileall.compile_dir(folder, quiet=1)
    else:
        (folder / "pyspark/sql/worker/__pycache__").write_text("no folder")
    return str(folder)


def test_archives_are_slower_than_an_installed_pyspark(spark_home: Path, tmp_path: Path) -> None:
    write_spark(spark_home, SLOW)
    installed = write_installed(tmp_path / "site", is_compiled=True)
    program = write_program(tmp_path / "bin/python", own_path=installed)
    (found,) = check_start(program)
    assert (found.code, found.severity) == ("worker-start", "info")
    assert f"with pyspark from {spark_home}/python/lib/pyspark.zip, which is compiled at each start" in found.actual
    assert found.remedy == f"Set PYSPARK_PYTHON={tmp_path}/bin/ftfile-python before the session is created"
    launched = write_program(tmp_path / "bin/ftfile-python", own_path=installed, keeps_archives=False)
    (found,) = check_start(launched)
    assert (found.severity, found.remedy) == ("ok", "")
    assert f"with pyspark from {installed}/pyspark" in found.actual


def test_a_saving_that_is_too_small(spark_home: Path, tmp_path: Path) -> None:
    write_spark(spark_home)
    installed = write_installed(tmp_path / "site", is_compiled=True)
    (found,) = check_start(write_program(tmp_path / "bin/python", own_path=installed))
    assert (found.severity, found.remedy) == ("ok", "")


def test_without_an_installed_pyspark(spark_home: Path, tmp_path: Path) -> None:
    write_spark(spark_home)
    (found,) = check_start(write_program(tmp_path / "bin/python"))
    assert found.remedy.startswith(f"Install the same pyspark for {tmp_path}/bin/python, and set PYSPARK_PYTHON=")


def test_without_byte_code(spark_home: Path, tmp_path: Path) -> None:
    write_spark(spark_home)
    installed = write_installed(tmp_path / "a site", is_compiled=False)
    program = write_program(tmp_path / "bin/python", own_path=installed, keeps_archives=False)
    (found,) = check_start(program)
    assert found.severity == "info"
    assert found.remedy == f"Compile it: {program} -m compileall -q '{installed}/pyspark'"


def test_pandas(spark_home: Path, tmp_path: Path) -> None:
    write_spark(spark_home)
    installed = write_installed(tmp_path / "site", is_compiled=True)
    (tmp_path / "site/pandas.py").write_text(SLOW)
    (found,) = check_start(write_program(tmp_path / "bin/python", own_path=installed, keeps_archives=False))
    assert "; tasks that import pandas take 0." in found.actual


@pytest.mark.parametrize("text", ["exit 7", "echo nothing", "echo '[1]'", "exec sleep 9"])
def test_a_program_that_is_no_python(
    spark_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(worker_start, "START_S_MAX", 0.2)
    write_spark(spark_home)
    (tmp_path / "python").write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / "python").chmod(0o755)
    assert check_start(str(tmp_path / "python")) == []
    assert check_start(str(tmp_path / "nothing")) == []


def test_without_spark() -> None:
    assert spark_archives() == []
    assert check_start(sys.executable) == []


def test_the_archives_of_an_installed_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME")
    names = [path.rpartition("/")[2].partition("-")[0] for path in spark_archives()]
    assert names == ["py4j", "pyspark.zip"]


def test_doctor_measures_the_python_that_spark_starts(
    spark_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_spark(spark_home)
    installed = write_installed(tmp_path / "site", is_compiled=True)
    (source,) = ftfile.__path__
    own_path = f"{installed}:{source.removesuffix('/ftfile')}"
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", write_program(tmp_path / "bin/python", own_path=own_path))
    codes = [finding.code for finding in ftfile.doctor().findings]
    assert "worker-start" in codes
    assert "worker-start" not in [finding.code for finding in ftfile.doctor(measure_start=False).findings]
