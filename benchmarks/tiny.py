"""Time of micro-batches of four rows: what a sink adds to every batch, however small."""

from __future__ import annotations

import logging
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import text_rows, write_text_input
from benchmarks.sinks import FLOOR, SINKS, Sink, alternating, choose_sinks
from benchmarks.spark_session import in_own_process, open_session, run_stream, transports

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS = 4
PARTITIONS = 2
COLUMNS = ("sink", "batches", "addBatch p50 ms", "p90 ms", "over floor ms", "over spark json ms")
NOTE = (
    "Differences are medians of the differences between the medians of one round. 'null, acknowledging' is "
    "the floor: the null sink without the 40 ms for which Linux delays its acknowledgement over TCP."
)


@dataclass(frozen=True, slots=True)
class Size:
    """How many micro-batches; the first rounds, and the first batches of every query, are not counted."""

    batches: int
    warm_up: int
    warm_up_rounds: int
    rounds: int


FULL = Size(batches=12, warm_up=8, warm_up_rounds=1, rounds=6)
SMOKE = Size(batches=2, warm_up=1, warm_up_rounds=0, rounds=1)
Round = dict[Sink, list[int]]


def run(settings: Settings) -> list[Table]:
    """Time every sink over TCP and over unix sockets, a JVM to each, in alternating order."""
    size = SMOKE if settings.smoke else FULL
    sinks = (FLOOR, *choose_sinks(SINKS, settings.sinks))
    tables = []
    for transport, unix_sockets in transports().items():
        directory = settings.directory / "tiny" / transport
        rounds = in_own_process(_measure, directory, size, sinks, unix_sockets=unix_sockets)
        title = f"tiny over {transport}: {ROWS} rows, {PARTITIONS} partitions, {size.rounds} rounds"
        tables.append(Table(title, COLUMNS, tuple(_row(sink, rounds) for sink in sinks), NOTE))
    return tables


def _measure(directory: Path, size: Size, sinks: tuple[Sink, ...], *, unix_sockets: bool) -> list[Round]:
    batches = size.warm_up + size.batches
    write_text_input(directory / "in", batches * PARTITIONS, ROWS // PARTITIONS)
    with open_session(directory, unix_sockets=unix_sockets) as spark:
        frame = text_rows(spark, directory / "in", PARTITIONS)
        rounds = [
            {sink: _sample(frame, sink, directory / "run", size) for sink in order}
            for order in alternating(sinks, size.warm_up_rounds + size.rounds)
        ]
    return rounds[size.warm_up_rounds :]


def _sample(frame: DataFrame, sink: Sink, directory: Path, size: Size) -> list[int]:
    stream = run_stream(frame, sink, directory)
    times_ms = [batch.add_batch_ms for batch in stream.batches[size.warm_up :]]
    LOGGER.info("tiny: %s: addBatch %s ms", sink.label, times_ms)
    return times_ms


def _row(sink: Sink, rounds: list[Round]) -> tuple[Cell, ...]:
    times_ms = [time_ms for samples in rounds for time_ms in samples[sink]]
    spark_json = next((rival for rival in rounds[0] if rival.spark_format == "json"), None)
    return (
        sink.label,
        len(times_ms),
        percentile(times_ms, 50),
        percentile(times_ms, 90),
        _over(sink, FLOOR, rounds),
        None if spark_json is None else _over(sink, spark_json, rounds),
    )


def _over(sink: Sink, rival: Sink, rounds: list[Round]) -> float:
    return statistics.median(statistics.median(samples[sink]) - statistics.median(samples[rival]) for samples in rounds)
