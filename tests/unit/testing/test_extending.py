"""The examples of docs/extending.md, installed as packages, pass their contracts and are written and read with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
import ftfile.errors
from ftfile.core import errors
from ftfile.core.extensions import forget_extensions
from ftfile.filters.keys import forget_keys
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.packages import install

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "extending.md").read_text()
CODE: dict[str, str] = dict(re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE, flags=re.DOTALL))
(ENTRIES,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
EXAMPLES = ("my_formats", "my_filters", "my_keys", "my_storage")


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    entry_points = re.sub(r'\[project\.entry-points\."(.*)"\]', r"[\1]", ENTRIES).replace('"', "")
    install(tmp_path / "packages", "examples", entry_points)
    for name, code in CODE.items():
        (tmp_path / "packages" / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    yield tmp_path / "packages"
    for name in CODE:
        sys.modules.pop(name, None)
    forget_extensions()
    forget_keys()


def test_the_page_has_all_examples() -> None:
    assert set(CODE) == {*EXAMPLES, *(f"test_{name}" for name in EXAMPLES)}


@pytest.mark.slow
def test_examples_pass_their_contracts(packages: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(packages),
        str(packages),
    ]
    paths = os.pathsep.join([str(packages), str(ROOT / "src")])
    done = subprocess.run(
        command,
        cwd=packages,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-5_000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 120


@pytest.mark.slow
def test_examples_are_written_and_read_with(packages: Path) -> None:
    keys = packages / "keys"
    keys.mkdir()
    (keys / "first.key").write_bytes(bytes(range(32)))
    storage = f"pytest-{os.getpid()}"
    path = f"team://{storage}/out"
    options = {"fileFormat": "numbers", "filters": "crc", "compression": "gzip"}
    encrypted = {"encryption": "aes-gcm", "keyProvider": f"folder:{keys}"}
    query = MicroBatch(path, {"n": "long"}, options | encrypted)
    try:
        query.run(0, [[{"n": 1}, {"n": None}], [{"n": 3}]])
        found = ftfile.open(path, key_provider=f"folder:{keys}").to_arrow().column("n").to_pylist()
        (part, *_) = Path("/tmp/teams", storage, "out").glob("*.numbers*")
    finally:
        shutil.rmtree(Path("/tmp/teams", storage))
    assert sorted(found, key=str) == [1, 3, None]
    assert part.name.endswith(".numbers.gz.crc.enc")


def test_an_option_that_a_format_does_not_have(packages: Path, tmp_path: Path) -> None:
    del packages
    query = MicroBatch(str(tmp_path / "out"), {"n": "long"}, {"fileFormat": "numbers", "format.base": "16"})
    with pytest.raises(ftfile.errors.ConfigError, match=r"fileFormat=numbers has no option format\.base"):
        query.pickled_plan()


def test_the_public_errors_are_all_errors_and_the_page_has_each() -> None:
    assert ftfile.errors.__all__ == errors.__all__
    assert all(getattr(ftfile.errors, name) is getattr(errors, name) for name in errors.__all__)
    page = (ROOT / "docs" / "errors.md").read_text()
    assert [name for name in errors.__all__ if f"`{name}`" not in page] == []
