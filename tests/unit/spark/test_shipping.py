"""Errors of executors with another ftfile, or without ftfile, about the objects that the driver ships to them."""

from __future__ import annotations

import dataclasses
import importlib
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql.types import LongType, StructType

import ftfile
import ftfile.core
import ftfile.writing.files.file_options
from ftfile.log import directory as kind_of_directory
from ftfile.spark.datasource import FtFileDataSource
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files import rolling_rules
from tests.unit.packages import install
from tests.unit.spark.pickled import pickled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXTENSIONS = """
from dataclasses import dataclass
from ftfile.formats.arrow_files import ArrowFormat
from ftfile.filters.codecs import Gzip

@dataclass(frozen=True)
class Filter(Gzip):
    name = "mine"
    extension = ".mine"

@dataclass(frozen=True)
class Format(ArrowFormat):
    name = "mine"
"""
SCHEMA = StructType().add("id", LongType())


def shipped(kind: str, path: str) -> bytes:
    """Pickle as Spark does."""
    source = FtFileDataSource({"path": path})
    makers: dict[str, Callable[[], Any]] = {
        "source": lambda: source,
        "reader": lambda: source.reader(SCHEMA),
        "writer": lambda: source.writer(SCHEMA, overwrite=False),
        "stream writer": lambda: source.streamWriter(SCHEMA, overwrite=False),
    }
    return pickled(makers[kind]())


def opened_without_ftfile(content: bytes, tmp_path: Path) -> str:
    """Return the error of an executor that has only Spark installed."""
    (tmp_path / "packages").mkdir()
    for package in ("pyspark", "py4j"):
        (found,) = importlib.import_module(package).__path__
        (tmp_path / "packages" / package).symlink_to(found)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "packages")}
    command = [sys.executable, "-S", "-c", "import pickle, sys; pickle.load(sys.stdin.buffer)"]
    return subprocess.run(command, env=environment, input=content, capture_output=True, check=False).stderr.decode()


KINDS = pytest.mark.parametrize("kind", ["source", "reader", "writer", "stream writer"])


@pytest.fixture
def path(tmp_path: Path) -> str:
    MicroBatch(str(tmp_path / "out"), {"id": "long"}).run(0, [[{"id": 1}]])
    return str(tmp_path / "out")


@KINDS
def test_the_same_ftfile_gets_the_same(kind: str, path: str) -> None:
    content = shipped(kind, path)
    # Equal texts may be one object here and two objects in the executor, or the reverse. Only a second pickle is
    # stable.
    again = pickled(pickle.loads(content))
    assert abs(len(again) - len(content)) < len(content) // 20
    assert pickled(pickle.loads(again)) == again


@KINDS
def test_another_version_is_named(kind: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = shipped(kind, path)
    monkeypatch.setattr(ftfile.core, "__version__", "0.0.9")
    with pytest.raises(RuntimeError, match=rf"{sys.executable} .* runs ftfile 0\.0\.9 from .*, and the driver "):
        pickle.loads(content)


@pytest.mark.parametrize("other", [dataclasses.make_dataclass("SinkConfig", ["path"]), None])
def test_another_build_of_the_version_is_named(other: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = shipped("stream writer", path)
    if other is None:
        monkeypatch.delattr(ftfile.writing.files.file_options, "SinkConfig")
    else:
        monkeypatch.setattr(ftfile.writing.files.file_options, "SinkConfig", other)
    with pytest.raises(
        RuntimeError, match=r"another build of ftfile .*ftfile\.writing\.files\.file_options:SinkConfig differs"
    ):
        pickle.loads(content)


def test_another_build_of_a_struct_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FtFileDataSource({"path": path, "rolling": "policy"})
    content = pickled(source.streamWriter(SCHEMA, overwrite=False))
    pickle.loads(content)
    monkeypatch.setattr(rolling_rules, "RollingSettings", msgspec.defstruct("RollingSettings", ["max_bytes"]))
    with pytest.raises(RuntimeError, match=r"ftfile\.writing\.files\.rolling_rules:RollingSettings differs"):
        pickle.loads(content)


def test_another_build_of_the_marker_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content = shipped("stream writer", path)
    monkeypatch.setattr(kind_of_directory, "DirectoryMarker", dataclasses.make_dataclass("DirectoryMarker", ["host"]))
    with pytest.raises(RuntimeError, match=r"ftfile\.log\.directory:DirectoryMarker differs"):
        pickle.loads(content)


def test_a_class_is_that_of_the_python_which_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of a Spark server runs the version that is installed on the server, not the version of the client."""
    content = pickled(FtFileDataSource)
    monkeypatch.setattr(ftfile.core, "__version__", "0.0.9")
    assert pickle.loads(content) is FtFileDataSource


@pytest.mark.slow
@KINDS
def test_a_python_without_ftfile_says_what_to_do(kind: str, path: str, tmp_path: Path) -> None:
    text = opened_without_ftfile(shipped(kind, path), tmp_path)
    assert f"cannot load the ftfile {ftfile.__version__} of the driver: No module named 'ftfile'. Install" in text
    assert "set PYSPARK_PYTHON" in text


@pytest.mark.slow
def test_a_class_that_is_registered_says_what_to_do_in_a_python_without_ftfile(tmp_path: Path) -> None:
    text = opened_without_ftfile(pickled(FtFileDataSource), tmp_path)
    assert "cannot load the ftfile" in text
    assert "of the program: No module named 'ftfile'. Install it there" in text
    assert "set PYSPARK_PYTHON" in text


@pytest.mark.parametrize("option", ["filters", "fileFormat"])
def test_an_executor_without_the_package_of_a_filter_or_format_names_it(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path,
        "rows_of_users",
        "[ftfile.filters]\nmine = rows_of_users:Filter\n[ftfile.formats]\nmine = rows_of_users:Format\n",
        EXTENSIONS,
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = FtFileDataSource({"path": str(tmp_path / "out"), option: "mine"})
    content = pickled(source.streamWriter(SCHEMA, overwrite=False))
    pickle.loads(content)
    monkeypatch.delitem(sys.modules, "rows_of_users")
    monkeypatch.setattr(sys, "path", sys.path[1:])
    with pytest.raises(
        ImportError, match=r"cannot load 'rows_of_users', whose code the driver uses: .* Install it there"
    ):
        pickle.loads(content)
