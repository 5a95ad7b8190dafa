"""The end of the demonstration: Kafka compared with the files, and the offsets of versions."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tests.demos.files.report import count_kills
from tests.kafka.proof import offsets_of

if TYPE_CHECKING:
    from tests.demos.files.report import Console
    from tests.kafka.run import Outcome

__all__ = ("print_summary",)

VERSIONS_SHOWN = 6
COMPARED = ("partition", "in Kafka", "in files", "missing", "repeated", "foreign", "gaps", "")


def print_summary(console: Console, topic: str, outcome: Outcome) -> None:
    """Print the comparison and the verdict."""
    files = f"{outcome.files.files} files, {outcome.files.size_bytes / 1e6:.1f} MB"
    console.line(f"\nKafka's own consumer beside a plain reader of {files}:\n")
    rows: list[tuple[str, ...]] = [COMPARED]
    for each in outcome.partitions:
        counts = (each.in_kafka, each.in_files, each.missing, each.repeated, each.foreign, each.gaps)
        name = f"{topic}/{each.partition}" if each.partition >= 0 else "other topics"
        verdict = console.paint("each offset once" if each.exact else "NOT EXACT", good=each.exact)
        rows.append((name, *(f"{count:,}" for count in counts), verdict))
    console.table(rows, texts=1, indent="  ")
    for name in outcome.files.unreadable:
        console.line(console.paint(f"  unreadable: {name}", good=False))
    _print_versions(console, topic, outcome)
    console.line(f"\n{outcome.sent:,} rows sent in {outcome.stream_s:.0f} s, {count_kills(outcome.hits)}")
    _print_verdict(console, outcome)


def _print_versions(console: Console, topic: str, outcome: Outcome) -> None:
    """Print the first and the last versions with the offsets that each of them added."""
    partitions = [each.partition for each in outcome.partitions if each.partition >= 0]
    rows: list[tuple[str, ...]] = [
        ("version", "time", "operation", "rows", *(f"{topic}/{partition}" for partition in partitions))
    ]
    before = dict.fromkeys(partitions, 0)
    for version in outcome.versions:
        now = {**before, **(offsets_of(topic, version) or {})}
        ranges = (_range(before.get(partition, 0), now.get(partition, 0)) for partition in partitions)
        time = datetime.fromtimestamp(version.time_ms / 1000, timezone.utc)
        rows.append((f"{version.version}", f"{time:%H:%M:%S}", version.operation, f"{version.rows:,}", *ranges))
        before = now
    if len(rows) > 2 * VERSIONS_SHOWN + 2:
        rows[VERSIONS_SHOWN + 1 : -VERSIONS_SHOWN] = [("…", *("" for _ in rows[0][1:]))]
    console.line(f"\nhistory(): the Kafka offsets in each of {len(outcome.versions)} versions\n")
    console.table(rows, texts=1, indent="  ")


def _print_verdict(console: Console, outcome: Outcome) -> None:
    lost = outcome.producer_faults
    producer = f"{lost:,} rows lost or repeated on the way into Kafka" if lost else "each row is in Kafka once"
    exact = all(each.exact for each in outcome.partitions) and not outcome.files.unreadable
    files = "each (topic, partition, offset) is in the files once, without a gap"
    console.line(f"  producer:     {console.paint(producer, good=not lost)}")
    console.line(f"  plain reader: {console.paint(files if exact else 'the files are not what Kafka has', good=exact)}")
    history = "every version names its Kafka offsets, and has exactly their rows"
    for text in outcome.faults or (history,):
        console.line(f"  history():    {console.paint(text, good=not outcome.faults)}")


def _range(start: int, end: int) -> str:
    return f"{start:,} … {end - 1:,}" if end > start else "-"
