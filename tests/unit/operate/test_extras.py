"""Each extra works with its own packages only, and an error names the extra if its packages are missing."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from packaging.requirements import Requirement

from ftfile.operate import doctor as looking
from ftfile.operate.doctor import USES_OF_EXTRAS, list_required

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[3]
# Extras for the development of ftfile.
DEVELOPMENT = {"unit", "test", "cluster", "fuzz", "mutation", "docs", "lint", "demo", "bench"}
# The beginning of each program: `out` is a path, and `rows` a table.
START = """
import sys
import pyarrow as pa
import ftfile
out, rows = sys.argv[1], pa.table({"id": [1, 2]})
def require_rows():
    assert ftfile.open(out).to_arrow()["id"].to_pylist() == [1, 2]
"""
# No server listens on this port.
NOWHERE = "127.0.0.1:9"


class Use(NamedTuple):
    """The smallest use of an extra.

    Attributes:
        program: Python code.
        error: text of an error that shows that the packages of the extra were used, for programs without their server.
    """

    program: str
    error: str = ""


USES = {
    "avro": Use('ftfile.write(out, rows, file_format="avro")\nrequire_rows()'),
    "cli": Use(
        "ftfile.write(out, rows)\n"
        'sys.argv[:] = ["ftfile", "count", out]\n'
        "from ftfile.tools.cli.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        '    assert end.code in (0, None), "pip install" if end.code == 1 else end.code'
    ),
    "hdfs": Use(f'ftfile.open("hdfs://{NOWHERE}/out", storage={{"patience": "1"}}).version()', NOWHERE),
    "kerberos": Use("from ftfile.storage.hdfs.web_security import kerberos_auth\nkerberos_auth(None)"),
    "kms": Use(
        'key = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"\n'
        'ftfile.write(out, rows, encryption="aes-gcm", key_provider="aws-kms:" + key)',
        NOWHERE,
    ),
    "opentelemetry": Use(
        "class Provider:\n"
        "    def get_meter(self, *_):\n"
        "        return self\n"
        "    def __getattr__(self, name):\n"
        '        assert name.startswith("create_")\n'
        "        return lambda *_, **__: None\n"
        "ftfile.monitor(out, meter_provider=Provider()).close()"
    ),
    "prometheus": Use(
        "from urllib.request import urlopen\n"
        "with ftfile.monitor(out, prometheus_port=0) as monitor, urlopen(monitor.url) as answer:\n"
        '    assert b"ftfile_up" in answer.read()'
    ),
    "report": Use('ftfile.write(out, rows)\nftfile.report(out).save(out + ".html")'),
    "s3": Use(
        f'storage = {{"endpoint": "http://{NOWHERE}", "region": "x", "patience": "1"}}\n'
        'ftfile.open("s3://bucket/out", storage=storage).version()',
        NOWHERE,
    ),
    "spark": Use('assert ftfile.FtFileDataSource.name() == "ftfile"'),
    "zstd": Use('ftfile.write(out, rows, file_format="json", compression="zstd")\nrequire_rows()'),
}
BASE = """
texts = pa.table({"value": ["a", "b"]})
for name in ("parquet", "json", "csv", "orc", "text"):
    out = sys.argv[1] + name
    ftfile.write(out, texts if name == "text" else texts.append_column("id", [[1, 2]]), file_format=name)
    assert ftfile.open(out).to_arrow()["value"].to_pylist() == ["a", "b"], name
    assert ftfile.verify(out, full=True).ok
"""


def is_needed(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


@functools.cache
def closure(name: str, extras: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the distributions that an installation of a distribution with extras installs; none if one is missing."""
    found: set[str] = set()
    waiting = [(name, extras)]
    seen = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            if any(is_needed(requirement, extra) for extra in ("", *extras)):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return frozenset(found)


def top_levels(files: Iterable[metadata.PackagePath]) -> Iterator[tuple[str, ...]]:
    for file in files:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            yield file.parts


def install(directory: Path, names: Iterable[str]) -> None:
    """Fill a directory with links to the files of distributions, as if only they were installed."""
    owners = metadata.packages_distributions()
    for name in names:
        for parts in top_levels(metadata.files(name) or ()):
            is_shared = len(set(owners.get(parts[0], ()))) > 1  # a namespace of several distributions
            linked = parts if is_shared else parts[:1]
            target = directory.joinpath(*linked)
            if not os.path.lexists(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(metadata.distribution(name).locate_file("/".join(linked)))))


@pytest.fixture(scope="module")
def installations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories with the packages of an installation, by extra."""
    return {"": tmp_path_factory.mktemp("installations")}


def installation(installations: dict[str, Path], extra: str) -> Path:
    if extra not in installations or not any(installations[extra].iterdir()):
        directory = installations[""].parent / f"{installations[''].name}-{extra or 'base'}"
        directory.mkdir()
        install(directory, closure("ftfile", frozenset({extra} - {""})))
        installations[extra] = directory
    return installations[extra]


def run(site: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the standard library and the packages of a directory."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON", "FTFILE"))
    }
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(site)]),
        "AWS_ENDPOINT_URL": f"http://{NOWHERE}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_MAX_ATTEMPTS": "1",
    }
    command = [sys.executable, "-S", "-c", f"{START}\n{program}", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_every_extra_is_tried() -> None:
    assert USES.keys() | DEVELOPMENT == {*(metadata.metadata("ftfile").get_all("Provides-Extra") or ())}


@pytest.mark.slow
def test_an_installation_without_extras_writes_and_reads(installations: dict[str, Path], tmp_path: Path) -> None:
    done = run(installation(installations, ""), BASE, str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("extra", USES)
def test_each_extra_works_with_its_own_packages(extra: str, installations: dict[str, Path], tmp_path: Path) -> None:
    try:
        site = installation(installations, extra)
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"{error.name} is not installed here: make {extra}")
    done = run(site, USES[extra].program, str(tmp_path / "out"))
    if USES[extra].error:
        assert USES[extra].error in done.stderr
    else:
        assert done.returncode == 0, done.stderr
    assert "pip install" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("extra", USES)
def test_without_its_packages_the_error_names_the_extra(
    extra: str, installations: dict[str, Path], tmp_path: Path
) -> None:
    done = run(installation(installations, ""), USES[extra].program, str(tmp_path / "out"))
    assert done.returncode
    assert f"pip install 'ftfile[{extra}]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", "cli", "s3"])
def test_doctor_checks_the_installed_packages(extra: str, installations: dict[str, Path], tmp_path: Path) -> None:
    program = (
        "import json\n"
        "found = [(each.code, each.severity, each.expected) for each in ftfile.doctor(measure_start=False).findings]\n"
        "print(json.dumps(found))"
    )
    done = run(installation(installations, extra), program, str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert ["packages", "ok", "all packages that ftfile needs"] in found
    installed = {text for code, severity, text in found if code == "extra" and severity == "ok"}
    assert installed == {f"ftfile[{name}]" for name in {"cli": {"cli", "report"}}.get(extra, {extra} - {""})}


class TestDoctor:
    def test_it_knows_the_requirements_of_each_extra(self) -> None:
        requirements = [Requirement(text) for text in metadata.requires("ftfile") or []]
        always = {each.name for each in requirements if is_needed(each, "")}
        assert {*(list_required() or ())} == always != set()
        for extra in USES:
            more = {each.name for each in requirements if is_needed(each, extra)} - always
            assert {*(list_required(extra) or ())} == more != set()

    def test_it_lists_every_extra(self) -> None:
        assert USES_OF_EXTRAS.keys() | {"spark"} == USES.keys()

    def test_each_missing_package_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(looking, "_output", lambda _: "")
        for name in list_required() or []:
            monkeypatch.setattr(looking, "_version", lambda asked, name=name: None if asked == name else "1")
            (found,) = (each for each in looking.doctor(measure_start=False).findings if each.code == "packages")
            assert (found.severity, found.actual) == ("error", f"not installed: {name}")

    def test_sources_without_an_installation(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(_: str) -> list[str]:
            raise metadata.PackageNotFoundError("ftfile")

        monkeypatch.setattr(metadata, "requires", missing)
        report = looking.doctor("s3://bucket/out", measure_start=False)
        (found,) = (each for each in report.findings if each.code == "packages")
        assert (found.severity, "not an installation" in found.actual) == ("info", True)
        assert not [each for each in report.findings if each.code == "extra"]
