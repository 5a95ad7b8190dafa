"""The comparison of files of text with their source, line by line, by a plain reader without code of ftfile."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.demos.files.hdfs_path import HdfsPath
    from tests.demos.files.report import Console

__all__ = ("check_lines", "count_lines")


def count_lines(files: Iterable[Path | HdfsPath]) -> Counter[str]:
    """Return the number of occurrences of each line; a last line without an end of line counts, too."""
    lines = Counter[str]()
    for file in files:
        # Spark's lines end at line feeds only, but `splitlines` also splits at other characters.
        lines.update(file.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
    return lines


def check_lines(console: Console, source: Counter[str], lines: Counter[str]) -> bool:
    """Print the comparison of the visible files with the source; return True if they have the same lines."""
    missing, surplus = source - lines, lines - source
    # An additional line that the source does not have is no copy.
    foreign = sum(count for line, count in surplus.items() if line not in source)
    faults = {
        "lines MISSING": missing.total(),
        "lines TOO OFTEN": surplus.total() - foreign,
        "lines NOT IN THE TEXT": foreign,
    }
    texts = [f"{count:,} {name}" for name, count in faults.items() if count]
    verdict = ", ".join(texts) or "every line as often as it occurs"
    painted = console.paint(verdict, good=not texts)
    console.line(f"plain reader of the visible files: {painted} ({lines.total():,} lines)")
    for line in [*missing, *surplus][:5]:
        console.line(f"  {source[line]} times in the text, {lines[line]} times in the files: {line!r}")
    return not texts
