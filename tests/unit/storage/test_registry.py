from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ftfile.storage.registry
from ftfile.core.errors import ConfigError, Unavailable
from ftfile.core.retries import RetryPolicy
from ftfile.storage.api import FileSystem
from ftfile.storage.registry import known_schemes, normalise, register, unregister
from ftfile.testing.context import ManualClock, open_filesystem
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.faulty import Fault, FaultyFileSystem
from ftfile.testing.fs.memory import MemoryFileSystem
from tests.unit.storage.layered import LayeredContract

if TYPE_CHECKING:
    from pathlib import Path

    from ftfile.storage.paths import Location


class TestFileUrl(LayeredContract):
    @pytest.fixture
    def filesystem(self, tmp_path: Path) -> FileSystem:
        return open_filesystem(f"file:{tmp_path}")


def test_a_directory_below_a_name_is_one_of_that_storage() -> None:
    try:
        below, whole = open_filesystem("memory://registry/some/where"), open_filesystem("memory://registry")
        below.make_directories("")
        below.put("file", b"data")
        assert whole.read("some/where/file") == b"data"
        assert [info.path for info in below.list("")] == ["file"]
    finally:
        MemoryFileSystem.drop("registry")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/data/out", "file:///data/out"),
        ("file:/data/out", "file:///data/out"),
        ("file:///data/out", "file:///data/out"),
        ("FILE://localhost/data/out", "file:///data/out"),
        ("//data///out//", "file:///data/out"),
        ("/data/./x/../out/", "file:///data/out"),
        ("/../out", "file:///out"),
        ("/", "file:///"),
        ("file:/with blank", "file:///with blank"),
        ("file:/a%20b?c#d", "file:///a%20b?c#d"),
        ("/a:b/c=1", "file:///a:b/c=1"),
        ("memory://name", "memory://name/"),
        ("memory://name/", "memory://name/"),
        ("Memory://Name/a/", "memory://Name/a"),
        ("hdfs://nn:8020/user/x", "hdfs://nn:8020/user/x"),
        ("s3a://bucket", "s3a://bucket/"),
    ],
)
def test_one_directory_has_one_url(text: str, canonical: str) -> None:
    assert normalise(text) == canonical
    assert normalise(canonical) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "blank"),
        ("a\0b", "NUL"),
        ("  ", "is blank or contains NUL"),
        ("out", "is relative; give an absolute path"),
        ("./out", "is relative"),
        ("s3://me:s3cret@bucket/out", "^(?!.*s3cret).*has a password before its host"),
        ("file:out", "no slash after its scheme"),
        ("C:\\data", "looks like a path with a Windows drive.*/mnt/c/"),
        ("colon:name", "no slash after its scheme"),
        ("file://host/out", "write file:///host/out"),
        ("file://", "has no path"),
    ],
)
def test_what_names_no_directory_is_refused(text: str, reason: str) -> None:
    for function in (normalise, open_filesystem):
        with pytest.raises(ConfigError, match=reason):
            function(text)


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'gopher'.*available schemes: .*file.*memory"):
        open_filesystem("gopher://hole/x")


def test_a_memory_url_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="names no storage system"):
        open_filesystem("memory:///x")


@pytest.mark.parametrize("url", ["/data", "memory://name"])
def test_settings_that_nobody_reads_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"no setting storage\.user"):
        open_filesystem(url, settings={"user": "me"})


def test_a_file_system_from_a_url_retries_with_the_given_clock() -> None:
    clock = ManualClock()
    seen: list[Location] = []

    def open_flaky(location: Location) -> FileSystem:
        seen.append(location)
        return FaultyFileSystem(CrashingFileSystem(clock=location.context.clock), [Fault(Unavailable, times=2)])

    register("flaky", open_flaky)
    try:
        policy = RetryPolicy(delay_s=2)
        filesystem = open_filesystem("Flaky://host/a//b", settings={"user": "me"}, clock=clock, policy=policy)
    finally:
        unregister("flaky")
    assert filesystem.list("") == []
    assert clock.slept_s == [2, 4]
    assert (seen[0].scheme, seen[0].authority, seen[0].path) == ("flaky", "host", "/a/b")
    assert seen[0].settings == {"user": "me"}


def test_an_own_scheme_is_gone_after_unregister() -> None:
    register("Own", lambda _: CrashingFileSystem())
    assert "own" in known_schemes()
    unregister("own")
    unregister("own")
    assert "own" not in known_schemes()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages on the search path, with a driver and a broken one."""
    metadata = tmp_path / "somewhere-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somewhere\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        f"[{ftfile.storage.registry.ENTRY_POINT_GROUP}]\n"
        "some = somewhere_driver:open_location\n"
        "broken = somewhere_driver:no_such_name\n"
    )
    (tmp_path / "somewhere_driver.py").write_text(
        "from ftfile.testing.fs.memory import MemoryFileSystem\n"
        "def open_location(location):\n"
        "    return MemoryFileSystem(f'somewhere-{location.authority}')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("installed")
def test_drivers_of_other_packages_are_found() -> None:
    assert {"some", "broken"} <= set(known_schemes())
    open_filesystem("some://x/").put("file", b"data")
    assert MemoryFileSystem("somewhere-x").read("file") == b"data"
    MemoryFileSystem.drop("somewhere-x")
    with pytest.raises(ConfigError, match=r"somewhere_driver:no_such_name.*cannot be loaded"):
        open_filesystem("broken://x/")


@pytest.mark.slow
def test_no_driver_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, ftfile.storage.registry as registry; registry.normalise('/x');"
        "late = {'ftfile.storage.local', 'ftfile.testing.fs.memory', 'importlib.metadata'};"
        "print(late & sys.modules.keys())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


def test_a_driver_without_capabilities_is_not_made() -> None:
    given = {name: lambda *_: None for name in FileSystem.__abstractmethods__ - {"capabilities"}}
    with pytest.raises(TypeError, match=r"abstract.*capabilities"):
        type("Forgetful", (FileSystem,), given)()
    type("Whole", (FileSystem,), given | {"capabilities": MemoryFileSystem.capabilities})()
