"""Axes: from values to places, the round values that are marked on them, and values as text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ftfile.core.human_text import bytes_text, duration_text

if TYPE_CHECKING:
    from collections.abc import Callable

# A few values beyond this number of times the usual ones would press all others flat.
OUTLYING = 40
TICKS_MAX = 4
_STEPS = (1, 2, 5, 10)
_BINARY_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TWO_DIGITS = 10
_MS = 0.001
_LONG_S = 600
_MINUTES = (60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)


@dataclass(frozen=True)
class Kind:
    """A kind of number."""

    text: Callable[[float], str]  # returns a value as people read it
    base: int  # of the powers that are marked where differences are large
    least: float  # the value from which on a logarithmic axis tells values apart


def _count_text(value: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:,.0f}" if value >= _TWO_DIGITS or value == int(value) else f"{value:.1f}"


def _seconds_text(value: float) -> str:
    if value == 0:
        return "0 s"
    if value >= 1:
        return duration_text(value)
    shown, unit = (value * 1000, "ms") if value >= _MS else (value * 1e6, "µs")
    return f"{shown:.0f} {unit}" if shown >= _TWO_DIGITS else f"{shown:.2g} {unit}"


COUNT = Kind(_count_text, 10, 1)
BYTES = Kind(lambda value: bytes_text(round(value)), 1024, 1)
SECONDS = Kind(_seconds_text, 10, _MS)


@dataclass(frozen=True)
class Scale:
    """An axis that begins at 0."""

    kind: Kind
    top: float  # the greatest value on it
    ticks: tuple[float, ...]  # the values that are marked
    is_logarithmic: bool  # equal distances are equal factors

    def places(self, values: np.ndarray) -> np.ndarray:
        """Return the places of values, from 0 at the bottom to 1 at the top."""
        if self.is_logarithmic:
            found: np.ndarray = np.log1p(values / self.kind.least) / np.log1p(self.top / self.kind.least)
            return found
        return values / self.top


def scale_of(kind: Kind, values: np.ndarray) -> Scale:
    """Return the axis for values; NaN is none. It is logarithmic where a few values are far beyond the others."""
    values = values[~np.isnan(values)]
    most = float(values.max(initial=0))
    positive = values[values > 0]
    if len(positive) and most > OUTLYING * float(np.median(positive)) and most > kind.least * kind.base:
        return _logarithmic(kind, most)
    step = _step(kind, most)
    count = max(1, math.ceil(most / step - 1e-9))
    return Scale(kind, step * count, tuple(step * number for number in range(count + 1)), is_logarithmic=False)


def _logarithmic(kind: Kind, most: float) -> Scale:
    powers = [kind.least * kind.base]
    while powers[-1] < most:
        powers.append(powers[-1] * kind.base)
    top = powers[-1]
    # The top one, and others at equal distances below.
    shown = powers[:: -max(1, math.ceil(len(powers) / TICKS_MAX))][::-1]
    return Scale(kind, top, (0.0, *shown), is_logarithmic=True)


def _step(kind: Kind, most: float) -> float:
    """Return the round distance of marks."""
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
    return max(step, 1.0) if kind is COUNT else step
