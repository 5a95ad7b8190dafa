"""What is missing for the tests on object stores is said aloud, and they go on without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ci_scripts import run_script
from tests.object_stores import azure, conftest, servers

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("s3-server", "No Go here: the tests on S3 use moto alone, and no real server (apt-get install golang"),
        ("azure-server", "No Node here: the tests on Azure are left out (apt-get install npm"),
    ],
)
def test_building_a_server_says_what_is_missing_and_goes_on(script: str, said: str, tmp_path: Path) -> None:
    run = run_script(script, tmp_path)
    assert run.returncode == 0
    assert said in run.stderr
    assert not list((tmp_path / ".servers").rglob("stamp")), "it is taken for built"


def test_the_tests_say_what_they_leave_out(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "VERSITY", tmp_path / "versitygw")
    monkeypatch.setattr(azure, "AZURITE", tmp_path)
    said = "\n".join(conftest.pytest_report_header())
    assert "moto is tried alone" in said
    assert "Azure is left out" in said
    with pytest.raises(pytest.skip.Exception, match="moto is tried alone"):
        next(conftest.start_real())
    assert request.getfixturevalue("store") is request.getfixturevalue("moto")
