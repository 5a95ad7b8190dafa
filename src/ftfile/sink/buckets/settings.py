"""The options that choose buckets, checked against the schema."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ftfile.core.errors import ConfigError, SchemaError
from ftfile.encoding.partition_paths import check_partition_column
from ftfile.sink.buckets.columns import PartitionColumn
from ftfile.sink.buckets.router import Router

if TYPE_CHECKING:
    import pyarrow as pa

    from ftfile.core.options import ParsedOptions
    from ftfile.sink.buckets.api import Bucketer, Refuse

__all__ = ("Bucketing",)


@dataclass(frozen=True, slots=True)
class Bucketing:
    """How rows are dealt to buckets.

    Attributes:
        partition_by: columns in their schema's spelling.
        time_zone: of timestamps in directory names.
    """

    partition_by: tuple[str, ...]
    time_zone: str

    @classmethod
    def from_options(cls, parsed: ParsedOptions, schema: pa.Schema) -> Bucketing:
        """Check the options.

        Raises:
            ConfigError: an option names no column, or contradicts another.
            SchemaError: a column cannot choose buckets.
        """
        return cls(_partition_columns(parsed["partitionBy"], schema), parsed["timeZone"])

    @property
    def leaving(self) -> tuple[str, ...]:
        """Return the columns that are not in the files, since the buckets say them."""
        return self.partition_by

    def router(self, refuse: Refuse) -> Router:
        """Return what deals the rows of one task.

        Args:
            refuse: see `Router`.
        """
        bucketers: list[Bucketer] = [PartitionColumn(column, self.time_zone) for column in self.partition_by]
        return Router(bucketers, refuse)


def _partition_columns(names: tuple[str, ...], schema: pa.Schema) -> tuple[str, ...]:
    spelling = {name.lower(): name for name in schema.names}
    unknown = [name for name in names if name.lower() not in spelling]
    if unknown:
        raise ConfigError(
            f"partitionBy names no column: {', '.join(unknown)}; the columns are {', '.join(schema.names)}"
        )
    if len(names) == len(schema.names):
        raise SchemaError("partitionBy names every column: at least one must be left for the files")
    columns = tuple(spelling[name.lower()] for name in names)
    for column in columns:
        check_partition_column(schema.field(column))
    return columns
