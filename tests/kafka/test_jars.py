"""Downloaded jars are accepted only with their checksums, and are downloaded once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Replaces Maven: it copies the jars that the test has prepared, and records each call.
MVN = '#!/bin/sh\necho "$@" >>calls\ncp brought/*.jar .jars/kafka\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("brought", "tests/kafka", "tools"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tests/kafka/pom.xml").write_text("<project/>")
    (tmp_path / "brought/a.jar").write_bytes(b"right")
    (tmp_path / "tests/kafka/jars.sha256").write_text(f"{hashlib.sha256(b'right').hexdigest()}  a.jar\n")
    (tmp_path / "tools/mvn").write_text(MVN)
    (tmp_path / "tools/mvn").chmod(0o755)
    return tmp_path


def bring(checkout: Path) -> int:
    path = f"{checkout / 'tools'}{os.pathsep}{os.environ['PATH']}"
    command = [str(checkout / ".ci/jars"), "kafka"]
    return subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, check=False).returncode


def test_they_are_brought_once(checkout: Path) -> None:
    assert bring(checkout) == bring(checkout) == 0
    [call] = (checkout / "calls").read_text().splitlines()
    assert call.startswith("--quiet --batch-mode --file tests/kafka/pom.xml dependency:copy-dependencies")


def test_others_are_refused_and_brought_again(checkout: Path) -> None:
    (checkout / "brought/a.jar").write_bytes(b"wrong")
    assert bring(checkout) != 0
    assert not (checkout / ".jars/kafka/stamp").exists()
    (checkout / "brought/a.jar").write_bytes(b"right")
    assert bring(checkout) == 0


def test_other_checksums_bring_them_again(checkout: Path) -> None:
    assert bring(checkout) == 0
    (checkout / "brought/a.jar").write_bytes(b"newer")
    (checkout / "tests/kafka/jars.sha256").write_text(f"{hashlib.sha256(b'newer').hexdigest()}  a.jar\n")
    assert bring(checkout) == 0
    assert (checkout / ".jars/kafka/a.jar").read_bytes() == b"newer"
