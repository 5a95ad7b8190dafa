"""Records that were decoded already are not decoded again: a fifth of a history would be that."""

from __future__ import annotations

import contextlib
import sys
from functools import lru_cache
from typing import TYPE_CHECKING
from unittest import mock

from ftfile.commit.format.record import decode_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.commit.format.model import Record

__all__ = ("decode_once", "decoded_once")

_KEPT = 10_000


def decode_once(content: bytes, path: str, read_companion: Callable[[str], bytes]) -> Record:
    """Decode a record as `decode_record` does; what has a companion, which may be missing, each time."""
    return decode_record(content, path, read_companion) if b'"companion"' in content else _decoded(content, path)


@lru_cache(_KEPT)
def _decoded(content: bytes, path: str) -> Record:
    return decode_record(content, path, _no_companion)


def _no_companion(companion: str) -> bytes:
    raise AssertionError(companion)


@contextlib.contextmanager
def decoded_once() -> Iterator[None]:
    """Within the block, all modules that read records have `decode_once` instead of `decode_record`."""
    readers = [
        module
        for name, module in sys.modules.items()
        if name.startswith("ftfile.") and name not in {__name__, decode_record.__module__}
        if vars(module).get("decode_record") is decode_record
    ]
    with contextlib.ExitStack() as stack:
        for module in readers:
            stack.enter_context(mock.patch.object(module, "decode_record", decode_once))
        yield
