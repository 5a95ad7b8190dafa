"""The work that Spark's worker processes skip, and that programs of users still do."""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import sys
import zipfile
from types import ModuleType
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pytest
from pyspark.sql.types import LongType, StructType

from ftfile.core.per_process import PerProcess
from ftfile.spark.datasource import FtFileDataSource
from ftfile.spark.workers import tuning as worker
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_modules = (f"made_{number}" for number in itertools.count())


def write(directory: Path) -> None:
    source = FtFileDataSource({"path": str(directory), "fileFormat": "parquet"})
    source.streamWriter(StructType().add("n", LongType()), overwrite=False)


def read(directory: Path) -> None:
    source = FtFileDataSource({"path": str(directory)})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    assert len([*reader.read(partition)]) == 1


@parametrize("use", [write, read], quick=1)
@pytest.mark.parametrize(("in_worker", "frozen_after"), [(True, [0, 1, 1, 2]), (False, [0, 0, 0, 0])])
def test_what_a_use_of_a_worker_has_imported_is_frozen_at_the_next(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    use: Callable[[Path], None],
    in_worker: bool,
    frozen_after: list[int],
) -> None:
    MicroBatch(str(tmp_path), {"n": "long"}).run(0, [[{"n": 1}]])
    use(tmp_path)  # imports the modules
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    monkeypatch.setattr(worker, "_frozen", PerProcess(list))
    monkeypatch.setattr(worker, "is_worker", lambda: in_worker)
    found = []
    for number in range(len(frozen_after)):
        use(tmp_path)
        found.append(len(frozen))
        if number == 2:
            monkeypatch.setitem(sys.modules, next(_modules), ModuleType("made"))
    assert found == frozen_after


def write_archive(path: Path, *names: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"{name}.py", f"NAME = {name!r}")


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return an archive of one module that is on the path of a worker of Spark 4.0."""
    monkeypatch.setattr(worker, "is_worker", lambda: True)
    monkeypatch.setattr(worker, "spark_version", "4.0.5")
    monkeypatch.setattr(zipimporter, "invalidate_caches", zipimporter.invalidate_caches)  # restored after the test
    path = tmp_path / "modules.zip"
    write_archive(path, "archived_first")
    monkeypatch.syspath_prepend(str(path))
    assert importlib.import_module("archived_first").NAME == "archived_first"
    return path


def count_reads(monkeypatch: pytest.MonkeyPatch, archive: Path) -> list[str]:
    reads: list[str] = []
    read_archive = zipimporter.invalidate_caches

    def counted(importer: zipimporter) -> None:
        if importer.archive == str(archive):
            reads.append(importer.archive)
        read_archive(importer)

    monkeypatch.setattr(worker, "_read_archive", counted)
    return reads


def test_the_directory_of_an_archive_is_read_again_only_after_a_change(
    monkeypatch: pytest.MonkeyPatch, archive: Path
) -> None:
    reads = count_reads(monkeypatch, archive)
    worker.tune_worker()
    for _ in range(3):
        importlib.invalidate_caches()
    assert len(reads) == 1
    info = archive.stat()
    write_archive(archive, "archived_other")
    assert archive.stat().st_size == info.st_size
    importlib.invalidate_caches()
    assert importlib.import_module("archived_other").NAME == "archived_other"
    write_archive(archive, "archived_other", "archived_third")
    os.utime(archive, ns=(info.st_atime_ns, info.st_mtime_ns))
    importlib.invalidate_caches()
    assert importlib.import_module("archived_third").NAME == "archived_third"
    assert len(reads) == 3
    archive.unlink()
    for _ in range(2):
        importlib.invalidate_caches()
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("archived_fourth")
    write_archive(archive, "archived_fourth")
    importlib.invalidate_caches()
    assert importlib.import_module("archived_fourth").NAME == "archived_fourth"
    assert len(reads) == 5


@pytest.mark.parametrize(
    ("in_worker", "version"), [(False, "4.0.5"), (False, "4.1.4"), (True, "4.2.1"), (True, "4.3.0"), (True, "4.10.0")]
)
def test_python_is_as_it_was_in_programs_of_users_and_in_newer_sparks(
    monkeypatch: pytest.MonkeyPatch, archive: Path, in_worker: bool, version: str
) -> None:
    monkeypatch.setattr(worker, "is_worker", lambda: in_worker)
    monkeypatch.setattr(worker, "spark_version", version)
    invalidate_caches = zipimporter.invalidate_caches
    worker.tune_worker()
    assert zipimporter.invalidate_caches is invalidate_caches
    assert archive.exists()
