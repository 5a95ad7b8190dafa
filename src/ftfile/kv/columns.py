"""The columns of runs beside those of the user: the operation of each row, and the time of a delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ftfile.arrays import kernels as pc
from ftfile.arrays.buffers import values_of

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

# The last column, int8; a run has none if all of its rows are sets.
OP = "_op"
SET, MERGE, DELETE = 0, 1, 2
# Milliseconds since 1970 at which a row was deleted; null for others. In stores with a sequence column, before `_op`.
DELETED_MS = "_deletedMs"


def operations(rows: pa.Table) -> NDArray[np.int8]:
    """Return the operation of each row."""
    if OP not in rows.column_names:
        return np.zeros(rows.num_rows, np.int8)
    found: NDArray[np.int8] = values_of(rows[OP].combine_chunks(), np.int8)
    return found


def ops_in(rows: pa.Table) -> int:
    """Return the operations that occur in rows, as a set of bits."""
    if OP not in rows.column_names:
        return int(rows.num_rows > 0) << SET
    return sum(1 << op for op in pc.unique(rows[OP]).to_pylist())
