"""Tables with bars about the files, the versions and the stages of commits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.units import bytes_text, count_text
from ftfile.tools.report.history import DirectorySums
from ftfile.tools.report.scales import COUNT, SECONDS
from ftfile.writing.files.rolling_rules import POLICY, REASONS

if TYPE_CHECKING:
    from collections import Counter

    from ftfile.tools.report.history import Commits, LiveFiles


DIRECTORIES_SHOWN = 20
_SIZES_SHOWN = 14
_SMALLEST_POWER = 10  # smaller files are one group

_STAGES = {
    "write": ("Tasks write", "the slowest task, from its first row to its message"),
    "assembly": ("of these, files assembled", "parts of due files, from their segments"),
    "sync": ("of these, files made durable", "synced and closed, added up over the files of a task"),
    "prepare": ("Driver prepares", "reads the log, publishes earlier versions, checks files and names"),
    "create": ("Record created", "this is the commit"),
    "publish": ("Files published", "they get their names"),
}


@dataclass(frozen=True)
class Bar:
    """A row with its label, the length of its bar from 0 to 1, and its numbers."""

    label: str
    about: str
    share: float
    cells: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A table. The first head belongs to the labels, the other heads to the numbers."""

    title: str
    about: str
    heads: tuple[str, ...]
    rows: list[Bar]
    others: str = ""  # a text about the rows that are not shown


def size_bars(files: LiveFiles, *, is_store: bool) -> Bars:
    """Return the numbers of files by size, in powers of two."""
    noun = "Runs" if is_store else "Files"
    # frexp returns n + 1 for 2**n.
    powers = np.maximum(np.frexp(files.sizes.astype(float))[1] - 1, _SMALLEST_POWER - 1)
    if len(powers):
        low, high = (int(powers.min()), int(powers.max()))
    else:
        low, high = (0, -1)
    step = max(1, -(-(high + 1 - low) // _SIZES_SHOWN))
    counts = np.bincount((powers - low) // step)
    totals = np.bincount((powers - low) // step, files.sizes)
    most = counts.max(initial=1)
    rows = []
    for number, (count, total) in enumerate(zip(counts.tolist(), totals.tolist(), strict=True)):
        sizes = _range(low + number * step, step)
        rows.append(Bar(sizes, "", count / most, (count_text(count), bytes_text(int(total)))))
    return Bars(
        title=f"{noun} by size",
        about=f"Live {noun.lower()} of the newest version.",
        heads=("size", noun.lower(), "bytes"),
        rows=rows,
    )


def _range(power: int, step: int) -> str:
    if power < _SMALLEST_POWER:
        return f"under {bytes_text(1 << power + step)}"
    return f"{bytes_text(1 << power)} to {bytes_text(1 << power + step)}"


def reason_bars(commits: Commits) -> Bars:
    """Return the numbers of files that were open over several batches, by the rule that ended them."""
    about = "Files that were open over several batches, by the rule that ended them."
    rows = []
    for bar in _bars_of_counts(commits.reasons):
        rows.append(replace(bar, about=REASONS.get(bar.label, POLICY.about)))
    return Bars(title="Why files were finished", about=about, heads=("reason", "files"), rows=rows)


def operation_bars(commits: Commits) -> Bars:
    """Return the numbers of versions by operation."""
    heads = ("operation", "versions")
    return Bars(
        title="Operations", about="Authors of the kept versions.", heads=heads, rows=_bars_of_counts(commits.operations)
    )


def directory_bars(files: LiveFiles, *, is_store: bool) -> Bars:
    """Return the largest directories, or buckets of a store."""
    if is_store:
        nouns, noun = ("buckets", "runs")
    else:
        nouns, noun = ("directories", "files")
    by_name = sorted(files.directories.items())
    ordered = sorted(by_name, key=_size_of_directory, reverse=True)
    most = 1
    if ordered:
        most = ordered[0][1].size_bytes or 1
    rows = []
    for name, sums in ordered[:DIRECTORIES_SHOWN]:
        cells = (bytes_text(sums.size_bytes), count_text(sums.files), COUNT.text(sums.rows))
        rows.append(Bar(name or "the directory itself", "", sums.size_bytes / most, cells))
    rest, about = "", f"All {nouns} with {noun}."
    if len(ordered) > DIRECTORIES_SHOWN:
        omitted = DirectorySums()
        for _, sums in ordered[DIRECTORIES_SHOWN:]:
            omitted.files += sums.files
            omitted.size_bytes += sums.size_bytes
        count = count_text(len(ordered) - DIRECTORIES_SHOWN)
        size = bytes_text(omitted.size_bytes)
        rest = f"Not shown: {count} smaller ones with {size} in {count_text(omitted.files)} {noun}."
        about = f"The largest of {count_text(len(ordered))} {nouns}."
    heads = ("bucket" if is_store else "directory", "bytes", noun, "rows")
    return Bars(title=nouns.capitalize(), about=about, heads=heads, rows=rows, others=rest)


def _size_of_directory(item: tuple[str, DirectorySums]) -> int:
    return item[1].size_bytes


def stage_bars(commits: Commits) -> Bars:
    """Return where the time of commits goes; the bars are as long as the 95 % quantiles."""
    quantiles: dict[str, list[float]] = {}
    most = 0.0
    for name in _STAGES:
        seconds = commits.columns[name][~np.isnan(commits.columns[name])]
        if len(seconds):
            quantiles[name] = np.quantile(seconds, (0.5, 0.95, 1)).tolist()
            most = max(most, quantiles[name][1])
    rows = []
    for name, values in quantiles.items():
        label, about = _STAGES[name]
        rows.append(Bar(label, about, values[1] / (most or 1), tuple(map(SECONDS.text, values))))
    heads = ("stage", "median", "95 %", "greatest")
    return Bars(title="Where the time goes", about="Stages of a commit, one after the other.", heads=heads, rows=rows)


def _bars_of_counts(counter: Counter[str]) -> list[Bar]:
    """Return a row for each name with its number, the most frequent first."""
    most = max(counter.values(), default=0)
    bars = []
    for name, count in counter.most_common():
        bars.append(Bar(name, "", count / most, (count_text(count),)))
    return bars
