"""The live files of the newest version in numbers: sizes, and sums by partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ftfile.commit.format.layout import bucket_directory
from ftfile.commit.read.snapshot import live_columns

if TYPE_CHECKING:
    from ftfile.commit.read.snapshot import Snapshot

_COLUMNS = ("kind", "lengthBytes", "rows", "bucket")


@dataclass
class PartitionSums:
    """The numbers of a partition: a sub-directory, or a bucket of a store."""

    files: int = 0
    rows: int = 0
    size_bytes: int = 0


@dataclass
class LiveFiles:
    """Finished files, or the runs of a store.

    Attributes:
        sizes: bytes on storage of each.
        rows: number of rows in all of them.
        partitions: by sub-directory, relative to the directory; by bucket of a store.
    """

    sizes: np.ndarray
    rows: int = 0
    partitions: dict[str, PartitionSums] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all."""
        return int(self.sizes.sum())


def live_files_of(snapshot: Snapshot, *, is_store: bool) -> LiveFiles:
    """Return the numbers of the finished files of a snapshot, or of the runs of a store."""
    sizes: list[np.ndarray] = []
    found = LiveFiles(np.empty(0, np.int64))
    wanted = "segment" if is_store else "part"
    for kinds, lengths, rows, buckets in live_columns(snapshot, _COLUMNS):
        chosen = np.fromiter((kind == wanted for kind in kinds), bool, len(kinds))
        codes: dict[str, int] = {}
        numbered = np.fromiter((codes.setdefault(bucket, len(codes)) for bucket in buckets), np.int64, len(buckets))
        columns = [np.array(each, np.int64)[chosen] for each in (lengths, rows)]
        sizes.append(columns[0])
        numbered = numbered[chosen]
        files = np.bincount(numbered, minlength=len(codes))
        # Sums of integers as floats are exact up to 2**53.
        bytes_of, rows_of = (np.bincount(numbered, each, len(codes)) for each in columns)
        for bucket, at in codes.items():
            if files[at]:
                sums = found.partitions.setdefault(bucket_directory(bucket), PartitionSums())
                sums.files += int(files[at])
                sums.rows += int(rows_of[at])
                sums.size_bytes += int(bytes_of[at])
    found.rows = sum(each.rows for each in found.partitions.values())
    found.sizes = np.concatenate(sizes) if sizes else found.sizes
    return found
