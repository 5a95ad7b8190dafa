"""Python writes to an existing directory: options of stored files have the values of the newest rows."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import ftfile
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.core.options.parsing import parse_options
from ftfile.core.options.typed import SinkOptions
from ftfile.log.format import layout
from ftfile.operate.writers.named_options import option_texts
from ftfile.rows import kernels as pc
from ftfile.testing.checker import check_directory
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import MicroBatch, StoreBatch
from ftfile.writing.files.recorded_options import recorded_options
from tests.unit.writing.files.encrypted import FIRST, SECOND, forget_all, out, ring, write_ring

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
    """Return all files except hints, which may be missing."""
    return {path for path in Path(out).rglob("*") if path.is_file() and path.parent != Path(out, layout.HINTS)}


def recorded(encoding: dict[str, Any], **options: Any) -> dict[str, object]:
    checked = parse_options(option_texts(options, None, {}), SinkOptions)
    return recorded_options({*options}, checked, encoding)


def test_options_of_the_directory_are_repeated() -> None:
    """Settings of a format are for the same format, a level of compression for the same codec, a key for the kind."""
    encoding = {
        "format": {"name": "csv", "header": True, "sep": ",", "nullValue": "", "timeZone": "Asia/Kathmandu"},
        "filters": [{"name": "mine"}, {"name": "gzip", "level": 3}, {"name": "aes-gcm", "keyId": "k"}],
        "partitionBy": ["day"],
        "timeZone": "Europe/Berlin",
        "fileName": {"column": "file", "directoriesAbove": 1},
    }
    directory = {"file_format": "csv", "partition_by": ["day"], "file_name_column": "file"}
    key = {"encryption": "aes-gcm", "encryption_key_id": "k"}
    of_format = {"header": True, "filters": ["mine"], "time_zone": "Asia/Kathmandu"}
    codec = {"compression": "gzip", "compression_level": 3}
    everything = directory | key | of_format | codec

    def without(*names: str) -> dict[str, object]:
        return {name: value for name, value in everything.items() if name not in names}

    assert recorded(encoding) == everything
    assert recorded(encoding, compression="zstd") == without("compression", "compression_level")
    assert recorded(encoding, compression="GZIP") == without("compression")
    assert recorded(encoding, file_format=" CSV") == without("file_format")
    assert recorded(encoding, file_format="json") == without("file_format", *of_format, *codec)
    assert recorded(encoding, encryption="none") == without("encryption", "encryption_key_id")
    assert recorded(encoding, encryption="aes-gcm") == without("encryption")
    assert recorded(encoding, partition_by=[], filters=[]) == without("partition_by", "filters")


@pytest.mark.parametrize(
    ("framing", "expected"),
    [
        ({"delimiter": r"\x00|"}, b"a\nb\0|c\nd\0|"),
        ({"lengthPrefix": "int32"}, b"\0\0\0\3a\nb\0\0\0\3c\nd"),
    ],
    ids=["delimiter", "length"],
)
def test_records_of_binary_files_have_the_framing_of_a_query(
    framing: dict[str, str], expected: bytes, out: str
) -> None:
    query = MicroBatch(out, {"v": "binary"}, {"fileFormat": "binary"} | framing)
    query.run(0, [[{"v": b"a\nb"}]])
    written(out, pa.table({"v": [b"c\nd"]}))
    assert b"".join(path.read_bytes() for path in files(out)) == expected
    written(out, pa.table({"v": [b"e"]}), mode="overwrite", delimiter="!")
    assert [path.read_bytes() for path in files(out)] == [b"e!"]


class Doubled:
    """An encoder."""

    def __init__(self, options: Any) -> None: ...

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        return pc.binary_join_element_wise(batch.column(0), batch.column(0), b"")


def test_the_caller_names_an_encoder(out: str) -> None:
    encoder = f"{__name__}:{Doubled.__name__}"
    data = pa.table({"v": [b"ab"]})
    written(out, data, file_format="binary", length_prefix="int32", encoder=encoder)
    with pytest.raises(ConfigError, match=f"encoded by the class '{encoder}', which this call does not name"):
        written(out, data)
    written(out, data, encoder=encoder)
    assert [path.read_bytes() for path in files(out)] == [b"\0\0\0\4abab"] * 2


def test_times_in_files_have_the_zone_of_other_files_of_a_query(out: str) -> None:
    """Names of directories have the zone of the session, and texts in files have UTC."""
    columns = {"id": "long", "at": "timestamp", "of": "timestamp"}
    options = {"fileFormat": "json", "partitionBy": "of", "timestampFormat": "yyyy-MM-dd HH:mm"}
    at = datetime.datetime(2024, 7, 1, 23, 30, tzinfo=datetime.timezone.utc)
    row = {"id": 1, "at": at, "of": at}
    MicroBatch(out, columns, options, time_zone="Europe/Berlin").run(0, [[row]])
    types = pa.timestamp("us", "UTC")
    written(out, pa.Table.from_pylist([row], pa.schema([("id", pa.int64()), ("at", types), ("of", types)])))
    (first, second) = files(out)
    assert first.parent == second.parent
    assert first.parent.name.startswith("of=2024-07-02 01%3A30")
    assert json.loads(first.read_bytes()) == json.loads(second.read_bytes()) == {"id": 1, "at": "2024-07-01 23:30"}


def test_a_store_is_refused(out: str) -> None:
    StoreBatch(out, {"id": "long", "v": "string"}, {"keyColumns": "id"}).run(0, [[{"id": 1, "v": "a"}]])
    for add in BOTH:
        with pytest.raises(ConfigError, match="is a store of keys and values"):
            add(out, rows(1))


def test_a_lost_format_file_is_the_error(out: str, ring: Path) -> None:
    written(out, rows(1), encryption="aes-gcm", key_provider=f"file:{ring}")
    forget_all()
    Path(out, layout.FORMAT_FILE).unlink()
    for add in BOTH:
        with pytest.raises(CorruptData, match=layout.FORMAT_FILE):
            add(out, rows(2), key_provider=f"file:{ring}")


def test_the_recorded_key_of_several_keys_is_used(out: str, ring: Path) -> None:
    write_ring(ring, first=FIRST, second=SECOND)
    written(out, rows(1), encryption="aes-gcm", encryption_key_id="second", key_provider=f"file:{ring}")
    for options in ({}, {"encryption": "aes-gcm"}):
        written(out, rows(2), key_provider=f"file:{ring}", **options)
    write_ring(ring, second=SECOND)
    assert ftfile.open(out, key_provider=f"file:{ring}", context=current()).to_arrow().num_rows == 3
    with pytest.raises(ConfigError, match=r"^keyProvider without encryption"):
        written(out, rows(3), encryption="none", key_provider=f"file:{ring}")
