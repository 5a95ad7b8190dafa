"""`ftfile.doctor`: each fault of a machine or a directory is named, with its remedy."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.operate import doctor as looking
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from ftfile.operate.doctor import Check


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no other program where a test is not about it."""
    monkeypatch.setattr(looking, "_output", lambda command: "" if "-c" in command else 'openjdk version "17.0.9"')


@pytest.fixture
def out(tmp_path: Path) -> str:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"})
    query.run(0, [[{"id": 1}]])
    return query.path


def the(name: str, *arguments: str) -> Check:
    (found,) = (check for check in ftfile.doctor(*arguments).checks if check.name == name)
    return found


def test_a_relative_path(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(out).parent)
    states = [[(check.name, check.state) for check in ftfile.doctor(path).checks] for path in ("out", out)]
    assert states[0] == states[1]


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_directory_that_can_be_used(out: str) -> None:
    assert the("directory", out).state == "ok"
    assert the("permissions", out).state == "ok"
    assert the("clock", out).state == "ok"


def test_a_path_without_a_log(tmp_path: Path) -> None:
    report = ftfile.doctor(f"{tmp_path}/nowhere")
    assert not report.ok
    assert the("directory", f"{tmp_path}/nowhere").state == "error"
    assert the("permissions", f"{tmp_path}/nowhere").found == f"{tmp_path} may be written"
    assert "scheme" in the("directory", "nothing://x/y").found


def test_a_damaged_log(out: str) -> None:
    for record in Path(out, "_ftfile/log").glob("*.record"):
        record.write_text("damaged")
    found = the("directory", out)
    assert (found.state, "verify" in found.remedy) == ("error", True)


def test_a_clock_that_is_ahead(out: str) -> None:
    (record,) = Path(out, "_ftfile/log").glob("*.record")
    os.utime(record, (time.time() + 3600,) * 2)
    assert (the("clock", out).state, "NTP" in the("clock", out).remedy) == ("error", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(out: str) -> None:
    Path(out).chmod(0o500)
    assert the("permissions", out).state == "warning"


def test_no_space(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "FREE_BYTES_LEAST", 1 << 80)
    assert the("space", out).state == "warning"


def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert the("Java").state == "error"
    program(tmp_path / "bin/java", "")
    assert the("Java").found.startswith("17.0.9 at ")
    monkeypatch.setattr(looking, "_output", lambda _: 'java version "1.8.0_402"')
    assert (the("Java").state, "JDK 17" in the("Java").remedy) == ("error", True)
    monkeypatch.setattr(looking, "_output", lambda _: "nothing")
    assert "does not tell its version" in the("Java").found
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    assert the("Java").state == "info"


@pytest.mark.slow
def test_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "nothing"))
    assert "is no program" in the("workers").found
    monkeypatch.undo()
    monkeypatch.setenv("PYSPARK_PYTHON", program(tmp_path / "other", "echo 2.7"))
    assert "Python 2.7" in the("workers").found
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for version, told in (("", "ftfile none"), ("0.0.1", "ftfile 0.0.1")):
        program(tmp_path / "other", f"echo {here}; echo {version}")
        assert told in the("workers").found
    program(tmp_path / "other", f"echo {here}; echo {ftfile.__version__}")
    assert the("workers").state == "ok"


@pytest.mark.slow
def test_a_program_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(looking, "ANSWER_S", 0.1)
    monkeypatch.setenv("PYSPARK_PYTHON", program(tmp_path / "other", "exec sleep 9"))
    assert "Python unknown" in the("workers").found


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyspark": "3.5.1", "pyarrow": "26.0.1"}
    monkeypatch.setattr(looking, "_version", versions.get)
    assert the("Spark").state == "error"
    assert "cryptography" in the("packages").remedy
    del versions["pyspark"]
    assert the("Spark").state == "info"
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert the("extra s3").remedy == "pip install 'ftfile[s3]'"
    assert the("driver", "s3://bucket/out").remedy == "pip install 'ftfile[s3]'"
