"""Conditions on files: True for each file whose rows all certainly match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.rows.comparisons import OPPOSITES, Columns
from ftfile.rows.conditions import bound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from ftfile.rows.bounds.possible import FileBounds, Mask


def must(where: Mapping[str, object] | str, columns: FileBounds) -> Mask:
    """Return a mask: True for each file whose rows all certainly match a condition; see `bound`."""
    certain = CertainBounds(
        schema=columns.schema,
        time_zone=columns.time_zone,
        called=columns.called,
        time_zones=columns.time_zones,
        argument=columns.argument,
        possible=columns,
    )
    mask: Mask = bound(where, certain)
    return mask


@dataclass(frozen=True, slots=True)
class CertainBounds(Columns):
    """The columns of files. An answer is True for each file whose rows all match.

    All rows match a comparison if no row can match its opposite and no row is null. Only comparisons are negated: the
    opposite of a condition with a null literal matches no row, but neither does the condition.
    """

    possible: FileBounds

    def always(self, value: bool) -> Mask:  # noqa: FBT001 - a literal of the condition
        """Return the same answer for all files."""
        return self.possible.always(value)

    def is_null(self, field: pa.Field) -> Mask:
        """Return True for files whose rows all have `field IS NULL`."""
        return self.possible.has_only_nulls(field)

    def is_valid(self, field: pa.Field) -> Mask:
        """Return True for files whose rows all have `field IS NOT NULL`."""
        return self.possible.has_no_nulls(field)

    def compare(self, field: pa.Field, sign: str, value: object) -> Mask:
        """Return True for files whose rows all have `field sign value`."""
        if value is None:
            return self.always(False)  # noqa: FBT003 - a literal of the condition
        return self.is_valid(field) & ~self.possible.compare(field, OPPOSITES[sign], value)

    def is_one_of(self, field: pa.Field, values: Sequence[object]) -> Mask:
        """Return True for files whose rows all have `field IN (values)`."""
        present = [value for value in values if value is not None]
        return self.is_valid(field) & ~self.possible.is_none_of(field, present)

    def is_none_of(self, field: pa.Field, values: Sequence[object]) -> Mask:
        """Return True for files whose rows all have `field NOT IN (values)`."""
        mask = ~self.possible.is_one_of(field, values)
        if any(value is None for value in values):
            return self.always(False)  # noqa: FBT003 - a literal of the condition
        return self.is_valid(field) & mask
