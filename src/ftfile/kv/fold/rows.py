"""Rows of runs in the columns of the store, whatever columns they were written with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ftfile.arrays.buffers import from_numpy
from ftfile.kv.columns import DELETED_MS, OP, SET

if TYPE_CHECKING:
    from ftfile.kv.definition import StoreDefinition


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
