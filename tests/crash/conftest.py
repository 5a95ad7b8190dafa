"""Caches decoded records, checkpoints and parsed settings: with them, thousands of recoveries take a minute."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pytest

from ftfile.log import checkpoints, records
from ftfile.log.format.record import decode_record
from tests.settings import settled_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.log.format.model import Record

KEPT = 10_000


@lru_cache(KEPT)
def _decoded(content: bytes, path: str) -> Record:
    def no_companion(companion: str) -> bytes:
        raise AssertionError(companion)

    return decode_record(content, path, no_companion)


def _decode_once(content: bytes, path: str, read_companion: Callable[[str], bytes]) -> Record:
    """Decode a record, without the cache if it has a companion, because the companion may be missing."""
    return decode_record(content, path, read_companion) if b'"companion"' in content else _decoded(content, path)


# Not session-wide: other tests of this process may need the same settings in another environment.
@pytest.fixture(autouse=True, scope="module")
def made_once() -> Iterator[None]:
    from ftfile.testing import log_check

    with pytest.MonkeyPatch.context() as patch, settled_once():
        for module in (records, log_check):
            patch.setattr(module, "decode_record", _decode_once)
        decode_checkpoint = lru_cache(KEPT)(checkpoints.decode_checkpoint)
        for module in (checkpoints, log_check):
            patch.setattr(module, "decode_checkpoint", decode_checkpoint)
        yield
