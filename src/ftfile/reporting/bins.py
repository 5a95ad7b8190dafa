"""Long series as short ones: the least, the mean and the greatest value of groups of neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# As many as a wide screen can show beside each other, with three figures in a row.
BINS_MAX = 400


@dataclass(frozen=True)
class Binned:
    """Values of groups of neighbours; NaN for a group without any value."""

    least: np.ndarray
    mean: np.ndarray
    most: np.ndarray
    total: np.ndarray
    known: np.ndarray  # number of values


def starts_of(count: int, bins_max: int = BINS_MAX) -> np.ndarray:
    """Return where each group begins; all have the same number of values, or one more or less."""
    bins = min(count, bins_max)
    return np.arange(bins) * count // max(bins, 1)


def binned(values: np.ndarray, starts: np.ndarray) -> Binned:
    """Return the values of the groups, as floats; a NaN is no value."""
    values = values.astype(float)
    if not len(values):
        return Binned(values, values, values, values, values)
    known = np.add.reduceat(~np.isnan(values), starts, dtype=float)
    total = np.add.reduceat(np.nan_to_num(values), starts)
    mean = np.divide(total, known, out=np.full(len(starts), np.nan), where=known > 0)
    least, most = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    # Rounding must not put a mean beside the band.
    return Binned(least, np.clip(mean, least, most), most, total, known)
