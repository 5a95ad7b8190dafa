"""Stores of words and counts in memory, and their contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile import kv
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import current, open_filesystem
from ftfile.testing.micro_batch import StoreBatch

if TYPE_CHECKING:
    from ftfile.log.format.model import Add

__all__ = ("COLUMNS", "PATH", "counts", "damage", "rows_of", "runs_of")

PATH = "memory://upkeep/store"
COLUMNS = {"word": "string", "n": "long"}


def counts(path: str = PATH, **options: str) -> StoreBatch:
    return StoreBatch(path, COLUMNS, {"keyColumns": "word", "merge": "n:sum"} | options)


def rows_of(path: str, version: int | None = None) -> dict[str, int]:
    with kv.open(path, version=version, context=current()) as store:
        found = [batch.to_pydict() for batch in store.scan()]
    return {word: n for batch in found for word, n in zip(batch["word"], batch["n"], strict=True)}


def runs_of(path: str) -> int:
    return len(CommitLog(open_filesystem(path)).refresh().segments)


def damage(path: str, add: Add) -> None:
    fs = open_filesystem(path)
    content = bytearray(fs.read(add.path))
    content[add.offset + add.length // 2] ^= 1
    fs.put(add.path, bytes(content))
