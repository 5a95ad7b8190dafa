"""`.ci/venv` installs outdated packages with uv and the settings of pip, and uses pip if uv fails."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
PROJECT = '[project]\nname = "probe"\ndependencies = [\n  "numpy>=1.26",  # a reason\n]\n'
UV = "#!/bin/sh\n[ $1 = --version ] && echo 'uv {version}' && exit\necho $UV_DEFAULT_INDEX $* >>ran\nexit {status}\n"
PIP_CONFIGURATION = """[global]
index-url = https://user:secret@index.invalid/simple
extra-index-url =
    https://second.invalid/simple
    https://third.invalid/simple
timeout = 20
trusted-host = index.invalid
[install]
cert = /certificates/ours.pem
find-links = /no/such/directory https://files.invalid/wheels
timeout = 40
use-pep517 = true
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the scripts and a uv that installs nothing."""
    root = tmp_path / "a checkout"
    shutil.copytree(ROOT / ".ci", root / ".ci", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "pyproject.toml").write_text(PROJECT)
    (root / ".venv-uv/bin").mkdir(parents=True)
    script(root / ".venv-uv/bin/python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    make_uv(root, status=0)
    return root


def make_uv(root: Path, status: int) -> None:
    pinned = re.search(r"version=([\d.]+)", (ROOT / ".ci/uv").read_text())
    assert pinned
    script(root / ".venv-uv/bin/uv", UV.format(version=pinned[1], status=status))


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def run(root: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command with only these settings of pip or uv, and with the settings of the machine's files."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "XDG_"))}
    return subprocess.run(command, cwd=root, env=settings | more, capture_output=True, text=True, check=False)


def set_up(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(root, "bash", ".ci/venv", *arguments, PIP_INDEX_URL="https://index.invalid/simple", HOME=str(root))


def test_an_environment_is_set_up_once_and_checked_without_a_change(checkout: Path) -> None:
    request = (".venv", VERSION, "--floor", "--editable", ".[unit]")
    assert set_up(checkout, "--check", *request).returncode == 1
    assert not (checkout / ".venv").exists()
    for _ in range(2):
        assert set_up(checkout, *request).returncode == 0
    call, prune = (checkout / "ran").read_text().splitlines()
    assert prune.split() == ["cache", "prune", "--quiet"]
    assert call.startswith("https://index.invalid/simple pip install")
    assert call.endswith("--constraint .venv/constraints.txt pip --editable .[unit]")
    assert (checkout / ".venv/constraints.txt").read_text().split() == ["numpy==1.26"]
    assert set_up(checkout, "--check", *request).returncode == 0
    assert set_up(checkout, "--check", *request, "pyspark").returncode == 1
    (checkout / "pyproject.toml").write_text(PROJECT.replace("1.26", "2"))
    assert set_up(checkout, "--check", *request).returncode == 1


def test_no_cache_is_kept_in_a_home_that_is_not_writable(checkout: Path) -> None:
    assert run(checkout, "bash", ".ci/venv", ".venv", VERSION, "probe", HOME="/proc").returncode == 0
    (call,) = (checkout / "ran").read_text().splitlines()
    assert call.split()[:2] == ["pip", "install"]


def test_a_cache_of_the_user_is_not_pruned(checkout: Path, tmp_path: Path) -> None:
    assert run(checkout, "bash", ".ci/venv", ".venv", VERSION, "probe", UV_CACHE_DIR=str(tmp_path)).returncode == 0
    (call,) = (checkout / "ran").read_text().splitlines()
    assert call.split()[:2] == ["pip", "install"]


@pytest.mark.skipif(not importlib.util.find_spec("ensurepip"), reason="needs the network for pip")
def test_pip_installs_if_uv_fails(checkout: Path) -> None:
    make_uv(checkout, status=1)
    wheel = "probe-1.0-py3-none-any.whl"
    with zipfile.ZipFile(checkout / wheel, "w") as archive:
        archive.writestr("probe.py", "")
        archive.writestr("probe-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: probe\nVersion: 1.0\n")
        archive.writestr("probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("probe-1.0.dist-info/RECORD", "")
    done = set_up(checkout, ".venv", VERSION, wheel)
    assert (done.returncode, done.stderr) == (0, "uv cannot set up .venv (see above): pip tries now\n")
    assert run(checkout, ".venv/bin/python", "-c", "import probe").returncode == 0


def test_a_uv_that_cannot_be_installed_is_one_line(checkout: Path) -> None:
    shutil.rmtree(checkout / ".venv-uv")
    python = checkout / "python"
    made = "mkdir -p .venv-uv/bin; cp python .venv-uv/bin/python"
    script(python, f"#!/bin/sh\ncase $* in *venv*--clear*) {made} ;; *) echo 'ERROR: no uv here' >&2; exit 1 ;; esac\n")
    (checkout / "python3").symlink_to(python)
    done = run(checkout, "bash", ".ci/uv", str(python), PATH=f"{checkout}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert re.fullmatch(
        r"uv [\d.]+ cannot be installed here \(ERROR: no uv here\): pip is used, which takes .*\n", done.stderr
    )


def test_uv_has_the_settings_of_pip(tmp_path: Path) -> None:
    configuration = tmp_path / "pip.conf"
    configuration.write_text(PIP_CONFIGURATION)
    more = {"PIP_CONFIG_FILE": str(configuration), "PIP_NO_INDEX": "1", "UV_HTTP_RETRIES": "7", "PIP_RETRIES": "3"}
    done = run(tmp_path, sys.executable, str(ROOT / ".ci/pip_settings.py"), "env", **more)
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith(("UV_", "SSL_CERT_FILE")))
    assert found == {
        "SSL_CERT_FILE": "/certificates/ours.pem",
        "UV_DEFAULT_INDEX": "https://user:secret@index.invalid/simple",
        "UV_FIND_LINKS": "https://files.invalid/wheels",
        "UV_HTTP_RETRIES": "7",
        "UV_HTTP_TIMEOUT": "40",
        "UV_INDEX": "https://second.invalid/simple https://third.invalid/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "index.invalid",
        "UV_NO_INDEX": "true",
        "UV_SYSTEM_CERTS": "true",
    }


def test_a_user_without_a_name_is_told_that_spark_does_not_start(tmp_path: Path) -> None:
    script(tmp_path / "id", "#!/bin/sh\n[ $1 = -u ] && echo 12345\n")
    script(tmp_path / "java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    variables = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "JAVA_HOME": ""}
    done = subprocess.run([ROOT / ".ci/java"], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Spark and Hadoop do not start, because the user id 12345 has no name. Add an entry")
