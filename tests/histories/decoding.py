"""Caches decoded records, ranges and checkpoints: repeated decoding would take a fifth of a history's time."""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock

from ftfile.log.checkpoints import decode_checkpoint
from ftfile.log.format.compacted import Document, decode_compacted
from ftfile.log.format.record import decode_record
from ftfile.storage.api import RangeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.log.format.compacted import CompactedLog
    from ftfile.log.format.model import Add, Record
    from ftfile.log.state import LogState
    from ftfile.storage.api import InputFile


def decode_once(content: bytes, path: str, read_companion: Callable[[str], bytes]) -> Record:
    """Decode a record as `decode_record` does, without the cache if it has a companion, which may be missing."""
    return decode_record(content, path, read_companion) if b'"companion"' in content else _decoded(content, path)


@cache
def _decoded(content: bytes, path: str) -> Record:
    return decode_record(content, path, _no_companion)


def _no_companion(companion: str) -> bytes:
    raise AssertionError(companion)


_adds_of = Document.adds


def _decode_adds_once(document: Document, ids: Sequence[str]) -> Iterator[Add]:
    """Yield the adds of a range's document as `Document.adds` does."""
    return iter(_adds(tuple(ids), tuple(document.columns.items()), document.path))


@cache
def _adds(ids: tuple[str, ...], columns: tuple[tuple[str, bytes], ...], path: str) -> tuple[Add, ...]:
    return tuple(_adds_of(Document(len(ids), dict(columns), path), ids))


def _decode_range_once(file: InputFile, path: str, *, ended: bool | None, statistics: bool = False) -> CompactedLog:
    """Read a range as `decode_compacted` does."""
    return _range(file.read_at(0, file.size_bytes), path, ended, statistics)


@cache
def _range(content: bytes, path: str, ended: bool | None, statistics: bool) -> CompactedLog:
    return decode_compacted(RangeFile.of_content(path, content), path, ended=ended, statistics=statistics)


@cache
def _decode_checkpoint_once(content: bytes, path: str) -> LogState:
    """Decode a checkpoint as `decode_checkpoint` does. A shared result is safe, because states are never changed."""
    return decode_checkpoint(content, path)


_ONCE: dict[Callable[..., Any], Callable[..., Any]] = {
    decode_record: decode_once,
    decode_compacted: _decode_range_once,
    decode_checkpoint: _decode_checkpoint_once,
}


@contextlib.contextmanager
def decoded_once() -> Iterator[None]:
    """Decode each record, range and checkpoint once within the block, in all modules that read them."""
    with contextlib.ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            for decode, once in _ONCE.items() if name.startswith("ftfile.") else ():
                if vars(module).get(decode.__name__) is decode:
                    stack.enter_context(mock.patch.object(module, decode.__name__, once))
        stack.enter_context(mock.patch.object(Document, "adds", _decode_adds_once))
        stack.callback(_decoded.cache_clear)
        stack.callback(_adds.cache_clear)
        stack.callback(_range.cache_clear)
        stack.callback(_decode_checkpoint_once.cache_clear)
        yield
