"""A bucketer: many rows in, the bucket of each out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ("Assignment", "Bucket", "Bucketer", "Fault", "Refuse", "assign_by_value")


class Bucket(NamedTuple):
    """Where rows go.

    Attributes:
        directory: relative, empty for the directory itself.
        stem: how the names of the files begin; empty where rows do not say it.
    """

    directory: str
    stem: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row has no bucket: a sentence that names the column, and the value if there is one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """The bucket of each row.

    Attributes:
        buckets: each once, in the order of their first rows; every one has rows.
        codes: of each row, the index of its bucket; of a row that has none, -1 - n for the fault n.
        faults: see `codes`.
    """

    buckets: list[Bucket]
    codes: NDArray[np.int64]
    faults: list[Fault] = field(default_factory=list)


class Refuse(Protocol):
    """The treatment of rows that cannot be written."""

    def __call__(self, rows: pa.RecordBatch, faults: Sequence[Fault], /) -> None:
        """Take rows with the fault of each; may raise."""


class Bucketer(ABC):
    """Says of every row where it goes; used by one thread of one task."""

    @property
    def leaving(self) -> tuple[str, ...]:
        """Return the columns that are not in the files, since the bucket says them."""
        return ()

    @property
    def only(self) -> Bucket | None:
        """Return the bucket of all rows, where it does not depend on them."""
        return None

    @abstractmethod
    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """Return the buckets of the rows of a batch that has some."""


def assign_by_value(outcomes: Sequence[Bucket | Fault], codes: NDArray[np.int64]) -> Assignment:
    """Return the assignment of rows that are given by the distinct values they have.

    Args:
        outcomes: of each value; several may share a bucket, such as null and the empty string.
        codes: of each row, the index of its value.
    """
    places: dict[Bucket, int] = {}
    faults: list[Fault] = []
    merged = []
    for outcome in outcomes:
        if isinstance(outcome, Fault):
            faults.append(outcome)
            merged.append(-len(faults))
        else:
            merged.append(places.setdefault(outcome, len(places)))
    if len(places) < len(outcomes):
        codes = np.array(merged)[codes]
    return Assignment(list(places), codes, faults)
