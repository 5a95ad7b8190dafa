"""Every format with every codec, encryption and rolling rule: written rows are read back, also after a kill."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

import ftfile
from ftfile.core.codecs import CODECS
from ftfile.core.errors import ConfigError
from ftfile.formats.api import FORMATS
from ftfile.formats.parquet_files import check_library
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH
from tests.unit.writing.files.encrypted import committed, files_of, out, parts, ring, rows_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

__all__ = ("out", "ring")


def parquet_if_it_can() -> tuple[str, ...]:
    """`encryption=parquet`, with a pyarrow that is new enough."""
    try:
        check_library()
    except ConfigError:
        return ()
    return ("parquet",)


FILTERS = ("none", *CODECS)
COMPRESSION = {
    **dict.fromkeys(("text", "json", "csv", "binary"), FILTERS),
    "parquet": ("none", "zstd", "gzip", "lz4", "snappy", "brotli"),
    "avro": ("none", "deflate", "zstd", "snappy"),
    "orc": ("none", "zstd", "snappy", "zlib"),
    "arrow": ("none", "zstd", "lz4"),
}
ENCRYPTION = ("none", "aes-gcm", *parquet_if_it_can())
ROLLING = {
    "batch": {},
    "two batches": {"maxBatchesPerFile": "2"},
    "five records": {"maxRecordsPerFile": "5", "rolling": "policy"},
    "600 bytes at most": {"maxBytesPerFile": "600", "rolling": "policy", "strictFileSize": "true"},
}
SECRET = "a secret that nobody may read"


def stream(out: str, file_format: str, codec: str, keys: dict[str, str], rolling: dict[str, str]) -> MicroBatch:
    more = {"nullValue": "-"} if file_format == "csv" else {}
    options = {"fileFormat": file_format, "compression": codec, **keys, **rolling, **more}
    return MicroBatch(out, {"word": "string"}, options)


def test_no_format_and_no_codec_is_left_out(out: str) -> None:
    assert set(COMPRESSION) == set(FORMATS)
    known = {codec for codecs in COMPRESSION.values() for codec in codecs}
    for file_format, codecs in COMPRESSION.items():
        for codec in known.difference(codecs):
            with pytest.raises(ConfigError, match="compression"):
                stream(out, file_format, codec, {}, {}).config()


@pytest.mark.parametrize(
    ("file_format", "encryption"),
    [(name, kind) for name in COMPRESSION for kind in ENCRYPTION if kind in {"none", "aes-gcm", name}],
)
@pytest.mark.parametrize("rolling", ROLLING)
def test_rows_come_back(out: str, ring: Path, file_format: str, encryption: str, rolling: str, seed: int) -> None:
    """With every codec or, in the suite, with every second one: each of them in two of the four ways of rolling."""
    keys = {} if encryption == "none" else {"encryption": encryption, "keyProvider": f"file:{ring}"}
    first = ([*ROLLING].index(rolling) + seed) % 2
    codecs = COMPRESSION[file_format]
    for codec in codecs if THOROUGH or len(codecs) == 1 else codecs[first::2]:
        path = f"{out}-{codec}"
        query = stream(path, file_format, codec, keys, ROLLING[rolling])
        words = [[f"{SECRET} {batch} {number}" for number in range(7)] for batch in range(3)]
        query.run(0, [rows_of(*words[0][:4]), rows_of(*words[0][4:])])
        query.run_tasks(1, [rows_of(*words[1][:5])])  # killed before its other task and its commit: files stay
        query.restart()
        query.run(1, [rows_of(*words[1][:2]), rows_of(*words[1][2:])])
        assert committed(path) == sorted(words[0] + words[1]), codec
        query.run(2, [rows_of(*words[2])])
        ftfile.flush(path)
        assert committed(path) == sorted(word for batch in words for word in batch), codec
        extension = query.config().format.extension + query.config().chain.extension
        assert {part.name.partition(".")[2] for part in parts(path)} == {extension.removeprefix(".")}
        if encryption != "none":
            assert {stat.S_IMODE(file.stat().st_mode) for file in files_of(path)} == {0o600}
            assert not any(SECRET.encode() in file.read_bytes() for file in files_of(path))
