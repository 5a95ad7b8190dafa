"""`ftfile-python` removes Spark's archives from PYTHONPATH if, and only if, their modules are installed unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import ftfile.spark
from ftfile.spark.workers import interpreter
from ftfile.spark.workers.archives import are_installed

ROOT = Path(__file__).parents[4]
LAUNCHER = ROOT / "src/ftfile/spark/workers/ftfile-python"
VERSION = "__version__ = '4.1.0'\n"


def write_package(site: Path, name: str, version: str = VERSION) -> None:
    (site / name).mkdir(parents=True, exist_ok=True)
    (site / name / "__init__.py").write_text("")
    (site / name / "version.py").write_text(version)


def write_archive(path: Path, name: str, version: str = VERSION) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}/version.py", version)
        archive.writestr(f"{name}/sql/tests/test_types.py", "pass\n")
        archive.writestr(f"{name}/README.md", "not a module")
    return path


@dataclass
class Place:
    """An environment with the launcher, and the archives of Spark."""

    environment: Path
    spark: Path
    home: Path

    @property
    def site(self) -> Path:
        (found,) = self.environment.glob("lib/python3*/site-packages")
        return found

    @property
    def launcher(self) -> Path:
        return self.environment / "bin/ftfile-python"

    @property
    def archives(self) -> list[str]:
        return [str(self.spark / "pyspark.zip"), str(self.spark / "py4j-0.10.9.9-src.zip")]

    @property
    def cached(self) -> str:
        cache = self.home / ".cache/ftfile/same-pyspark"
        return cache.read_text() if cache.exists() else ""

    def run(self, *code: str, path: str | None = None, home: str | None = None, program: Path | None = None) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home) if home is None else home}
        environment |= {"PYTHONPATH": os.pathsep.join([*self.archives, "/own/a b", "/own/*"]) if path is None else path}
        command = [str(program or self.launcher), *(code or ["-c", "import os; print(os.environ['PYTHONPATH'])"])]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, input="7\n")
        assert not done.stderr
        return done.stdout.removesuffix("\n")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An environment with the pyspark of Spark's archives. Its path has a space and other special characters."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    made = Place(tmp_path / "an environment ä", tmp_path / "a spark/python/lib", tmp_path / "home")
    made.home.mkdir()
    venv.create(made.environment, symlinks=True)
    made.launcher.write_bytes(LAUNCHER.read_bytes())
    made.launcher.chmod(0o755)
    for name, archive in zip(("pyspark", "py4j"), made.archives, strict=True):
        write_package(made.site, name)
        write_archive(Path(archive), name)
    (made.site / "ftfile.pth").write_text(f"{ROOT / 'src'}\n")
    return made


OWN = "/own/a b:/own/*"


def test_archives_of_the_installed_version_are_removed(place: Place) -> None:
    assert place.run() == OWN
    assert place.cached.splitlines()[-1] == "same"
    text = "import sys, pyspark.version; print(sys.argv[1:], sys.stdin.read().strip(), pyspark.version.__file__)"
    assert place.run("-c", text, "a b", "") == f"['a b', ''] 7 {place.site}/pyspark/version.py"


def test_the_result_is_cached(place: Place) -> None:
    first = place.run()
    cache = place.home / ".cache/ftfile/same-pyspark"
    assert cache.stat().st_mode & 0o077 == 0 or cache.parent.stat().st_mode & 0o077 == 0
    size = cache.stat().st_size
    assert (first, place.run(), cache.stat().st_size) == (OWN, OWN, size)
    cache.write_text(cache.read_text().replace("same\n", "different\n"))
    assert place.run() == os.pathsep.join([*place.archives, OWN])


@pytest.mark.parametrize("package", [0, 1])
def test_another_version_changes_nothing(place: Place, package: int) -> None:
    write_archive(Path(place.archives[package]), ("pyspark", "py4j")[package], "__version__ = '4.0.9'\n")
    unchanged = os.pathsep.join([*place.archives, OWN])
    assert [place.run(), place.run()] == [unchanged, unchanged]
    assert place.cached.count("different") == 1


def test_packages_are_compared_again_after_an_upgrade(place: Place) -> None:
    assert place.run() == OWN
    write_package(place.site, "pyspark", "__version__ = '4.2.0'  # upgraded\n")
    assert place.run() == os.pathsep.join([*place.archives, OWN])
    write_archive(Path(place.archives[0]), "pyspark", "__version__ = '4.2.0'  # upgraded\n")
    assert place.run() == OWN


def test_another_path_is_compared_again(place: Place, tmp_path: Path) -> None:
    """A package on PYTHONPATH takes precedence over the installed package."""
    assert place.run() == OWN
    write_package(tmp_path / "first", "pyspark", "__version__ = '4.0.9'\n")
    path = os.pathsep.join([*place.archives, str(tmp_path / "first")])
    assert place.run(path=path) == path


@pytest.mark.parametrize("path", ["", "/own/a b:/own/pyspark.zip.old", "relative::/own"])
def test_a_path_without_archives_stays(place: Place, path: str) -> None:
    assert place.run(path=path) == path
    assert not place.cached


@pytest.mark.parametrize("home", ["", "/nonexistent", "/dev/null"])
def test_without_a_home_packages_are_compared_each_time(place: Place, home: str) -> None:
    assert [place.run(home=home), place.run(home=home)] == [OWN, OWN]


@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "large", "noise"])
def test_another_file_in_the_place_of_the_cache(place: Place, kind: str) -> None:
    cache = place.home / ".cache/ftfile/same-pyspark"
    cache.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(cache)
    elif kind == "device":
        cache.symlink_to("/dev/zero")
    elif kind == "directory":
        cache.mkdir()
    elif kind == "large":
        cache.write_text("same\n" * 5_000_000)
    else:
        cache.write_bytes(os.urandom(3_000_000))
    assert [place.run(), place.run()] == [OWN, OWN]
    if kind in {"large", "noise"}:
        assert cache.stat().st_size < 5_000


@pytest.mark.parametrize("is_dangling", [True, False])
def test_without_an_interpreter_next_to_it(tmp_path: Path, *, is_dangling: bool) -> None:
    """Another Python on PATH could lack ftfile, and no error would report this."""
    launcher = tmp_path / "ftfile-python"
    launcher.write_bytes(LAUNCHER.read_bytes())
    launcher.chmod(0o755)
    if is_dangling:
        (tmp_path / "python3").symlink_to("/nowhere/python3")
    done = subprocess.run([str(launcher), "-c", "print(1)"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (127, "")
    assert f"there is no Python that can be run in {tmp_path}" in done.stderr


@pytest.mark.parametrize("entry", ["{{PWD}}/pyspark.zip<CPS>{{PWD}}/py4j-0.10.9.9-src.zip", "/nowhere/pyspark.zip"])
def test_an_entry_that_is_no_file_stays(place: Place, entry: str) -> None:
    """On YARN, PYTHONPATH begins with an entry that Spark intends to expand. Spark adds the archives after it."""
    assert place.run(path=os.pathsep.join([entry, *place.archives, OWN])) == f"{entry}:{OWN}"
    assert place.cached.splitlines()[-1] == "same"


def test_what_cannot_be_compared_changes_nothing(place: Place) -> None:
    Path(place.archives[0]).write_bytes(b"no archive")
    assert place.run() == os.pathsep.join([*place.archives, OWN])
    (place.site / "ftfile.pth").unlink()
    assert place.run() == os.pathsep.join([*place.archives, OWN])


def test_a_link_runs_the_interpreter_of_its_target(place: Place, tmp_path: Path) -> None:
    link = tmp_path / "linked"
    link.symlink_to(place.launcher)
    assert place.run(program=link) == OWN
    prefix = ("-c", "import sys; print(sys.prefix)")
    assert place.run(*prefix, program=link) == str(place.environment)
    relative, cache = tmp_path / "relative", tmp_path / "cache/ftfile-python"
    relative.symlink_to("linked")
    assert place.run(*prefix, program=relative) == str(place.environment)
    cache.parent.mkdir()
    place.launcher.rename(cache)
    place.launcher.symlink_to(cache)
    assert place.run(*prefix, program=relative) == str(place.environment)


def test_a_path_with_a_space_is_linked(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark cannot start a program below a path with a space."""
    monkeypatch.setattr(sys, "executable", str(place.environment / "bin/python3"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(place.home))
    link = Path(interpreter.python())
    assert link.parent == place.home / ".cache/ftfile"
    assert interpreter.python() == str(link)
    assert place.run("-c", "import sys; print(sys.prefix)", program=link) == str(place.environment)
    assert not caplog.messages
    link.unlink()
    link.symlink_to("another environment")
    assert interpreter.python() == str(place.launcher)
    for cache in ("/dev/null", f"{tmp_path}/a cache", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
        assert interpreter.python() == str(place.launcher)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "")
    assert interpreter.python() == str(place.launcher)
    assert len(caplog.messages) == 5
    assert f"PATH='{place.environment}/bin':\"$PATH\" PYSPARK_PYTHON=ftfile-python" in caplog.messages[0]


def test_modules_that_are_not_installed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(place.site)])
    for name in ("pyspark", "py4j"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert are_installed(place.archives)
    with zipfile.ZipFile(place.archives[0], "a") as archive:
        archive.writestr("pyspark/more.py", "")
    assert not are_installed(place.archives)
    write_archive(Path(place.archives[0]), "pyspark", VERSION.replace("4.1.0", "4.1.1"))
    assert not are_installed(place.archives)


def test_the_path_for_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = place.environment.with_name("plain")
    plain.symlink_to(place.environment)
    place = replace(place, environment=plain)
    monkeypatch.setattr(sys, "executable", str(place.environment / "bin/python3"))
    assert ftfile.spark.python() == str(place.launcher)
    monkeypatch.setattr(sys, "executable", str(place.environment / "bin/python"))
    assert interpreter.python() == str(place.launcher)
    place.launcher.chmod(0o644)
    assert interpreter.python() == str(place.environment / "bin/python")
    other = place.environment.with_name("other")
    other.mkdir()
    for name in ("python3", "ftfile-python", "python3.99"):
        (other / name).write_text("#!/bin/sh\n")
        (other / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(other / "python3.99"))
    assert interpreter.python() == str(other / "python3.99")


def test_a_jvm_that_is_already_running_needs_settings_before_its_start(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`spark-submit` starts the JVM, which reads the variables, before the program."""
    monkeypatch.setattr(sys, "executable", str(place.environment / "bin/python3"))
    launcher = str(place.launcher)
    monkeypatch.setattr(interpreter, "launcher_of", lambda _: launcher)
    monkeypatch.setenv("HOME", str(place.home))
    assert interpreter.python()
    assert not caplog.messages, "the program starts the JVM itself"
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    interpreter.python()
    assert "starts PYSPARK_PYTHON=python3 for data sources. Start the application with" in caplog.messages[-1]
    monkeypatch.setenv("PYSPARK_PYTHON", launcher)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    interpreter.python()
    assert "starts PYSPARK_DRIVER_PYTHON=jupyter for data sources. Start the application with" in caplog.messages[-1]
    count = len(caplog.messages)
    for command in (launcher, "./environment/bin/ftfile-python"):
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", command)
        interpreter.python()
    warnings = [message for message in caplog.messages[count:] if "already running" in message]
    assert not warnings
