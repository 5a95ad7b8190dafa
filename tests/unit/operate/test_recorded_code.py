"""User code that a log names: status, verify and reports name the code, and no call imports it because of the log."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

import ftfile
import ftfile.kv
from ftfile.core.errors import ConfigError, FtfileError
from ftfile.core.extensions import forget_extensions
from ftfile.filters.keys import forget_keys
from ftfile.formats.binary_records import ENTRY_POINT_GROUP as ENCODERS
from ftfile.kv.merge_functions import merge_function
from ftfile.log.format import layout
from ftfile.log.format.record import compact_json, from_checked_text, to_checked_text
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.files.file_writer import forget_caches
from tests.hostile.forging import ANY, forge
from tests.kit.parameters import parametrize
from tests.unit.packages import install
from tests.unit.tools.cli.running import run
from tests.unit.writing.files.encrypted import FIRST, write_ring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MODULE = "code_of_a_user"
CODE = """
import pyarrow.compute as pc

class Policy:
    def reason_to_end(self, group, now_ms): return None
    def deadline_ms(self, group): return None

class Encoder:
    extension = ".bin"
    def __init__(self, options): ...
    def encode(self, batch): return batch.column(0)

class Sum:
    combine = staticmethod(pc.add)

class Hit: ...

def told(parts): ...
def named(part): return f"{part.number}.txt"
"""
FILES = {"onPublish": "told", "partFileName": "named", "rollingPolicy": "Policy"}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of installed packages, with the module of a user."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(folder))
    forget()
    yield folder
    forget()


def forget() -> None:
    """Clear the imported modules, as in a new process."""
    sys.modules.pop(MODULE, None)
    merge_function.cache_clear()
    forget_extensions()
    forget_caches()
    forget_keys()


def write(path: Path, **options: str) -> None:
    MicroBatch(str(path), {"word": "string"}, {"fileFormat": "text", "compression": "gzip"} | options).run(
        0, [[{"word": "a"}]]
    )
    forget()


def write_store(path: Path) -> None:
    query = StoreBatch(str(path), {"k": "string", "n": "long"}, {"keyColumns": "k", "merge": f"n:{MODULE}:Sum"})
    for batch in range(2):
        query.run(batch, [[{"k": "a", "n": 1}]])
    forget()


def not_asked(findings: Any) -> list[str]:
    return [finding.actual for finding in findings if finding.code == "code-not-asked"]


@pytest.mark.usefixtures("packages")
class TestNamed:
    @pytest.mark.slow
    def test_by_a_directory_of_files(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        write(path, **{option: f"{MODULE}:{name}" for option, name in FILES.items()})
        directory = ftfile.open(str(path))
        texts = [f"{option} by {MODULE}:{name}, not imported" for option, name in sorted(FILES.items())]
        status = directory.status()
        assert not_asked(status.findings) == texts
        assert f"by the policy {MODULE}:Policy, which is not called here" in status.open[0].waiting
        report = directory.verify(full=True)
        assert (report.ok, not_asked(report.findings)) == (True, texts)
        for is_verified in (True, False):
            warnings = ftfile.report(str(path), verify=is_verified).findings
            assert {text for warning in warnings for text in texts if text in warning.actual} == {*texts}
        for command in ("status", "verify", "report --output=-"):
            output = run(*command.split(), path).output
            assert all(text in output for text in texts), output
        assert MODULE not in sys.modules

    def test_by_an_encoding(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        write(path, fileFormat="binary", encoder=f"{MODULE}:Encoder", rolling="batch")
        directory, text = ftfile.open(str(path)), f"encoder by {MODULE}:Encoder, not imported"
        assert not_asked(directory.status().findings) == not_asked(directory.verify().findings) == [text]
        assert MODULE not in sys.modules

    @pytest.mark.slow
    def test_by_a_store(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        write_store(path)
        assert ftfile.kv.verify(str(path)).not_asked == (f"{MODULE}:Sum",)
        assert f"Merged by {MODULE}:Sum, which was not loaded" in run("kv", "verify", path).output
        assert f"n: {MODULE}:Sum, not loaded" in run("kv", "stats", path).output
        for is_verified in (True, False):
            warnings = ftfile.report(str(path), verify=is_verified).findings
            assert any(f"merge by {MODULE}:Sum, not imported" in warning.actual for warning in warnings)
        assert ftfile.repair(str(path)).ok
        assert MODULE not in sys.modules

    def test_by_nothing(self, tmp_path: Path) -> None:
        write(tmp_path / "out")
        assert ftfile.open(str(tmp_path / "out")).status().findings == ()
        assert ftfile.open(str(tmp_path / "out")).verify().findings == ()


def forge_format(path: Path, name: str) -> None:
    forge_field(path, ("format", "name"), name)


def forge_filter(path: Path, name: str) -> None:
    forge_field(path, ("filters",), [{"name": name}])
    (record,) = (path / layout.LOG).iterdir()
    header, adds, *rest = from_checked_text(record.read_bytes(), "record")
    adds = adds.replace(b'"filters":["gzip"]', f'"filters":["{name}"]'.encode())
    record.write_bytes(to_checked_text([header, adds, *rest]))


def forge_encoder(path: Path, name: str) -> None:
    encoder = {"name": name, "options": {}, "extension": ".bin"}
    forge_field(path, ("format",), {"name": "binary", "delimiter": "0a", "encoder": encoder})


def forge_field(path: Path, steps: tuple[str, ...], value: object) -> None:
    assert forge(path, ("definitions", ANY, *steps), value)


def forge_key_provider(path: Path, name: str) -> None:
    """Write an encrypted directory whose format file names this key provider."""
    shutil.rmtree(path)
    ring = path.parent / "ring"
    write_ring(ring, first=FIRST)
    write(path, encryption="aes-gcm", keyProvider=f"file:{ring}")
    file = path / layout.FORMAT_FILE
    line, seal = from_checked_text(file.read_bytes(), "format")
    seal = compact_json(json.loads(seal) | {"keyProvider": f"{name}:Hit"})
    file.write_bytes(to_checked_text([line, seal]))
    forget()


# Names that a record may contain, each with the group of its entry points.
FORGERIES: dict[str, tuple[Callable[[Path, str], None], str]] = {
    "a format": (forge_format, "ftfile.formats"),
    "a filter": (forge_filter, "ftfile.filters"),
    "an encoder": (forge_encoder, ENCODERS),
    "a key provider": (forge_key_provider, "ftfile.key_providers"),
}
CALLS: dict[str, Callable[[str], object]] = {
    "to_arrow": lambda path: ftfile.open(path).to_arrow(),
    "verify": lambda path: ftfile.open(path).verify(full=True),
    "status": lambda path: ftfile.open(path).status(),
    "flush": ftfile.flush,
    "compact": ftfile.compact,
    "repair": lambda path: ftfile.repair(path, dry_run=False, full=True),
    "vacuum": lambda path: ftfile.vacuum(path, dry_run=False),
    "report": ftfile.report,
}


@pytest.mark.parametrize("forgery", FORGERIES)
class TestForged:
    @parametrize("call", CALLS, quick=1)
    def test_a_module_is_not_imported(self, packages: Path, tmp_path: Path, forgery: str, call: str) -> None:
        assert packages.exists()
        path = tmp_path / "out"
        write(path)
        FORGERIES[forgery][0](path, MODULE if forgery == "a key provider" else f"{MODULE}:Hit")
        with contextlib.suppress(FtfileError) if call != "to_arrow" else pytest.raises(FtfileError):
            CALLS[call](str(path))
        assert MODULE not in sys.modules

    @pytest.mark.slow
    def test_an_entry_point_is_looked_up(self, packages: Path, tmp_path: Path, forgery: str) -> None:
        forge_it, group = FORGERIES[forgery]
        install(packages, "of_a_user", f"[{group}]\nmine = {MODULE}:Hit\n")
        path = tmp_path / "out"
        write(path)
        forge_it(path, "mine")
        with pytest.raises(FtfileError):  # the class has the wrong type
            ftfile.open(str(path)).to_arrow()
        assert (MODULE in sys.modules) is (forgery != "a key provider")


@pytest.mark.usefixtures("packages")
def test_who_opens_it_may_name_an_installed_key_provider(packages: Path, tmp_path: Path) -> None:
    install(packages, "of_a_user", f"[ftfile.key_providers]\nmine = {MODULE}:Hit\n")
    write(tmp_path / "out")
    with pytest.raises((ConfigError, TypeError)):
        ftfile.open(str(tmp_path / "out"), "mine:x")
    assert MODULE in sys.modules
