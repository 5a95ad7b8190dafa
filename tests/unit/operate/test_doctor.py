"""The function `ftfile.doctor` names each fault of a machine or a directory and its remedy."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.operate import doctor as looking
from ftfile.operate.findings import find
from ftfile.testing.micro_batch import MicroBatch

if TYPE_CHECKING:
    from ftfile.operate.findings import Finding


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no other program, except in tests that check other programs."""
    monkeypatch.setattr(looking, "check_start", lambda *_: [])
    monkeypatch.setattr(looking, "_output", lambda command: "" if "-c" in command else 'openjdk version "17.0.9"')


@pytest.fixture
def out(tmp_path: Path) -> str:
    query = MicroBatch(str(tmp_path / "out"), {"id": "long"}, {"fileFormat": "json"})
    query.run(0, [[{"id": 1}]])
    return query.path


def the(name: str, *arguments: str) -> Finding:
    (found,) = (each for each in ftfile.doctor(*arguments).findings if each.code == name)
    return found


def test_a_relative_path(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(out).parent)
    states = [[(each.code, each.severity) for each in ftfile.doctor(path).findings] for path in ("out", out)]
    assert states[0] == states[1]


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_directory_that_can_be_used(out: str) -> None:
    assert the("directory", out).severity == "ok"
    assert the("permissions", out).severity == "ok"
    assert the("clock", out).severity == "ok"


@pytest.mark.slow
def test_a_path_without_a_log(tmp_path: Path) -> None:
    report = ftfile.doctor(f"{tmp_path}/nowhere")
    assert not report.ok
    assert the("directory", f"{tmp_path}/nowhere").severity == "error"
    assert the("permissions", f"{tmp_path}/nowhere").actual == f"{tmp_path} may be written"
    assert "scheme" in the("directory", "nothing://x/y").actual


def test_a_damaged_log(out: str) -> None:
    for record in Path(out, "_ftfile/log").glob("*.record"):
        record.write_text("damaged")
    found = the("directory", out)
    assert (found.severity, "verify" in found.remedy) == ("error", True)


def test_a_clock_that_is_ahead(out: str) -> None:
    (record,) = Path(out, "_ftfile/log").glob("*.record")
    os.utime(record, (time.time() + 3600,) * 2)
    assert (the("clock", out).severity, "NTP" in the("clock", out).remedy) == ("error", True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(out: str) -> None:
    Path(out).chmod(0o500)
    assert the("permissions", out).severity == "warning"


def test_no_space(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "FREE_BYTES_LEAST", 1 << 80)
    assert the("space", out).severity == "warning"


def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert the("java").severity == "error"
    program(tmp_path / "bin/java", "")
    assert the("java").actual.startswith("17.0.9 at ")
    monkeypatch.setattr(looking, "_output", lambda _: 'java version "1.8.0_402"')
    assert (the("java").severity, "JDK 17" in the("java").remedy) == ("error", True)
    monkeypatch.setattr(looking, "_output", lambda _: "nothing")
    assert "does not print its version" in the("java").actual
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(looking, "_version", {"pyspark-client": "4.3.0"}.get)
    assert the("java").severity == "info"


def test_spark_needs_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(looking, "_version", {"pyspark": "4.3.0"}.get)
    found = the("java")
    assert (found.severity, found.actual) == ("error", "there is no java on the PATH")
    assert "a JDK 17 or later" in found.remedy
    assert "JAVA_HOME" in found.remedy
    for remote, severity in (("local[2]", "error"), ("sc://host:15002", "info")):
        monkeypatch.setenv("SPARK_REMOTE", remote)
        assert the("java").severity == severity


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The programs of an environment with this Python. Its path contains a space, and it is not activated."""
    folder = tmp_path / "my env/bin"
    program(folder / "python3", "")
    program(folder / "ftfile-python", "")
    monkeypatch.setattr(sys, "executable", f"{folder}/python3")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    return folder


def test_the_setting_for_an_environment_that_is_not_activated(environment: Path, tmp_path: Path) -> None:
    assert the("workers").remedy == (
        f"Start the application with PATH='{environment}':\"$PATH\" PYSPARK_PYTHON=ftfile-python"
    )
    plain = environment.parent.rename(tmp_path / "env")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", f"{plain}/bin/python3")
        assert the("workers").remedy == f"Start the application with PYSPARK_PYTHON={plain}/bin/ftfile-python"
        patch.setenv("PYSPARK_DRIVER_PYTHON", "ipython")
        both = f"PYSPARK_DRIVER_PYTHON={plain}/bin/ftfile-python PYSPARK_PYTHON={plain}/bin/ftfile-python"
        assert the("workers").remedy == f"Start the application with {both}"
        (plain / "bin/ftfile-python").unlink()
        assert the("workers").remedy.endswith(f"={plain}/bin/python3")


def test_spark_finds_no_program_behind_a_path_with_a_space(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(looking, "_output", lambda _: f"{here} {ftfile.__version__}")
    monkeypatch.setenv("PYSPARK_PYTHON", f"{environment}/ftfile-python")
    found = the("workers")
    assert (found.severity, found.expected) == ("error", "a path that Spark finds")
    assert found.remedy.endswith(f"with PATH='{environment}':\"$PATH\" PYSPARK_PYTHON=ftfile-python")
    monkeypatch.setenv("PATH", str(environment))
    monkeypatch.setenv("PYSPARK_PYTHON", "ftfile-python")
    assert the("workers").severity == "ok"


def test_the_variable_that_spark_prefers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", program(tmp_path / "jupyter", "exit 1"))
    assert the("workers").actual == f"Python unknown with ftfile none at {tmp_path}/jupyter"


def test_the_start_of_another_python_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", program(tmp_path / "other", ""))
    started: list[str] = []

    def note_start(path: str) -> list[Finding]:
        started.append(path)
        return []

    monkeypatch.setattr(looking, "check_start", note_start)
    ftfile.doctor()
    assert started == []
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(looking, "_output", lambda _: f"{here} {ftfile.__version__}")
    ftfile.doctor()
    assert started == [f"{tmp_path}/other"]


@pytest.mark.slow
def test_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "nothing"))
    assert "is not a program" in the("workers").actual
    monkeypatch.undo()
    monkeypatch.setenv("PYSPARK_PYTHON", program(tmp_path / "other", "echo 2.7"))
    assert "Python 2.7" in the("workers").actual
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for version, version_text in (("", "ftfile none"), ("0.0.1", "ftfile 0.0.1")):
        program(tmp_path / "other", f"echo {here}; echo {version}")
        assert version_text in the("workers").actual
    program(tmp_path / "other", f"echo {here}; echo {ftfile.__version__}")
    assert the("workers").severity == "ok"


@pytest.mark.slow
def test_a_program_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(looking, "ANSWER_S", 0.1)
    monkeypatch.setenv("PYSPARK_PYTHON", program(tmp_path / "other", "exec sleep 9"))
    assert "Python unknown" in the("workers").actual


def test_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyspark": "3.5.1", "pyarrow": "26.0.1"}
    monkeypatch.setattr(looking, "_version", versions.get)
    assert (the("spark").severity, the("spark").actual) == ("error", "pyspark 3.5.1")
    assert "pip install 'pyspark>=4.0'" in the("spark").remedy
    assert "cryptography" in the("packages").remedy
    del versions["pyspark"]
    assert the("spark").severity == "info"
    versions["pyspark-client"] = "4.0.0"
    assert (the("spark").severity, the("spark").actual) == ("ok", "pyspark-client 4.0.0")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    extras = [each for each in ftfile.doctor().findings if each.code == "extra"]
    assert (extras[0].severity, extras[0].remedy) == ("info", "pip install 'ftfile[s3]'")
    remedy = "Install the package for s3:// and s3a:// URLs: pip install 'ftfile[s3]'"
    assert the("driver", "s3://bucket/out").remedy == remedy


def test_remedies_are_sentences_by_themselves() -> None:
    for code in ("python", "packages", "spark", "java", "driver"):
        remedy = find(code, "", "", "").remedy
        assert remedy.startswith("Install ")
        assert "expected" not in remedy
