"""Python writes to an existing directory: options of stored files have the values of the newest rows."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import ftfile
from ftfile.core.errors import ConfigError
from ftfile.operate.writers.recorded_options import with_recorded
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.writing.files.encrypted import forget_all, out, ring

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("out", "ring")

COLUMNS = {"id": "long", "day": "string"}
SECRET = b"a-secret-text"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": [*ids], "day": [f"d{number % 2}" for number in ids]})


def files(out: str) -> list[Path]:
    """Return the visible files of the newest version."""
    return sorted(Path(out, file.path) for file in ftfile.open(out, context=current()).files())


def committed(out: str, data: pa.Table, **options: Any) -> None:
    with ftfile.writer(out, "app", context=current(), **options) as writer:
        writer.write(data)
        writer.commit(1)


def written(out: str, data: pa.Table, **options: Any) -> None:
    ftfile.write(out, data, context=current(), **options)


BOTH: list[Callable[..., None]] = [written, committed]


@pytest.mark.parametrize("add", BOTH)
def test_python_uses_the_options_of_a_query(add: Callable[..., None], out: str) -> None:
    options = {
        "fileFormat": "csv",
        "header": "true",
        "sep": ";",
        "compression": "gzip",
        "partitionBy": "day",
        "nullValue": "-",
    }
    MicroBatch(out, COLUMNS, options).run(0, [[{"id": 1, "day": "d1"}]])
    add(out, rows(2, 3))
    found = []
    for path in files(out):
        assert path.parent.name in {"day=d0", "day=d1"}
        found += [
            row["id"] for row in csv.DictReader(gzip.decompress(path.read_bytes()).decode().splitlines(), delimiter=";")
        ]
    assert sorted(found) == ["1", "2", "3"]
    check_directory(open_filesystem(out))


def test_rows_are_replaced_with_the_same_options(out: str) -> None:
    ftfile.write(out, rows(1, 2), file_format="parquet", partition_by=["day"], compression="zstd", context=current())
    for mode in ("dynamic", "overwrite"):
        ftfile.write(out, rows(4, 6), mode=mode, context=current())
        assert {path.parent.name for path in files(out)} == ({"day=d0", "day=d1"} if mode == "dynamic" else {"day=d0"})
    ftfile.write(out, rows(7), mode="overwrite", partition_by=[], context=current())
    (path,) = files(out)
    assert path.parent == Path(out)
    assert ds.dataset(path).to_table().to_pylist() == [{"id": 7, "day": "d1"}]
    with pytest.raises(ConfigError, match="written without partitionBy"):
        ftfile.write(out, rows(8), partition_by="day", context=current())


@pytest.mark.parametrize("encryption", ["aes-gcm", "parquet"])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("add", BOTH)
def test_an_encrypted_directory_stays_encrypted(
    add: Callable[..., None], mode: str, encryption: str, out: str, ring: Path
) -> None:
    data = pa.table({"id": [1], "day": [SECRET.decode()]})
    options = {"mode": mode} if add is written else {}
    provider = f"file:{ring}"
    written(out, data, encryption=encryption, key_provider=provider)
    before = files_below(out)
    forget_all()
    with pytest.raises(ConfigError, match="key"):
        add(out, data, **options)
    assert files_below(out) == before
    add(out, data, key_provider=provider, **options)
    assert files_below(out) != before
    assert not [path for path in files_below(out) if SECRET in path.read_bytes()]
    directory = ftfile.open(out, key_provider=provider, context=current())
    assert directory.to_arrow().column("day").to_pylist() == [SECRET.decode()] * (
        1 if options.get("mode") == "overwrite" else 2
    )


def files_below(out: str) -> set[Path]:
    return {path for path in Path(out).rglob("*") if path.is_file()}


def test_options_of_the_directory_are_repeated() -> None:
    """A recorded level of compression and settings of a format are only for the same codec and format."""
    encoding = {
        "format": {"name": "csv", "header": True, "sep": ",", "nullValue": ""},
        "filters": [{"name": "mine"}, {"name": "gzip", "level": 3}, {"name": "aes-gcm", "keyId": "k"}],
        "partitionBy": ["day"],
        "timeZone": "Asia/Kathmandu",
        "fileName": {"column": "file", "directoriesAbove": 1},
    }
    directory = {
        "file_format": "csv",
        "partition_by": ["day"],
        "time_zone": "Asia/Kathmandu",
        "file_name_column": "file",
        "encryption": "aes-gcm",
        "encryption_key_id": "k",
    }
    of_format = {"header": True, "filters": ["mine"], "compression": "gzip"}
    recorded = with_recorded({"file_format": None, "partition_by": None}, encoding)
    assert recorded == directory | of_format | {"compression_level": 3}
    for given_option, kept in (
        ({"compression": "zstd"}, of_format),
        ({"file_format": "json"}, {}),
        ({"partition_by": []}, of_format | {"compression_level": 3}),
    ):
        assert with_recorded(given_option, encoding) == directory | kept | given_option
