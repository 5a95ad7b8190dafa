"""Test cases of Apex Malhar's operators that read files, under the ids of docs/internals/ancestors.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ftfile.core.errors import PermissionDenied
from tests.kit.parameters import parametrize
from tests.unit.source.plans import Source
from tests.unit.source.tailing import Tailing

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("nobody_waits")


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


@pytest.mark.parametrize("files_read", [2, 1], ids=["AFI-6", "AFI-7"])
def test_another_number_of_tasks_goes_on_where_the_others_were(source: Source, files_read: int) -> None:
    """The read positions belong to the query, not to its tasks: each line is read once."""
    run = source.query(maxFilesPerTrigger="1", maxPartitionBytes="1m")
    source.add("a.log", 6)
    source.add("b.log", 6)
    assert run.run(files_read) == files_read
    assert len(run.rows) == 6 * files_read
    run.options = {**run.options, "maxPartitionBytes": "8"}
    run.restart()
    assert run.run() == 2 - files_read
    source.add("a.log", 6)
    source.add("c.log", 6)
    assert run.run() == 2
    assert len(run.adds[3]) > 1, "one task reads the file, as before"
    source.check(run)


def test_AFI_8_a_file_that_failed_is_tried_again_by_another_process() -> None:
    tailing = Tailing(maxRetries="3")
    whole = tailing.fs.open
    refused: list[str] = []

    def refuse(path: str) -> Any:
        if path == "in/b" and len(refused) < 2:
            refused.append(path)
            raise PermissionDenied("open", path, "as the test wants it")
        return whole(path)

    tailing.replace("open", refuse)
    for name in "abc":
        tailing.write(name, f"{name}\n" * 6)
    tailing.scan()
    assert len(refused) == 1
    for _ in range(20):
        tailing.restart()
        tailing.scan(seconds=10)
    assert len(refused) == 2
    assert sorted(tailing.reads) == [(name, f"{name}\n".encode() * 6) for name in "abc"]


@parametrize("partition_bytes", ["1m", "8"], ids=["AFI-13", "AFI-14"], quick=1)
@pytest.mark.parametrize("batch_bytes", [None, "25"], ids=["FSI-10", "AFI-15 FSI-9"])
def test_windows_that_come_again_have_the_same_records(
    source: Source, partition_bytes: str, batch_bytes: str | None
) -> None:
    """The rows are the same for one task or several, for whole files or parts of files, and after later writes."""
    limit = {} if batch_bytes is None else {"maxBytesPerTrigger": batch_bytes}
    run = source.query(maxPartitionBytes=partition_bytes, **limit)
    source.add("a.log", 5)
    source.add("b.log", 5)
    count = run.run()
    assert count == 1 if batch_bytes is None else count >= 4
    assert batch_bytes is None or sum(any("a.log" in add for add in adds) for adds in run.adds.values()) > 1
    source.add("a.log", 5)
    for number in range(count):
        # The checkpoint has its state before the batch, and the sink has the rows of the batch.
        again = run.copied()
        again.offsets, again.commits = again.offsets[: number + 1], number
        again.run()
        source.check(again)
        assert list(again.batches.values())[:count] == list(run.batches.values())


def test_FSI_7_a_new_process_looks_at_once() -> None:
    """No trigger starts a scan: a query that starts, for example with `availableNow`, lists at once."""
    tailing = Tailing(scanInterval="1h")
    tailing.write("a", "a\n")
    tailing.drain()
    tailing.write("b", "b\n")
    tailing.drain()
    assert tailing.text == "a\n"
    tailing.restart()
    tailing.drain()
    assert tailing.text == "a\nb\n"
