"""Every line says which query and batch it speaks of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.logs import get_logger, log_context

if TYPE_CHECKING:
    import pytest


def test_lines_carry_query_and_batch(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("ftfile.test")
    with log_context(query="q1", batch=7):
        log.warning("inside %d", 1)
    with log_context(job="j"):
        log.warning("a job")
    log.warning("outside")
    assert [record.getMessage() for record in caplog.records] == [
        "[query q1 batch 7] inside 1",
        "[job j] a job",
        "[-] outside",
    ]
