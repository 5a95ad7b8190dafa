"""The content of a release: two builds are identical, and a strict type checker finds its types."""

from __future__ import annotations

import email
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from ftfile import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    Build = Callable[[Path, Path], tuple[Path, Path]]

ROOT = Path(__file__).parents[2]
USERS_PROGRAM = """\
import ftfile
import ftfile.errors
from ftfile import kv


def rows(path: str) -> list[object]:
    directory = ftfile.open(path)
    try:
        directory.verify()
    except ftfile.errors.CorruptData as error:
        print(error)
    return [*directory.to_batches(columns=["id"])]


def count(path: str) -> int:
    with kv.open(path) as reader:
        reveal_type(reader.version)
    return ftfile.open(path).count()
"""


@pytest.fixture(scope="module")
def build() -> Build:
    return cast("Build", runpy.run_path(str(ROOT / ".ci/release.py"))["build"])


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, build: Build) -> tuple[Path, Path]:
    """The wheel and the source distribution."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def test_the_image_has_versions_and_extras_of_this_project() -> None:
    """The image is not built in tests."""
    text, project = ((ROOT / name).read_text() for name in ("docs/container/Dockerfile", "pyproject.toml"))
    (spark,) = re.findall(r"^ARG SPARK=(.*)$", text, re.MULTILINE)
    assert f":= {spark}\n" in (ROOT / "Makefile").read_text()
    (python,) = re.findall(r"^FROM python:(\d\.\d+)-", text, re.MULTILINE)
    assert f'"Programming Language :: Python :: {python}"' in project
    (extras,) = re.findall(r"^ARG FTFILE=ftfile\[(.*)\]$", text, re.MULTILINE)
    assert all(re.search(rf"^{extra} = ", project, re.MULTILINE) for extra in extras.split(","))


def test_a_second_build_elsewhere_gives_the_same_bytes(tmp_path: Path, built: tuple[Path, Path], build: Build) -> None:
    _, source = built
    subprocess.run(["tar", "-xzf", source, "-C", tmp_path], check=True)
    (copy,) = tmp_path.iterdir()
    for path in copy.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    again = build(copy, tmp_path / "dist")
    assert [each.name for each in again] == [each.name for each in built]
    assert [each.read_bytes() for each in again] == [each.read_bytes() for each in built]


def test_the_wheel_has_all_that_is_needed(built: tuple[Path, Path]) -> None:
    wheel, _ = built
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        said = email.message_from_bytes(archive.read(f"ftfile-{__version__}.dist-info/METADATA"))
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert sources | {"ftfile/py.typed"} <= names
    assert {name.split("/")[0] for name in names} == {
        *("ftfile", "pyspark_ftfile", "pyspark_ftkv", f"ftfile-{__version__}.dist-info", f"ftfile-{__version__}.data")
    }
    assert f"ftfile-{__version__}.data/scripts/ftfile-python" in names
    assert f"ftfile-{__version__}.dist-info/licenses/LICENSE" in names
    assert said["Version"] == __version__
    assert said["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in said.get_all("Classifier", [])
    assert not [
        name for name in said.get_all("Requires-Dist", []) if name.startswith("pyspark") and "extra" not in name
    ]


def test_an_installation_has_the_command(tmp_path: Path, built: tuple[Path, Path]) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path)]
    subprocess.run([*install, str(built[0])], check=True, capture_output=True)
    clean = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [str(tmp_path / "bin/ftfile"), "--version"]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=True)
    assert done.stdout == f"ftfile {__version__}\n"


def test_the_changelog_knows_the_version() -> None:
    sections = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert sections[0] in {"Unreleased", __version__}


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A project with a release, after which a function and an option were added."""
    package = tmp_path / "src/ftfile"
    (package / "core/options").mkdir(parents=True)
    option = "class Option:\n    def __init__(self, name):\n        self.name = name\n"
    (package / "__init__.py").write_text("__all__ = ('open',)\n")
    (package / "core/options/table.py").write_text(f"{option}OPTIONS = [Option('rolling')]\n")
    for module in ("core/__init__", "kv", "spark", "errors"):
        (package / f"{module}.py").write_text("__all__ = ()\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.0]\n\n- `write`, `maxRows`\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", "v1.0"]):
        subprocess.run([*git, *command], check=True)
    (package / "__init__.py").write_text("__all__ = ('open', 'write')\n")
    (package / "core/options/table.py").write_text(f"{option}OPTIONS = [Option('rolling'), Option('maxRows')]\n")
    return tmp_path


def test_the_changelog_names_what_was_added(released: Path) -> None:
    unnamed_changes = runpy.run_path(str(ROOT / ".ci/changes.py"))["unnamed_changes"]
    assert unnamed_changes(released) == ["ftfile.write", "maxRows"]
    changes = "# Changelog\n\n## [Unreleased]\n\n- `ftfile.write(path, data)`, `maxRows`\n\n## [1.0]\n"
    (released / "CHANGELOG.md").write_text(changes)
    assert unnamed_changes(released) == []
    subprocess.run(["git", "-C", str(released), "tag", "-d", "v1.0"], check=True, capture_output=True)
    (released / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n")
    assert unnamed_changes(released) == []


def test_a_strict_program_finds_the_types(tmp_path: Path, built: tuple[Path, Path]) -> None:
    # An environment with the wheel; other packages come from this environment.
    venv.create(tmp_path / "environment", with_pip=False)
    python = tmp_path / "environment/bin/python"
    (packages,) = (tmp_path / "environment").glob("lib/python*/site-packages")
    with zipfile.ZipFile(built[0]) as archive:
        archive.extractall(packages)
    (packages / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = tmp_path / "program.py"
    program.write_text(USERS_PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", f"--python-executable={python}", "--cache-dir=/dev/null"]
    command.append(str(program))
    clean = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=clean, capture_output=True, text=True, check=False)
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.", "")
    assert "Success: no issues found" in done.stdout, done.stdout


def test_each_dependency_has_its_reason(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as archive:
        said = email.message_from_bytes(archive.read(f"ftfile-{__version__}.dist-info/METADATA"))
    wanted = set()
    for requirement in said.get_all("Requires-Dist", []):
        name = re.split(r"[^\w.-]", requirement)[0]
        extra = re.search(r"extra == '(.*)'", requirement)
        if name != "ftfile" and not (extra and extra[1] in DEVELOPERS_EXTRAS):
            wanted.add(name)
    page = (ROOT / "docs/internals/dependencies.md").read_text()
    assert {*re.findall(r"^\| `([\w.-]+)`", page, re.MULTILINE)} == wanted


DEVELOPERS_EXTRAS = {"bench", "cluster", "demo", "docs", "fuzz", "lint", "mutation", "test", "unit"}
