"""Files that ftfile has encrypted, read without their log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import ConfigError, CorruptData
from ftfile.read.foreign.decoding.settings import FileDecoding
from tests.unit.read.foreign.planned import Files
from tests.unit.write.files.encrypted import SCHEMA, out, parts, ring, rows_of, stream

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("out", "ring")

WORDS = [f"word {number}" for number in range(20_000)]


def written(out: str, ring: Path, tmp_path: Path, **options: str) -> tuple[Files, Path]:
    stream(out, ring, **options).run(0, [rows_of(*WORDS)])
    [part] = parts(out)
    files = Files(tmp_path / "foreign")
    files.write(part.name, part.read_bytes())
    return files, files.root / part.name


def words(files: Files, name: str, ring: Path | None, **fields: Any) -> list[str]:
    key_provider = None if ring is None else f"file:{ring}"
    rows = files.rows(files.whole(name), SCHEMA, FileDecoding(**fields, key_provider=key_provider))
    return [row[0] for row in rows]


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("file_format", ["text", "json", "parquet", "arrow"])
def test_with_its_name_and_the_keys_a_file_is_read(
    out: str, ring: Path, tmp_path: Path, file_format: str, compression: str
) -> None:
    codec = {} if file_format in {"parquet", "arrow"} else {"compression": compression}
    files, file = written(out, ring, tmp_path, fileFormat=file_format, **codec)
    assert file.name.endswith(".enc")
    assert words(files, file.name, ring, file_format=file_format) == WORDS
    renamed = file.rename(files.root / f"copied-{file.name.rpartition('-')[2]}")
    assert words(files, renamed.name, ring, file_format=file_format) == WORDS


def test_without_keys_or_with_another_name_it_is_refused(out: str, ring: Path, tmp_path: Path) -> None:
    files, file = written(out, ring, tmp_path)
    with pytest.raises(ConfigError, match="keyProvider"):
        words(files, file.name, None, file_format="text")
    other = file.rename(files.root / "other.txt.enc")
    with pytest.raises(CorruptData, match="encrypted file"):
        words(files, other.name, ring, file_format="text")


def test_an_end_that_was_cut_off_is_damage(out: str, ring: Path, tmp_path: Path) -> None:
    files, file = written(out, ring, tmp_path)
    content = file.read_bytes()
    for size in (len(content) - 1, len(content) - 100_000, 10):
        file.write_bytes(content[:size])
        with pytest.raises(CorruptData, match="encrypted file"):
            words(files, file.name, ring, file_format="text")
        kept = words(files, file.name, ring, file_format="text", ignore_corrupt_files=True)
        assert kept == WORDS[: len(kept)]
