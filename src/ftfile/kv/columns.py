"""The columns of rows in runs: those of the user, the time of a delete, and the operation of each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays import kernels as pc
from ftfile.arrays.buffers import from_numpy, values_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ftfile.kv.definition import StoreDefinition

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


def names_with(definition: StoreDefinition, ops: int) -> list[str]:
    """Return the columns of a store that say something in rows with operations, given as a set of bits."""
    names = [*definition.schema.names]
    if definition.sequence is not None and ops & 1 << DELETE:
        names.append(DELETED_MS)
    return [*names, OP] if ops & ~(1 << SET) else names


def aligned(rows: pa.Table, definition: StoreDefinition) -> pa.Table:
    """Return rows with exactly the columns of the definition, in its types, then the time of deletes and `_op`.

    Columns that are missing are null, as those of values that came later; rows without `_op` are sets.
    """
    fields = [*definition.schema]
    if definition.sequence is not None:
        fields.append(pa.field(DELETED_MS, pa.int64()))
    names = set(rows.column_names)
    columns = []
    for field in fields:
        column = rows[field.name] if field.name in names else pa.nulls(rows.num_rows, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    sets = from_numpy(np.full(max(rows.num_rows, 1), SET, np.int8), pa.int8())
    columns.append(rows[OP].fill_null(sets[0]) if OP in names else sets[: rows.num_rows])
    return pa.table(columns, names=[*(field.name for field in fields), OP])
