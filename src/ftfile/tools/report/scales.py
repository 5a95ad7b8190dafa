"""Axes for numbers of versions, and the texts of their marks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.units import bytes_text, duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
    """A kind of number, such as seconds."""

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


def _bytes_text(value: float) -> str:
    return bytes_text(round(value))


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
BYTES = Measure(_bytes_text, 1024, 1)
SECONDS = Measure(_seconds_text, 10, _MS)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis that begins at 0."""

    kind: Measure
    top: float  # the greatest value on the axis
    ticks: tuple[float, ...]  # the marked values
    is_logarithmic: bool  # equal distances mean equal factors

    def places(self, values: np.ndarray) -> np.ndarray:
        """Return the positions of values, from 0 at the bottom to 1 at the top; of negative values, the bottom."""
        values = np.maximum(values, 0)  # a clock that was set back
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
    return Scale(
        kind=kind, top=step * count, ticks=tuple(step * number for number in range(count + 1)), is_logarithmic=False
    )


def _logarithmic(kind: Measure, most: float) -> Scale:
    powers = [kind.least * kind.base]
    while powers[-1] < most:
        powers.append(powers[-1] * kind.base)
    top = powers[-1]
    # The greatest power, and powers at equal distances below it.
    shown = powers[:: -max(1, math.ceil(len(powers) / TICKS_MAX))][::-1]
    return Scale(kind=kind, top=top, ticks=(0.0, *shown), is_logarithmic=True)


def _step(kind: Measure, most: float) -> float:
    """Return the distance between marks as a round number."""
    least = most / TICKS_MAX
    if kind is SECONDS and most > _LONG_S:
        for step in _MINUTES:
            if step >= least:
                return float(step)
        return math.ceil(least / 86_400) * 86_400.0
    if least <= 0:
        return float(kind.least)
    if kind is BYTES:
        unit = 1024.0 ** max(0, math.floor(math.log(least, 1024)))
        return unit * _first_step(_BINARY_STEPS, least / unit)
    unit = 10.0 ** math.floor(math.log10(least))
    distance = unit * _first_step(_STEPS, least / unit * (1 - 1e-9))
    if kind is COUNT:
        return max(distance, 1.0)
    return distance


def _first_step(steps: Sequence[float], least: float) -> float:
    """Return the first step that is not smaller than `least`; the last step if all are smaller."""
    for step in steps:
        if step >= least:
            return step
    return steps[-1]
