"""Time of micro-batches of ten rows: what a sink adds to every batch, however small."""

from __future__ import annotations

import logging
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import text_rows, write_text_input
from benchmarks.sinks import FLOOR, SINKS, Sink, alternating, choose_sinks
from benchmarks.spark_session import Batch, in_own_process, open_session, run_stream, transports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROWS = 10
PARTITIONS = 2
COLUMNS = (
    *("sink", "batches", "addBatch p50 ms", "p90 ms", "over floor ms", "x spark parquet"),
    *("trigger p50 ms", "trigger x spark parquet"),
)
NOTE = (
    "Differences and ratios are medians of those between the medians of one round. 'null, acknowledging' is "
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
Round = dict[Sink, list[Batch]]


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


def _sample(frame: DataFrame, sink: Sink, directory: Path, size: Size) -> list[Batch]:
    batches = [*run_stream(frame, sink, directory).batches[size.warm_up :]]
    times_ms = [(batch.add_batch_ms, batch.trigger_ms) for batch in batches]
    LOGGER.info("tiny: %s: addBatch and trigger %s ms", sink.label, times_ms)
    return batches


def _row(sink: Sink, rounds: list[Round]) -> tuple[Cell, ...]:
    batches = [batch for samples in rounds for batch in samples[sink]]
    add_batch_ms = [batch.add_batch_ms for batch in batches]
    parquet = next((other for other in rounds[0] if other.spark_format == "parquet"), None)
    return (
        sink.label,
        len(batches),
        percentile(add_batch_ms, 50),
        percentile(add_batch_ms, 90),
        statistics.median(_add_batch_ms(samples[sink]) - _add_batch_ms(samples[FLOOR]) for samples in rounds),
        None if parquet is None else _ratio(rounds, sink, parquet, _add_batch_ms),
        percentile([batch.trigger_ms for batch in batches], 50),
        None if parquet is None else _ratio(rounds, sink, parquet, _trigger_ms),
    )


def _ratio(rounds: list[Round], sink: Sink, other: Sink, time_ms: Callable[[list[Batch]], float]) -> float:
    return statistics.median(time_ms(samples[sink]) / time_ms(samples[other]) for samples in rounds)


def _add_batch_ms(batches: list[Batch]) -> float:
    return statistics.median(batch.add_batch_ms for batch in batches)


def _trigger_ms(batches: list[Batch]) -> float:
    return statistics.median(batch.trigger_ms for batch in batches)
