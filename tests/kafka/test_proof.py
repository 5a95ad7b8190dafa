"""The proof of `make demo-kafka` fails if rows or offsets are wrong."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import ftfile
from ftfile.testing.micro_batch import MicroBatch
from tests.kafka.plan import BLOWS, plan_blows
from tests.kafka.proof import FORMATS, check_history, compare, read_files
from tests.kafka.run import MORE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = "flights"
COLUMNS = {"topic": "string", "partition": "integer", "offset": "long", "key": "string", "value": "string"}
# The ends of three partitions, by batch: the first batch adds no record of the last partition.
ENDS = ({0: 5, 1: 3, 2: 0}, {0: 9, 1: 3, 2: 4}, {0: 12, 1: 8, 2: 6})
LAST = ENDS[-1]


def record(partition: int, offset: int) -> dict[str, Any]:
    value = json.dumps({"id": offset * 3 + partition, "text": 'a "b", c'})
    return {"topic": TOPIC, "partition": partition, "offset": offset, "key": f"k{offset}", "value": value}


def records(start: dict[int, int], end: dict[int, int]) -> list[dict[str, Any]]:
    return [record(partition, offset) for partition in end for offset in range(start.get(partition, 0), end[partition])]


KAFKA = pa.Table.from_pylist(records({}, LAST))


class Written:
    """A directory that a stream from Kafka has written, batch by batch."""

    def __init__(self, home: Path, file_format: str) -> None:
        self.output, self.file_format, checkpoint = home / "out", file_format, home / "checkpoint"
        options = {"fileFormat": file_format, **MORE_OPTIONS.get(file_format, {})}
        query = MicroBatch(str(self.output), COLUMNS, options, checkpoint=str(checkpoint))
        before: dict[int, int] = {}
        for number, ends in enumerate(ENDS):
            rows = records(before, ends)
            random.Random(number).shuffle(rows)
            query.run(number, [rows[::2], rows[1::2]])
            before = ends

    def files(self) -> list[Path]:
        return sorted(self.output.glob(f"*.{self.file_format}"))

    def exact(self) -> bool:
        found = read_files(self.output, self.file_format)
        return not found.unreadable and all(each.exact for each in compare(TOPIC, LAST, KAFKA, found.rows))


@pytest.fixture(params=sorted(FORMATS))
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    return Written(tmp_path, request.param)


def test_files_with_all_that_kafka_has_are_exact(written: Written) -> None:
    assert written.exact()
    found = read_files(written.output, written.file_format)
    assert found.files == len(written.files()) > 3
    assert found.rows.num_rows == sum(LAST.values())
    assert [(each.in_kafka, each.in_files) for each in compare(TOPIC, LAST, KAFKA, found.rows)] == [
        (12, 12),
        (8, 8),
        (6, 6),
    ]


def test_a_file_that_is_gone_is_missed(written: Written) -> None:
    gone = len(read_files(written.output, written.file_format).rows)
    written.files()[1].unlink()
    found = read_files(written.output, written.file_format).rows
    verdicts = compare(TOPIC, LAST, KAFKA, found)
    assert sum(each.missing for each in verdicts) == gone - len(found) > 0
    assert sum(each.gaps for each in verdicts) > 0
    assert not any(each.repeated or each.foreign for each in verdicts)


def test_a_file_that_is_there_twice_is_counted(written: Written) -> None:
    first = written.files()[0]
    (written.output / f"once-more{first.name}").write_bytes(first.read_bytes())
    found = read_files(written.output, written.file_format).rows
    verdicts = compare(TOPIC, LAST, KAFKA, found)
    assert sum(each.repeated for each in verdicts) == len(found) - sum(LAST.values()) > 0
    assert not any(each.missing or each.foreign or each.gaps for each in verdicts)
    assert not all(each.exact for each in verdicts)


def test_a_file_that_is_torn_is_named(written: Written) -> None:
    torn = written.files()[0]
    torn.write_bytes(torn.read_bytes()[:-3])
    found = read_files(written.output, written.file_format)
    assert not written.exact()
    if written.file_format not in {"csv", "json"}:  # readers accept a truncated last line
        assert [text.partition(":")[0] for text in found.unreadable] == [torn.name]


def changed(change: Callable[[list[dict[str, Any]]], object]) -> list[tuple[int, ...]]:
    """The verdicts on changed rows: partition, missing, repeated, foreign, gaps."""
    rows = KAFKA.to_pylist()
    change(rows)
    verdicts = compare(TOPIC, LAST, KAFKA, pa.Table.from_pylist(rows, KAFKA.schema))
    assert not all(each.exact for each in verdicts)
    return [(each.partition, each.missing, each.repeated, each.foreign, each.gaps) for each in verdicts]


@pytest.mark.parametrize(
    ("change", "partition", "counts"),
    [
        (lambda rows: rows.pop(0), 0, (1, 0, 0, 1)),
        (lambda rows: rows.pop(11), 0, (1, 0, 0, 0)),  # the last row: no gap reveals it
        (lambda rows: rows.append(rows[3]), 0, (0, 1, 0, 0)),
        (lambda rows: rows[13].update(value="{}"), 1, (0, 0, 1, 0)),
        (lambda rows: rows[13].update(key=None), 1, (0, 0, 1, 0)),
        (lambda rows: rows[13].update(offset=2), 1, (1, 1, 1, 1)),
        (lambda rows: rows.append(record(2, 6)), 2, (0, 0, 1, 0)),
        (lambda rows: rows.append(record(2, 99)), 2, (0, 0, 1, 1)),
        (lambda rows: rows.append(record(3, 0)), 3, (0, 0, 1, 0)),
        (lambda rows: rows.append({**record(0, 0), "topic": "others"}), -1, (0, 0, 1, 0)),
    ],
)
def test_every_change_is_counted(
    change: Callable[[list[dict[str, Any]]], object], partition: int, counts: tuple[int, ...]
) -> None:
    verdicts = {number: rest for number, *rest in changed(change)}
    assert verdicts.pop(partition) == [*counts]
    assert set(map(tuple, verdicts.values())) == {(0, 0, 0, 0)}


# ------------------------------------------------------------------------------- the history


class History:
    """A directory of rolled files whose batches have Kafka's offsets in the checkpoint."""

    def __init__(self, home: Path) -> None:
        self.output, self._checkpoint = str(home / "out"), home / "checkpoint"
        options = {"fileFormat": "json", "maxBatchesPerFile": "2"}
        self.query = MicroBatch(self.output, COLUMNS, options, checkpoint=str(self._checkpoint))

    def commit(self, number: int, rows: list[dict[str, Any]], ends: dict[int, int]) -> None:
        """Write a batch as Spark does: the offsets of its source are written first."""
        offsets = json.dumps({TOPIC: {str(partition): end for partition, end in ends.items()}})
        noted = self._checkpoint / f"offsets/{number}"
        noted.parent.mkdir(parents=True, exist_ok=True)
        noted.write_text(f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{number}}}\n{offsets}')
        planned = self.query.pickled_plan()
        identity = self.query.identity(number)
        self.query.commit(number, [self.query.run_task(planned, identity, 0, rows)])

    def faults(self) -> list[str]:
        directory = ftfile.open(self.output)
        return check_history(TOPIC, directory.history(), LAST, directory.to_arrow)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path)


def test_versions_name_the_offsets_that_they_hold(history: History) -> None:
    for number, ends in enumerate(ENDS):
        history.commit(number, records(ENDS[number - 1] if number else {}, ends), ends)
    ftfile.flush(history.output)
    versions = ftfile.open(history.output).history()
    found = [version.offsets for version in versions if version.operation == "stream"]
    assert found == [[{TOPIC: {str(partition): end for partition, end in ends.items()}}] for ends in ENDS]
    assert history.faults() == []


def test_a_version_with_fewer_rows_than_its_offsets_is_a_fault(history: History) -> None:
    history.commit(0, records({}, ENDS[0])[1:], ENDS[0])
    history.commit(1, records(ENDS[0], LAST), LAST)
    assert "version 0 has 7 rows, its offsets stand for 8" in history.faults()
    assert "version 1 has not exactly the offsets below 12 of 0" in history.faults()


def test_a_batch_that_comes_again_is_no_fault(history: History) -> None:
    for _ in range(2):
        history.commit(0, records({}, LAST), LAST)
        history.query.restart()
    assert history.faults() == []


def test_rows_of_other_offsets_are_a_fault(history: History) -> None:
    rows = records({}, LAST)
    history.commit(0, [*rows[1:], record(0, 12)], LAST)
    assert history.faults() == ["version 0 has not exactly the offsets below 12 of 0"]


def test_versions_that_go_back_or_end_too_early_are_faults(history: History) -> None:
    history.commit(0, records({}, ENDS[1]), ENDS[1])
    history.commit(1, [], ENDS[0])
    assert any(fault.startswith("version 1 goes back") for fault in history.faults())
    assert any(fault.startswith("the last version names") for fault in history.faults())


def test_versions_without_offsets_are_faults(tmp_path: Path) -> None:
    query = MicroBatch(str(tmp_path), COLUMNS, {"fileFormat": "json"})
    query.run(0, [records({}, LAST)])
    directory = ftfile.open(str(tmp_path))
    faults = check_history(TOPIC, directory.history(), LAST, directory.to_arrow)
    assert faults[0] == "version 0 names no offsets of flights: None"


# ------------------------------------------------------------------------------- the plan


@pytest.mark.parametrize("quick", [True, False])
def test_blows_are_drawn_from_the_seed_and_leave_rows_for_the_last(quick: bool) -> None:
    plans = {seed: plan_blows(seed, 1000, quick=quick) for seed in range(100)}
    assert plans[7] == plan_blows(7, 1000, quick=quick)
    assert len(set(plans.values())) > 90
    for plan in plans.values():
        after = [blow.after_rows for blow in plan]
        assert after == sorted(set(after))
        assert after[0] > 0
        assert after[-1] < 900
        assert len(plan) == (3 if quick else len(BLOWS))
