"""Records that cannot be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ftfile.core.errors import EncodingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ftfile.sink.buckets.api import Fault

__all__ = ("refuse",)


def refuse(rows: pa.RecordBatch, faults: Sequence[Fault]) -> None:
    """Fail on the first of the rows.

    Raises:
        EncodingError: names the column, and the value if there is one.
    """
    more = f" (and {len(faults) - 1} more rows of this batch)" if rows.num_rows > 1 else ""
    raise EncodingError(f"{faults[0].reason}{more}")
