"""Time of the first micro-batch of a fresh application: what those pay who start one for each run."""

from __future__ import annotations

import logging
import statistics
from typing import TYPE_CHECKING

from benchmarks.report import Cell, Table, percentile
from benchmarks.rows import text_rows, write_text_input
from benchmarks.sinks import FLOOR, SINKS, Sink, alternating, choose_sinks
from benchmarks.spark_session import in_own_process, open_session, run_stream

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.settings import Settings

__all__ = ("run",)

LOGGER = logging.getLogger(__name__)
ROUNDS, SMOKE_ROUNDS = 5, 1
PARTITIONS = 2
COLUMNS = ("sink", "applications", "addBatch p50 ms", "slowest ms", "over null ms")
NOTE = (
    "Each in a JVM of its own, whose only micro-batch has four rows; over unix sockets. Differences are medians of the "
    "differences within a round."
)


def run(settings: Settings) -> list[Table]:
    """Start an application for each sink, round after round, in alternating order."""
    rounds = SMOKE_ROUNDS if settings.smoke else ROUNDS
    sinks = choose_sinks((FLOOR, *SINKS), settings.sinks)
    write_text_input(settings.directory / "in", PARTITIONS, 2)
    times_ms: dict[Sink, list[int]] = {sink: [] for sink in sinks}
    for order in alternating(sinks, rounds):
        for sink in order:
            times_ms[sink].append(in_own_process(_first_batch_ms, settings.directory, sink))
            LOGGER.info("first: %s: addBatch %s ms", sink.label, times_ms[sink][-1])
    null_ms = next(times for sink, times in times_ms.items() if sink.label == "null")
    rows = tuple(_row(sink, times, null_ms) for sink, times in times_ms.items())
    return [Table(f"first micro-batch of an application, {rounds} rounds", COLUMNS, rows, NOTE)]


def _first_batch_ms(directory: Path, sink: Sink) -> int:
    with open_session(directory, unix_sockets=True) as spark:
        stream = run_stream(text_rows(spark, directory / "in", PARTITIONS), sink, directory / "run")
    (batch,) = stream.batches
    return batch.add_batch_ms


def _row(sink: Sink, times_ms: list[int], null_ms: list[int]) -> tuple[Cell, ...]:
    over_ms = statistics.median(time - null for time, null in zip(times_ms, null_ms, strict=True))
    return sink.label, len(times_ms), percentile(times_ms, 50), max(times_ms), over_ms
