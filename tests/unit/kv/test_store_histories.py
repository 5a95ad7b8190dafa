"""Random histories of whole stores: K1 to K8 hold at any moment, and rows equal a dict."""

from __future__ import annotations

import logging
import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.crash.share import THOROUGH
from tests.unit.kv.whole_store import play

if TYPE_CHECKING:
    from collections.abc import Iterator

HISTORIES = int(os.environ.get("FTFILE_STORE_HISTORIES", "100" if THOROUGH else "20"))
AT_ONCE = 10


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Merges that are dropped would fill the report."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(0, HISTORIES, AT_ONCE))
def test_rows_are_those_of_a_dict(place: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(place, min(place + AT_ONCE, HISTORIES)):
        try:
            counts += play(seed).counts
        except BaseException:
            print(f"seed {seed}")
            raise
    if place + AT_ONCE <= HISTORIES:
        wanted = {"batch", "overlapping", "purge", "under_way", "vacuum", "read", "lost", "replayed"}
        assert counts.keys() >= wanted, wanted - counts.keys()
