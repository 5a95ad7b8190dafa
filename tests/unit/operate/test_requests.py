"""The requests of batches that `status` computes from records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import ftfile
from ftfile.log.format.model import MaintenanceAuthor
from ftfile.log.publish import HINT_EVERY
from ftfile.operate.requests import VERSIONS_READ, RequestPrices, requests_of, storage_requests
from ftfile.testing.context import ManualClock, repeatable
from ftfile.testing.fs.crashing import CrashingFileSystem
from ftfile.testing.fs.memory import mounted
from ftfile.testing.micro_batch import MicroBatch
from tests.unit.log.conftest import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

PRICES = RequestPrices(put=10, get=1)
ROWS = [{"value": "a"}]


@pytest.fixture(autouse=True)
def clock() -> Iterator[ManualClock]:
    clock = ManualClock()
    with repeatable(clock):
        yield clock


def sums(url: str, **options: Any) -> dict[str, float]:
    requests = ftfile.status(url, request_prices=(10, 1), **options).requests
    assert requests is not None
    return {step.step: step.cost for step in requests.steps}


@pytest.mark.parametrize(
    ("options", "rows", "tasks", "publish"),
    [
        ({}, [ROWS], 1, 1),
        ({}, [ROWS, ROWS, ROWS], 3, 3),
        ({}, [[]], 0, 0),
        ({"publish": "direct"}, [ROWS], 2, 0),
        ({"rolling": "policy"}, [ROWS, ROWS], 2, 0),
        ({"badRecords": "deadLetter"}, [[{"value": "two\nlines"}]], 1, 1),
    ],
)
def test_the_requests_of_each_step(
    clock: ManualClock, options: dict[str, str], rows: list[list[dict[str, str]]], tasks: int, publish: int
) -> None:
    with mounted(CrashingFileSystem(clock=clock, storage="s3")) as url:
        query = MicroBatch(url, {"value": "string"}, {"fileFormat": "text"} | options)
        for batch in range(3):
            query.run(batch, rows)
        expected = {"plan": 1, "tasks": 10 * tasks, "commit": 11 + 10 / HINT_EVERY, "publish": 10 * publish}
        assert sums(url) == expected


def test_replaced_files_are_moved_too(clock: ManualClock) -> None:
    with mounted(CrashingFileSystem(clock=clock, storage="s3")) as url:
        query = MicroBatch(url, {"value": "string"}, {"fileFormat": "text"}, overwrite=True)
        for batch in range(4):
            query.run(batch, [ROWS])
        assert sums(url)["publish"] == 10 * (4 + 3) / 4


def test_the_rate_and_the_cost_of_a_day(clock: ManualClock) -> None:
    driver = Driver(CrashingFileSystem(clock=clock, storage="s3"))
    for batch in range(5):
        driver.commit_new(batch)
        clock.advance(60)
    requests = storage_requests(driver.log, driver.log.refresh(), PRICES)
    assert requests is not None
    assert requests.batches_a_day == pytest.approx(1440)
    assert requests.cost_a_day == pytest.approx(1.44 * sum(step.cost for step in requests.steps))


def test_only_the_newest_batches_are_read(clock: ManualClock) -> None:
    driver = Driver(CrashingFileSystem(clock=clock, storage="s3"))
    driver.commit(0, *(driver.stage(0) for _ in range(9)))
    for batch in range(1, VERSIONS_READ):
        driver.commit_new(batch)
    driver.commit_as(MaintenanceAuthor("compact", "job"))
    requests = storage_requests(driver.log, driver.log.refresh(), PRICES)
    assert requests is not None
    assert (requests.batches, requests.steps[1].put) == (VERSIONS_READ - 1, 1)


def test_a_single_batch_has_no_rate(clock: ManualClock) -> None:
    driver = Driver(CrashingFileSystem(clock=clock, storage="s3"))
    driver.commit_new(0)
    record = driver.log.read_record(0)
    assert record is not None
    assert requests_of([record], PRICES).cost_a_day is None


@pytest.mark.parametrize("storage", ["disk", "hdfs"])
def test_other_storage_has_no_requests(clock: ManualClock, storage: Any) -> None:
    with mounted(CrashingFileSystem(clock=clock, storage=storage)) as url:
        MicroBatch(url, {"value": "string"}, {"fileFormat": "text"}).run(0, [ROWS])
        assert ftfile.status(url, request_prices=(10, 1)).requests is None


def test_they_are_not_computed_unless_requested(clock: ManualClock) -> None:
    with mounted(CrashingFileSystem(clock=clock, storage="s3")) as url:
        MicroBatch(url, {"value": "string"}, {"fileFormat": "text"}).run(0, [ROWS])
        assert ftfile.status(url).requests is None
