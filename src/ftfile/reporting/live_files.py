"""The live files of the newest version in numbers: sizes, and sums by partition."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ftfile.commit.format.layout import bucket_directory
from ftfile.commit.read.snapshot import live_columns

if TYPE_CHECKING:
    from ftfile.commit.read.snapshot import Snapshot


@dataclass
class PartitionSums:
    """The numbers of a partition: a sub-directory, or a bucket of a store."""

    files: int = 0
    rows: int = 0
    size_bytes: int = 0


@dataclass
class LiveFiles:
    """Finished files, or the runs of a store."""

    sizes: np.ndarray  # bytes on storage of each
    rows: int = 0  # in all of them
    partitions: dict[str, PartitionSums] = field(default_factory=dict)  # by sub-directory; by bucket of a store

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all."""
        return int(self.sizes.sum())


def live_files_of(snapshot: Snapshot, *, is_store: bool) -> LiveFiles:
    """Return the numbers of the finished files of a snapshot, or of the runs of a store."""
    wanted = "segment" if is_store else "part"
    sizes, partitions = array("q"), defaultdict[str, PartitionSums](PartitionSums)
    for columns in live_columns(snapshot, ("kind", "lengthBytes", "rows", "bucket")):
        for kind, size_bytes, rows, bucket in zip(*columns, strict=True):
            if kind == wanted:
                sizes.append(size_bytes)
                sums = partitions[bucket_directory(bucket)]
                sums.files, sums.rows, sums.size_bytes = sums.files + 1, sums.rows + rows, sums.size_bytes + size_bytes
    return LiveFiles(np.array(sizes), sum(each.rows for each in partitions.values()), partitions)
