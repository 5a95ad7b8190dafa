"""Maintenance goes by the settings of the newest write, also when an earlier one had the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ftfile import kv
from ftfile.kv.driver import how_written
from ftfile.log.commit_log import CommitLog
from ftfile.testing.context import current, open_filesystem
from tests.kit.parameters import parametrize
from tests.unit.kv.upkeep.stores import PATH, counts

if TYPE_CHECKING:
    from collections.abc import Callable


def by_stream(number: int, options: dict[str, str]) -> None:
    query = counts(buckets="2", onNewQuery="continue", **options)
    query.query_id = f"00000000-0000-0000-0000-00000000000{number}"
    query.run(0, [[{"word": "a", "n": 1}]])


def by_job(number: int, options: dict[str, str]) -> None:
    counts(buckets="2", **options).run_batch_write(f"job-{number}", [[{"word": "a", "n": 1}]])


def by_operator(number: int, options: dict[str, str]) -> None:
    with kv.KeyValueStore(
        PATH,
        writer=f"w{number}",
        keys={"word": "string"},
        values={"n": "long"},
        buckets=2,
        merge="n:sum",
        options=options,
        maintenance="none",
        context=current(),
    ) as store:
        store.merge("a", 1)
        store.commit()


@parametrize("write", [by_stream, by_job, by_operator], quick=1)
@pytest.mark.parametrize("between", [by_stream, by_job, by_operator])
def test_the_newest_settings_count(
    write: Callable[[int, dict[str, str]], None], between: Callable[[int, dict[str, str]], None]
) -> None:
    one = {"compression": "zstd", "flushIntervalCount": "50", "grace": "1h"}
    write(0, one)
    between(1, {"compression": "none", "flushIntervalCount": "40"})
    write(2, one)
    fs = open_filesystem(PATH)
    how = how_written(CommitLog(fs).refresh(), fs)
    assert (how.compression, how.plan.flush_runs) == ("zstd", 50)
    kv.compact(PATH, full=True, context=current())
    assert how_written(CommitLog(fs).refresh(), fs) == how
