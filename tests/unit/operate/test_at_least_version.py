"""`at_least_version`: every user of a directory or store refuses it after it was restored to an older state."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile import kv
from ftfile.errors import RolledBack
from ftfile.testing.micro_batch import MicroBatch
from tests.kit.parameters import parametrize
from tests.unit.kv.stores import counting, rows
from tests.unit.writing.files.encrypted import files_of, forget_all, out, ring

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("out", "ring")

KINDS = ("clear", "encrypted")
COLUMNS = {"word": "string"}
CALLS: dict[str, Callable[[ftfile.OpenedDirectory], object]] = {
    "version": lambda directory: directory.version(),
    "to_arrow": lambda directory: directory.to_arrow(),
    "to_arrow of a version": lambda directory: directory.to_arrow(0),
    "to_batches": lambda directory: directory.to_batches().read_all(),
    "status": lambda directory: directory.status(lag=False),
    "verify": lambda directory: directory.verify(),
}


def options_of(kind: str, ring: Path) -> dict[str, str]:
    return {"encryption": "aes-gcm", "keyProvider": f"file:{ring}"} if kind == "encrypted" else {}


def query(out: str, options: dict[str, str]) -> MicroBatch:
    return MicroBatch(out, COLUMNS, {"fileFormat": "text"} | options)


def put_back(out: str, options: dict[str, str]) -> None:
    """Write three versions, and restore the directory from a copy with two versions."""
    for batch in range(3):
        query(out, options).run(batch, [[{"word": f"word {batch}"}]])
        if batch == 1:
            shutil.copytree(out, f"{out}.copy")
    replace_by_copy(out)


def rows_and_records(out: str) -> list[Path]:
    """Return all files except the files derived from records."""
    return [file for file in files_of(out) if file.parent.name in {"log", "out"} or "stage" in str(file)]


def replace_by_copy(out: str) -> None:
    shutil.rmtree(out)
    shutil.copytree(f"{out}.copy", out)
    forget_all()


def opened(out: str, options: dict[str, str], at_least_version: int | None) -> ftfile.OpenedDirectory:
    return ftfile.open(out, options.get("keyProvider"), at_least_version=at_least_version)


@pytest.mark.parametrize("kind", KINDS)
class TestDirectories:
    @pytest.mark.slow
    def test_one_that_was_put_back_is_not_opened(self, out: str, ring: Path, kind: str) -> None:
        options = options_of(kind, ring)
        put_back(out, options)
        with pytest.raises(RolledBack, match="version 1 is the newest here, but at least version 2 is expected"):
            opened(out, options, 2)
        for at_least_version in (None, 0, 1):
            words = opened(out, options, at_least_version).to_arrow()["word"].to_pylist()
            assert words == ["word 0", "word 1"]

    @parametrize("call", CALLS, quick=1)
    def test_one_that_is_put_back_while_it_is_open_is_refused(self, out: str, ring: Path, kind: str, call: str) -> None:
        options = options_of(kind, ring)
        put_back(out, options)
        query(out, options).run(2, [[{"word": "again"}]])
        directory = opened(out, options, 2)
        CALLS[call](directory)
        replace_by_copy(out)
        with pytest.raises(RolledBack, match="version 1 is the newest here"):
            CALLS[call](directory)

    @pytest.mark.slow
    def test_nothing_is_written_there(self, out: str, ring: Path, kind: str) -> None:
        options = options_of(kind, ring)
        put_back(out, options)
        before = rows_and_records(out)
        with pytest.raises(RolledBack, match="version 1 is the newest here"):
            query(out, options | {"atLeastVersion": "2"}).run(2, [[{"word": "x"}]])
        assert rows_and_records(out) == before
        query(out, options | {"atLeastVersion": "1"}).run(2, [[{"word": "x"}]])
        assert opened(out, options, 2).version() == 2


def test_a_dataset_of_one_that_was_put_back(out: str) -> None:
    for batch in range(2):
        query(out, {"fileFormat": "parquet"}).run(batch, [[{"word": "x"}]])
        if not batch:
            shutil.copytree(out, f"{out}.copy")
    directory = opened(out, {}, 1)
    assert directory.dataset().count_rows() == 2
    replace_by_copy(out)
    with pytest.raises(RolledBack):
        directory.dataset()


def test_a_new_directory_is_no_old_one(out: str) -> None:
    with pytest.raises(RolledBack, match="no version is the newest here, but at least version 0"):
        query(out, {"atLeastVersion": "0"}).run(0, [[{"word": "x"}]])


@pytest.mark.slow
def test_verify_refuses_one_whose_log_is_damaged_as_well(out: str) -> None:
    put_back(out, {})
    query(out, {}).run(2, [[{"word": "again"}]])
    directory = opened(out, {}, 2)
    for record in sorted(Path(out, "_ftfile/log").iterdir())[1:]:
        record.unlink()
    with pytest.raises(RolledBack):
        directory.verify()


class TestStores:
    @pytest.mark.slow
    def test_one_that_was_put_back(self, tmp_path: Path) -> None:
        path = str(tmp_path / "store")

        def put(batch: int, **options: str) -> None:
            counting(path, **options).run(batch, [rows("a", n=1)])

        put(0)
        shutil.copytree(path, f"{path}.copy")
        newest = kv.open(path).version
        put(1)
        known = kv.open(path).version
        assert known > newest
        with kv.open(path, at_least_version=known) as reader:
            replace_by_copy(path)
            with pytest.raises(RolledBack, match=f"version {newest} is the newest here"):
                reader.refresh()
        with pytest.raises(RolledBack, match=f"at least version {known} is expected"):
            kv.open(path, at_least_version=known)
        with pytest.raises(RolledBack, match=f"at least version {known} is expected"):
            put(1, atLeastVersion=str(known))
        assert kv.open(path, at_least_version=newest).get("a") == 1
