"""Encrypted directories for tests: a key ring, a stream, and the files on storage."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.filters.keys import forget_keys
from ftfile.formats.api import format_from_options
from ftfile.formats.columnar import RowSegments
from ftfile.testing.checker import check_directory
from ftfile.testing.micro_batch import MicroBatch
from ftfile.writing.files.file_writer import forget_caches

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

    from ftfile.log.read.snapshot import Snapshot

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
SCHEMA = pa.schema([("word", pa.string())])
_STARTS = {"parquet": b"PAR1", "avro": b"Obj\x01", "orc": b"ORC", "arrow": b"ARROW1"}


def ring_text(**keys: bytes) -> str:
    return "".join(f"{key_id} {base64.b64encode(key).decode()}\n" for key_id, key in keys.items())


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Path]:
    """A key file with one key, `first`."""
    path = tmp_path / "keys"
    write_ring(path, first=FIRST)
    yield path
    forget_all()


@pytest.fixture
def out(tmp_path: Path) -> str:
    return str(tmp_path / "out")


def write_ring(path: Path, **keys: bytes) -> None:
    path.write_text(ring_text(**keys))
    path.chmod(0o600)
    forget_all()


def forget_all() -> None:
    """As a new process would start."""
    forget_keys()
    forget_caches()


def stream(out: str, ring: Path, query_id: str = "a", **options: str) -> MicroBatch:
    known = {"fileFormat": "text", "encryption": "aes-gcm", "keyProvider": f"file:{ring}"}
    return MicroBatch(out, {"word": "string"}, known | options, query_id)


def rows_of(*words: str) -> list[dict[str, Any]]:
    return [{"word": word} for word in words]


def committed(out: str, version: int | None = None) -> list[str]:
    forget_all()
    return sorted(ftfile.open(out).to_arrow(version)["word"].to_pylist())


def files_of(out: str, under: str = "") -> list[Path]:
    return sorted(path for path in (Path(out) / under).rglob("*") if path.is_file())


def parts(out: str) -> list[Path]:
    return [path for path in files_of(out) if "_ftfile" not in path.parts]


def snapshot(out: str) -> Snapshot:
    return ftfile.open(out).snapshot()


def words_in(content: bytes) -> Iterable[Hashable]:
    """The rows of a part, or of a segment, of any format."""
    if (name := next((name for name, start in _STARTS.items() if content.startswith(start)), None)) is not None:
        batches = format_from_options(name, {}).decode(io.BytesIO(content), SCHEMA)
        return [word for batch in batches for word in batch.column("word").to_pylist()]
    if content[:4] == b"\xff\xff\xff\xff":
        batches = RowSegments(SCHEMA).decode(content, "segment", SCHEMA)
        return [word for batch in batches for word in batch.column("word").to_pylist()]
    return [line for line in content.splitlines() if line != b"word"]


def check(out: str) -> None:
    check_directory(ftfile.open(out).file_system, rows_of=words_in)
