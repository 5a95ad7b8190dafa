"""Charts over the versions of a log: SVG paths, the rows of their tables, and axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.units import bytes_text, count_text, duration_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ftfile.tools.report.history import Commits


# If values exceed the median by this factor, the axis is logarithmic; a linear axis would show all other values as 0.
OUTLYING = 40
TICKS_MAX = 4
_STEPS = (1, 2, 5, 10)
_BINARY_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TWO_DIGITS = 10
_MS = 0.001
_LONG_S = 600
_MINUTES = (60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


@dataclass(frozen=True)
class Measure:
    """A kind of number."""

    text: Callable[[float], str]  # returns a value as text for people
    base: int  # of the powers that a logarithmic axis marks
    least: float  # the least value that a logarithmic axis can distinguish from 0


def _count_text(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    if value >= _TWO_DIGITS or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}"


def _seconds_text(value: float) -> str:
    if value == 0:
        return "0 s"
    if value >= 1:
        return duration_text(value)
    if value >= _MS:
        shown, unit = (value * 1000, "ms")
    else:
        shown, unit = (value * 1e6, "µs")
    if shown >= _TWO_DIGITS:
        return f"{shown:.0f} {unit}"
    return f"{shown:.2g} {unit}"


COUNT = Measure(_count_text, 10, 1)
BYTES = Measure(lambda value: bytes_text(round(value)), 1024, 1)
SECONDS = Measure(_seconds_text, 10, _MS)


@dataclass(frozen=True)
class Scale:
    """An axis that begins at 0."""

    kind: Measure
    top: float  # the greatest value on the axis
    ticks: tuple[float, ...]  # the marked values
    is_logarithmic: bool  # equal distances mean equal factors

    def places(self, values: np.ndarray) -> np.ndarray:
        """Return the positions of values, from 0 at the bottom to 1 at the top."""
        if self.is_logarithmic:
            heights: np.ndarray = np.log1p(values / self.kind.least) / np.log1p(self.top / self.kind.least)
            return heights
        return values / self.top


def scale_of(kind: Measure, values: np.ndarray) -> Scale:
    """Return the axis for values, ignoring NaN. It is logarithmic if a few values are far greater than the others."""
    values = values[~np.isnan(values)]
    most = float(values.max(initial=0))
    positive = values[values > 0]
    if len(positive) and most > OUTLYING * float(np.median(positive)) and most > kind.least * kind.base:
        return _logarithmic(kind, most)
    step = _step(kind, most)
    count = max(1, math.ceil(most / step - 1e-9))
    return Scale(kind, step * count, tuple(step * number for number in range(count + 1)), is_logarithmic=False)


def _logarithmic(kind: Measure, most: float) -> Scale:
    powers = [kind.least * kind.base]
    while powers[-1] < most:
        powers.append(powers[-1] * kind.base)
    top = powers[-1]
    # The greatest power, and powers at equal distances below it.
    shown = powers[:: -max(1, math.ceil(len(powers) / TICKS_MAX))][::-1]
    return Scale(kind, top, (0.0, *shown), is_logarithmic=True)


def _step(kind: Measure, most: float) -> float:
    """Return the distance between marks as a round number."""
    least = most / TICKS_MAX
    if kind is SECONDS and most > _LONG_S:
        return next((float(step) for step in _MINUTES if step >= least), math.ceil(least / 86_400) * 86_400.0)
    if least <= 0:
        return float(kind.least)
    if kind is BYTES:
        unit = 1024.0 ** max(0, math.floor(math.log(least, 1024)))
        return next(unit * step for step in _BINARY_STEPS if unit * step >= least)
    unit = 10.0 ** math.floor(math.log10(least))
    step = next(unit * step for step in _STEPS if unit * step >= least * (1 - 1e-9))
    if kind is COUNT:
        return max(step, 1.0)
    return step


# Maximum number of groups of versions, for which a wide screen has room with three charts in a row.
BINS_MAX = 400
# The height of a drawing in its own unit, in which a group of versions is 1 wide.
HEIGHT = 1000
_X_TICKS = 5
_LOWEST_MARK = 0.45  # the part of a lane's height for the least number of events
_NONE = "\u2013"  # a dash
_DAY_MS = 86_400_000

# By field: the title, and the meaning of the number.
_EVENTS = {
    "recoveries": ("Recoveries", "versions that another process had committed and not published"),
    "replays": ("Replays", "batches replayed after a restart that were already committed"),
    "task_retries": ("Task retries", "attempts of tasks that failed before another one succeeded"),
    "orphans": ("Orphans", "files of lost attempts; ftfile vacuum deletes them"),
    "bad_records": ("Bad records", "records that could not be written"),
}


@dataclass(frozen=True)
class Chart:
    """A chart of one number of each version."""

    key: str  # unique in the page
    title: str
    about: str
    summary: str  # the chart in words
    heads: tuple[str, ...]  # of the table's columns after the columns of the versions
    rows: list[tuple[str, ...]]  # of the table: a text for each head, one row for each group
    ticks: list[tuple[float, str]]  # marked values: positions from 0 to 1, with texts
    is_logarithmic: bool
    band: str  # path from the least to the greatest value of each group; empty if each group is one version
    line: str  # path of the mean values
    area: str  # path of the area below the values; empty if there is a band


@dataclass(frozen=True)
class Lane:
    """Events of one kind, with a mark for each group of versions that had such events."""

    title: str
    about: str
    total: str
    marks: str  # an SVG path


@dataclass(frozen=True)
class Timeline:
    """All charts over the versions, with one time axis."""

    bins: int  # number of groups
    versions: int  # number of versions
    group: int  # greatest number of versions in a group
    labels: list[tuple[str, str]]  # of the groups: their versions and times
    ticks: list[tuple[float, str, str]]  # marks of the axis: a position from 0 to 1, a version and its time
    charts: list[Chart]
    lanes: list[Lane]  # the events
    lane_rows: list[tuple[str, ...]]  # of the events' table, one row for each group


@dataclass(frozen=True)
class Binned:
    """Values of groups of consecutive versions; NaN for a group without values."""

    least: np.ndarray
    mean: np.ndarray
    most: np.ndarray
    total: np.ndarray
    counts: np.ndarray  # number of values


def starts_of(count: int, bins_max: int = BINS_MAX) -> np.ndarray:
    """Return the first index of each group; the sizes of the groups differ by at most one."""
    bins = min(count, bins_max)
    return np.arange(bins) * count // max(bins, 1)


def binned(values: np.ndarray, starts: np.ndarray) -> Binned:
    """Return the least, the mean and the greatest value of each group as floats, ignoring NaN."""
    values = values.astype(float)
    if not len(values):
        return Binned(values, values, most=values, total=values, counts=values)
    counts = np.add.reduceat(~np.isnan(values), starts, dtype=float)
    total = np.add.reduceat(np.nan_to_num(values), starts)
    mean = np.divide(total, counts, out=np.full(len(starts), np.nan), where=counts > 0)
    least, most = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    # Rounding must not move a mean out of the band.
    return Binned(least, np.clip(mean, least, most), most=most, total=total, counts=counts)


def timeline_of(commits: Commits, *, is_store: bool) -> Timeline:
    """Return the charts; with `is_store`, without the charts that only apply to directories of files."""
    columns, starts = commits.columns, starts_of(len(commits))
    group = int(np.diff(starts, append=len(columns)).max(initial=0))
    brought = "its runs"
    if not is_store:
        brought = "finished and open files"
    figures = [
        ("rows", "Rows per version", f"Rows added by each commit, in {brought}.", COUNT, columns["rows"]),
        ("bytes", "Bytes per version", f"Bytes added on storage by each commit, in {brought}.", BYTES,
         columns["size_bytes"]),
        ("files", "Files per version", "Finished files added by each commit.", COUNT, columns["files"]),
        ("seconds", "Latency per version",
         "From the first row of the slowest task to the publication of the last file, where known.", SECONDS,
         commits.seconds()),
        ("pauses", "Time between versions", "Time since the previous version: triggers, idle times and stalls.",
         SECONDS,
         commits.pauses()),
    ]  # fmt: skip
    events = {name: binned(columns[name], starts).total for name in _EVENTS}
    return Timeline(
        bins=len(starts),
        versions=len(columns),
        group=group,
        labels=[*_labels(columns, starts)],
        ticks=[*_x_ticks(columns)],
        charts=[
            _chart(key, (title, about), kind, binned(values, starts), is_grouped=group > 1)
            for key, title, about, kind, values in figures
            if not (is_store and key == "files")
        ],
        lanes=[
            Lane(title, about, count_text(int(events[name].sum())), _marks(events[name]))
            for name, (title, about) in _EVENTS.items()
        ],
        lane_rows=[
            tuple(count_text(int(number)) if number else _NONE for number in row)
            for row in zip(*events.values(), strict=True)
        ],
    )


def _labels(columns: np.ndarray, starts: np.ndarray) -> Iterator[tuple[str, str]]:
    ends = np.append(starts[1:], len(columns)) - 1
    for first, last in zip(columns[starts].tolist(), columns[ends].tolist(), strict=True) if len(starts) else ():
        if first[0] == last[0]:
            versions = f"{first[0]:,}"
        else:
            versions = f"{first[0]:,}\u2013{last[0]:,}"
        yield versions, time_text(first[1])


def _x_ticks(columns: np.ndarray) -> Iterator[tuple[float, str, str]]:
    count = len(columns)
    marks = min(_X_TICKS, count)
    # The part of `time_text` that differs between the versions.
    span_ms = 0
    if count:
        span_ms = int(np.ptp(columns["time_ms"]))
    if span_ms < _DAY_MS:
        shown = slice(11, 19)
    elif span_ms < 300 * _DAY_MS:
        shown = slice(5, 16)
    else:
        shown = slice(0, 10)
    for number in range(marks):
        at = number * (count - 1) // max(marks - 1, 1)
        row = columns[at]
        # A version is drawn 1 wide, so its mark is in the middle.
        yield (at + 0.5) / count, f"{row['version']:,}", time_text(int(row["time_ms"]))[shown]


def _chart(key: str, texts: tuple[str, str], kind: Measure, values: Binned, *, is_grouped: bool) -> Chart:
    scale = scale_of(kind, values.most)
    title, about = texts
    shown = (values.least, values.mean, values.most) if is_grouped else (values.mean,)
    tops = _heights(scale, values.mean)
    return Chart(
        key=key,
        title=title,
        about=about,
        summary=_summary(kind, values),
        heads=("least", "mean", "greatest") if is_grouped else ("value",),
        rows=[tuple(_text(kind, value) for value in row) for row in zip(*shown, strict=True)],
        ticks=[(float(scale.places(np.array(tick))), kind.text(tick)) for tick in scale.ticks],
        is_logarithmic=scale.is_logarithmic,
        band=_band(_heights(scale, values.least), _heights(scale, values.most)) if is_grouped else "",
        line=_line(tops),
        area="" if is_grouped else _band(_bottoms(tops), tops),
    )


def _summary(kind: Measure, values: Binned) -> str:
    has_mean = ~np.isnan(values.mean)
    if not has_mean.any():
        return "not known"
    least, most = float(np.nanmin(values.least)), float(np.nanmax(values.most))
    if least == most:
        return f"always {kind.text(least)}"
    mean = kind.text(float(values.total.sum() / values.counts.sum()))
    return f"{kind.text(least)} to {kind.text(most)}, {mean} on average"


def _text(kind: Measure, value: float) -> str:
    if np.isnan(value):
        return _NONE
    return kind.text(float(value))


def _heights(scale: Scale, values: np.ndarray) -> list[int | None]:
    """Return distances from the top of the drawing; None for NaN."""
    places = HEIGHT - scale.places(values) * HEIGHT
    return [None if place != place else round(place) for place in places.tolist()]  # noqa: PLR0124 - NaN


def _bottoms(tops: Sequence[int | None]) -> list[int | None]:
    """Return the bottom of the chart for each existing top."""
    return [HEIGHT if top is not None else None for top in tops]


def _band(bottoms: Sequence[int | None], tops: Sequence[int | None]) -> str:
    pairs = enumerate(zip(bottoms, tops, strict=True))
    return "".join(f"M{at} {low}V{high}H{at + 1}V{low}Z" for at, (low, high) in pairs if low is not None)


def _line(tops: Sequence[int | None]) -> str:
    pieces, before = [], None
    for at, top in enumerate(tops):
        if top is not None:
            pieces.append(f"M{at} {top}H{at + 1}" if before is None else f"V{top}H{at + 1}")
        before = top
    return "".join(pieces)


def _marks(events: np.ndarray) -> str:
    most = events.max(initial=1)
    indices = np.flatnonzero(events)
    heights = _LOWEST_MARK + (1 - _LOWEST_MARK) * events[indices] / most
    return "".join(
        f"M{at + 0.5:g} {HEIGHT}V{round(HEIGHT * (1 - height))}"
        for at, height in zip(indices.tolist(), heights.tolist(), strict=True)
    )
