"""Tables with bars: files by size, end reason and directory, versions by operation, and the stages of a commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.units import bytes_text, count_text
from ftfile.tools.report.charts import COUNT, SECONDS
from ftfile.write.files.rolling_rules import POLICY, REASONS

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


@dataclass(frozen=True)
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
    rows = [
        Bar(_range(low + number * step, step), "", count / most, (count_text(count), bytes_text(int(total))))
        for number, (count, total) in enumerate(zip(counts.tolist(), totals.tolist(), strict=True))
    ]
    return Bars(f"{noun} by size", f"Live {noun.lower()} of the newest version.", ("size", noun.lower(), "bytes"), rows)


def _range(power: int, step: int) -> str:
    if power < _SMALLEST_POWER:
        return f"under {bytes_text(1 << power + step)}"
    return f"{bytes_text(1 << power)} to {bytes_text(1 << power + step)}"


def reason_bars(commits: Commits) -> Bars:
    """Return the numbers of files that were open over several batches, by the rule that ended them."""
    about = "Files that were open over several batches, by the rule that ended them."
    rows = [
        Bar(reason, REASONS.get(reason, POLICY.about), count / most, (count_text(count),))
        for reason, count, most in _counted(commits.reasons)
    ]
    return Bars("Why files were finished", about, ("reason", "files"), rows)


def operation_bars(commits: Commits) -> Bars:
    """Return the numbers of versions by operation."""
    rows = [Bar(name, "", count / most, (count_text(count),)) for name, count, most in _counted(commits.operations)]
    return Bars("Operations", "Authors of the kept versions.", ("operation", "versions"), rows)


def directory_bars(files: LiveFiles, *, is_store: bool) -> Bars:
    """Return the largest directories, or buckets of a store."""
    if is_store:
        nouns, noun = ("buckets", "runs")
    else:
        nouns, noun = ("directories", "files")
    ordered = sorted(files.directories.items(), key=lambda item: (-item[1].size_bytes, item[0]))
    shown, others = ordered[:DIRECTORIES_SHOWN], ordered[DIRECTORIES_SHOWN:]
    most = max((sums.size_bytes for _, sums in shown), default=0) or 1
    rows = [
        Bar(
            name or "the directory itself",
            "",
            sums.size_bytes / most,
            (bytes_text(sums.size_bytes), count_text(sums.files), COUNT.text(sums.rows)),
        )
        for name, sums in shown
    ]
    rest = ""
    if others:
        files_left = sum(sums.files for _, sums in others)
        size = bytes_text(sum(sums.size_bytes for _, sums in others))
        rest = f"Not shown: {count_text(len(others))} smaller ones with {size} in {count_text(files_left)} {noun}."
    if others:
        about = f"The largest of {count_text(len(ordered))} {nouns}."
    else:
        about = f"All {nouns} with {noun}."
    heads = ("bucket" if is_store else "directory", "bytes", noun, "rows")
    return Bars(nouns.capitalize(), about, heads=heads, rows=rows, others=rest)


def stage_bars(commits: Commits) -> Bars:
    """Return where the time of commits goes; the bars are as long as the 95 % quantiles."""
    found = []
    for name, (label, about) in _STAGES.items():
        seconds = commits.columns[name][~np.isnan(commits.columns[name])]
        if len(seconds):
            found.append((label, about, [float(each) for each in np.quantile(seconds, (0.5, 0.95, 1))]))
    most = max((quantiles[1] for *_, quantiles in found), default=0) or 1
    rows = [
        Bar(label, about, quantiles[1] / most, tuple(map(SECONDS.text, quantiles))) for label, about, quantiles in found
    ]
    heads = ("stage", "median", "95 %", "greatest")
    return Bars("Where the time goes", "Stages of a commit, one after the other.", heads, rows)


def _counted(counter: Counter[str]) -> list[tuple[str, int, int]]:
    """Return names with their numbers, the most frequent first, and the greatest number."""
    ordered = counter.most_common()
    return [(name, count, ordered[0][1]) for name, count in ordered]
