"""An attacker who can only write a stream's input cannot hang, fill or crash its reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.hostile.conftest import ROOT
from tests.hostile.inputs import INPUTS

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The outcomes of the inputs of this run, each in a separate process."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    names = [str(item.callspec.params["name"]) for item in items]
    home: Path = tmp_path_factory.mktemp("inputs")
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.reading", *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*sys.path, ROOT])), "TMPDIR": str(home)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=900,  # of all inputs together
    )
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_is_read_or_refused_within_its_memory(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name] == INPUTS[name].outcome
