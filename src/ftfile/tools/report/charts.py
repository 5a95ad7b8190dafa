"""Charts over the versions of a log, as SVG paths with the rows of their tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ftfile.core.units import count_text, time_text
from ftfile.tools.report.scales import BYTES, COUNT, SECONDS, scale_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ftfile.tools.report.history import Commits
    from ftfile.tools.report.scales import Measure, Scale


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


@dataclass(frozen=True, kw_only=True)
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


class Tick(NamedTuple):
    """A mark of the axis."""

    position: float  # from 0 to 1
    version: str
    time: str


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """All charts over the versions, with one time axis."""

    bins: int  # number of groups
    versions: int  # number of versions
    group: int  # greatest number of versions in a group
    labels: list[tuple[str, str]]  # of the groups: their versions and times
    ticks: list[Tick]
    charts: list[Chart]
    lanes: list[Lane]  # the events
    lane_rows: list[tuple[str, ...]]  # of the events' table, one row for each group


@dataclass(frozen=True, kw_only=True)
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


def bin_values(values: np.ndarray, starts: np.ndarray) -> Binned:
    """Return the least, the mean and the greatest value of each group as floats, ignoring NaN."""
    values = values.astype(float)
    if not len(values):
        return Binned(least=values, mean=values, most=values, total=values, counts=values)
    counts = np.add.reduceat(~np.isnan(values), starts, dtype=float)
    total = np.add.reduceat(np.nan_to_num(values), starts)
    mean = np.divide(total, counts, out=np.full(len(starts), np.nan), where=counts > 0)
    least, most = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    # Rounding must not move a mean out of the band.
    return Binned(least=least, mean=np.clip(mean, least, most), most=most, total=total, counts=counts)


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
    charts = []
    for key, title, about, kind, values in figures:
        if key != "files" or not is_store:
            charts.append(_chart(key, (title, about), kind, bin_values(values, starts), is_grouped=group > 1))
    events = {name: bin_values(columns[name], starts).total for name in _EVENTS}
    lanes = []
    for name, (title, about) in _EVENTS.items():
        lanes.append(Lane(title, about, count_text(int(events[name].sum())), _marks(events[name])))
    lane_rows = []
    for row in zip(*events.values(), strict=True):
        lane_rows.append(tuple(map(_events_text, row)))
    return Timeline(
        bins=len(starts),
        versions=len(columns),
        group=group,
        labels=[*_labels(columns, starts)],
        ticks=[*_x_ticks(columns)],
        charts=charts,
        lanes=lanes,
        lane_rows=lane_rows,
    )


def _events_text(count: float) -> str:
    if count:
        return count_text(int(count))
    return _NONE


def _labels(columns: np.ndarray, starts: np.ndarray) -> Iterator[tuple[str, str]]:
    ends = np.append(starts[1:], len(columns)) - 1
    for first, last in zip(columns[starts].tolist(), columns[ends].tolist(), strict=True) if len(starts) else ():
        if first[0] == last[0]:
            versions = f"{first[0]:,}"
        else:
            versions = f"{first[0]:,}\u2013{last[0]:,}"
        yield versions, time_text(first[1])


def _x_ticks(columns: np.ndarray) -> Iterator[Tick]:
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
        yield Tick((at + 0.5) / count, f"{row['version']:,}", time_text(int(row["time_ms"]))[shown])


def _chart(key: str, texts: tuple[str, str], kind: Measure, values: Binned, *, is_grouped: bool) -> Chart:
    scale = scale_of(kind, values.most)
    title, about = texts
    shown = (values.least, values.mean, values.most) if is_grouped else (values.mean,)
    tops = _heights(scale, values.mean)
    columns = [_texts(kind, numbers) for numbers in shown]
    return Chart(
        key=key,
        title=title,
        about=about,
        summary=_summary(kind, values),
        heads=("least", "mean", "greatest") if is_grouped else ("value",),
        rows=list(zip(*columns, strict=True)),
        ticks=[_mark_tick(scale, tick) for tick in scale.ticks],
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


def _mark_tick(scale: Scale, tick: float) -> tuple[float, str]:
    return float(scale.places(np.array(tick))), scale.kind.text(tick)


def _texts(kind: Measure, numbers: np.ndarray) -> Iterator[str]:
    for number in numbers.tolist():
        if math.isnan(number):
            yield _NONE
        else:
            yield kind.text(number)


def _heights(scale: Scale, values: np.ndarray) -> list[int | None]:
    """Return distances from the top of the drawing; None for NaN."""
    heights: list[int | None] = []
    for place in (HEIGHT - scale.places(values) * HEIGHT).tolist():
        if math.isnan(place):
            heights.append(None)
        else:
            heights.append(round(place))
    return heights


def _bottoms(tops: Sequence[int | None]) -> list[int | None]:
    """Return the bottom of the chart for each existing top."""
    bottoms: list[int | None] = []
    for top in tops:
        if top is None:
            bottoms.append(None)
        else:
            bottoms.append(HEIGHT)
    return bottoms


def _band(bottoms: Sequence[int | None], tops: Sequence[int | None]) -> str:
    pieces = []
    for at, (low, high) in enumerate(zip(bottoms, tops, strict=True)):
        if low is not None:
            pieces.append(f"M{at} {low}V{high}H{at + 1}V{low}Z")
    return "".join(pieces)


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
    marks = []
    for at, height in zip(indices.tolist(), heights.tolist(), strict=True):
        marks.append(f"M{at + 0.5:g} {HEIGHT}V{round(HEIGHT * (1 - height))}")
    return "".join(marks)
