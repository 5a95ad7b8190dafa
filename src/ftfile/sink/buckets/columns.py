"""`partitionBy`: columns become directories, as Spark and Hive name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ftfile.arrays.buffers import values_of
from ftfile.arrays.words import plain
from ftfile.core.errors import EncodingError
from ftfile.encoding.partitions.paths import bucket_names
from ftfile.sink.buckets.api import Assignment, Bucket, Bucketer, Fault, assign_by_value

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("PartitionColumn",)


@dataclass(frozen=True, slots=True)
class PartitionColumn(Bucketer):
    """One column, which was checked; its values are directories `column=value`.

    Attributes:
        time_zone: whose clocks show timestamps that are instants.
    """

    column: str
    time_zone: str

    @property
    def leaving(self) -> tuple[str, ...]:
        """See `Bucketer.leaving`."""
        return (self.column,)

    def assign(self, batch: pa.RecordBatch) -> Assignment:
        """See `Bucketer.assign`."""
        encoded = plain(batch.column(self.column)).dictionary_encode(null_encoding="encode")
        codes = values_of(encoded.indices, np.int32).astype(np.int64)
        return assign_by_value(self._outcomes(encoded.dictionary), codes)

    def _outcomes(self, values: pa.Array) -> list[Bucket | Fault]:
        try:
            return [Bucket(name) for name in bucket_names(self.column, values, self.time_zone)]
        except EncodingError as error:
            if len(values) == 1:
                return [Fault(str(error))]
            half = len(values) // 2
            return self._outcomes(values[:half]) + self._outcomes(values[half:])
