"""`encryption=parquet`: finished files that other readers of Parquet decrypt, and everything else as ever."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ftfile
from ftfile.core.errors import ConfigError, CorruptData
from ftfile.testing.checker import check_directory
from tests.unit.writing.files.encrypted import (
    FIRST,
    SECOND,
    committed,
    files_of,
    out,
    parts,
    ring,
    rows_of,
    stream,
    words_in,
    write_ring,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from ftfile.testing.micro_batch import MicroBatch

pytestmark = pytest.mark.contents

pe: Any = pytest.importorskip("pyarrow.parquet.encryption")
if not hasattr(pe.EncryptionConfiguration, "uniform_encryption"):
    pytest.skip("this pyarrow cannot encrypt all of a file", allow_module_level=True)

__all__ = ("out", "ring")

SECRET = "a secret that nobody may read"


class Kms(pe.KmsClient):  # type: ignore[misc] # pyarrow has no types
    """Another reader: the keys, and parquet-hadoop's way of wrapping with them; no line of ftfile is used."""

    def __init__(self, **keys: bytes) -> None:
        pe.KmsClient.__init__(self)
        self._keys = keys

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        data = base64.b64decode(wrapped_key)
        key = self._keys[master_key_identifier]
        return AESGCM(key).decrypt(data[:12], data[12:], master_key_identifier.encode())


def read_by_pyarrow(content: bytes, **keys: bytes) -> list[str]:
    factory = pe.CryptoFactory(lambda _: Kms(**keys))
    decryption = factory.file_decryption_properties(pe.KmsConnectionConfig(), pe.DecryptionConfiguration())
    words: list[str] = pq.ParquetFile(io.BytesIO(content), decryption_properties=decryption).read()["word"].to_pylist()
    return words


def encrypted(out: str, ring: Path, **options: str) -> MicroBatch:
    return stream(out, ring, **({"fileFormat": "parquet", "encryption": "parquet"} | options))


def words_of(content: bytes) -> Iterable[Hashable]:
    return read_by_pyarrow(content, first=FIRST) if content[:4] == b"PARE" else words_in(content)


@pytest.mark.slow
@pytest.mark.packages
@pytest.mark.parametrize("rolling", [{}, {"maxBatchesPerFile": "2"}, {"maxRecordsPerFile": "5", "rolling": "policy"}])
@pytest.mark.parametrize("codec", ["none", "zstd", "snappy"])
def test_every_codec_and_rolling(out: str, ring: Path, codec: str, rolling: dict[str, str]) -> None:
    query = encrypted(out, ring, compression=codec, **rolling)
    words: list[str] = []
    for batch in range(4):
        new = [f"{SECRET} {batch} {number}" for number in range(7)]
        words += new
        query.run(batch, [rows_of(*new[:4]), rows_of(*new[4:])])
        assert committed(out) == sorted(words)
        query.restart()
    check_directory(ftfile.open(out).file_system, rows_of=words_of)
    ftfile.flush(out)
    assert sorted(word for part in parts(out) for word in read_by_pyarrow(part.read_bytes(), first=FIRST)) == words
    ftfile.compact(out)
    assert committed(out) == sorted(words)
    assert sorted(word for part in parts(out) for word in read_by_pyarrow(part.read_bytes(), first=FIRST)) == words
    for file in files_of(out):
        assert SECRET.encode() not in file.read_bytes()
        assert file.stat().st_mode & 0o777 == 0o600


def test_spools_and_dead_letters_have_envelopes(out: str, ring: Path) -> None:
    encrypted(out, ring, rolling="policy").run(0, [rows_of(SECRET)])
    (spool,) = files_of(out, "_ftfile/staged")
    assert spool.read_bytes()[:3] == b"FTE"


@pytest.mark.slow
def test_nobody_reads_without_the_key(out: str, ring: Path) -> None:
    encrypted(out, ring).run(0, [rows_of("some")])
    content = parts(out)[0].read_bytes()
    with pytest.raises(OSError, match="encrypted"):
        pq.read_table(pa.BufferReader(content))
    write_ring(ring, first=SECOND)
    with pytest.raises(CorruptData):
        committed(out)


@pytest.mark.slow
def test_files_that_changed_places_are_detected(out: str, ring: Path) -> None:
    query = encrypted(out, ring)
    by_length: dict[int, list[Path]] = {}
    for batch in range(9):  # checksums of encrypted pages are a byte longer or shorter
        query.run(batch, [rows_of("some")])
    for part in parts(out):
        by_length.setdefault(part.stat().st_size, []).append(part)
    first, second = max(by_length.values(), key=len)[:2]
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    with pytest.raises(CorruptData, match=r"the encrypted Parquet file 'part [0-9a-f]{12}@0', found the file"):
        committed(out)


@pytest.mark.slow
def test_a_file_in_the_clear_in_its_place_is_detected(out: str, ring: Path) -> None:
    encrypted(out, ring).run(0, [rows_of("some")])
    (part,) = parts(out)
    length = part.stat().st_size
    table, identity = pa.table({"word": ["forged"]}), f"part {part.name.partition('.')[0].rpartition('-')[2]}@0"
    for padding in range(length):
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, table.schema, store_schema=False) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({"ftfile.identity": identity, "padding": "x" * padding})
        if len(sink.getvalue()) == length:
            break
    assert len(sink.getvalue()) == length
    for start in (b"PAR1", b"PARE"):
        part.write_bytes(start + sink.getvalue()[4:])
        with pytest.raises(CorruptData, match="found an unencrypted or incomplete file"):
            committed(out)


@pytest.mark.slow
@pytest.mark.packages
def test_every_changed_byte_is_detected_but_those_that_no_reader_looks_at(out: str, ring: Path) -> None:
    encrypted(out, ring).run(0, [rows_of("some", "words")])
    (part,) = parts(out)
    content, directory = part.read_bytes(), ftfile.open(out)
    start = content.index(b'"kmsInstanceURL":"DEFAULT"') + len('"kmsInstanceURL":"')
    unused = range(start, start + len("DEFAULT"))
    for place in range(len(content)):
        part.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        if place in unused:
            assert directory.to_arrow()["word"].to_pylist() == ["some", "words"]
        else:
            with pytest.raises((CorruptData, ConfigError)):
                directory.to_arrow()
    for end in range(len(content)):
        part.write_bytes(content[:end])
        with pytest.raises(CorruptData):
            directory.to_arrow()


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_pages_that_would_not_be_authenticated_are_not_read(out: str, ring: Path, codec: str) -> None:
    encrypted(out, ring, compression=codec).run(0, [rows_of("some", "words")])
    (part,) = parts(out)
    content = part.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    part.write_bytes(content[: start + 1] + b"\x2c" + content[start + 2 :])  # AES_GCM_CTR_V1
    with pytest.raises(CorruptData, match=r"/?part-.* is corrupt: expected a Parquet file encrypted by AES_GCM_V1"):
        committed(out)


def test_another_key_ends_open_files(out: str, ring: Path) -> None:
    write_ring(ring, first=FIRST, second=SECOND)
    encrypted(out, ring, rolling="policy", encryptionKeyId="first").run(0, [rows_of("old")])
    other = encrypted(out, ring, rolling="policy", encryptionKeyId="second")
    for batch in (1, 2):
        other.run(batch, [rows_of("new")])
    (part,) = parts(out)
    assert read_by_pyarrow(part.read_bytes(), first=FIRST) == ["old"]
    assert committed(out) == ["new", "new", "old"]


def test_other_formats_are_refused(out: str, ring: Path) -> None:
    with pytest.raises(ConfigError, match="encryption=parquet is only for fileFormat=parquet, and fileFormat is json"):
        encrypted(out, ring, fileFormat="json").config()


@pytest.mark.slow
def test_from_files_to_envelopes_and_back(out: str, ring: Path) -> None:
    for batch, kind in enumerate(["parquet", "aes-gcm", "parquet"]):
        encrypted(out, ring, encryption=kind, rolling="policy").run(batch, [rows_of(kind)])
    ftfile.flush(out)
    assert sorted(path.suffix for path in parts(out)) == [".enc", ".parquet", ".parquet"]
    assert committed(out) == ["aes-gcm", "parquet", "parquet"]


def test_names_are_as_of_any_parquet(out: str, ring: Path) -> None:
    encrypted(out, ring, compression="snappy").run(0, [rows_of("some")])
    assert Path(parts(out)[0]).name.endswith(".snappy.parquet")
