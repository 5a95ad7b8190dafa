"""The partitions that an overwrite replaces: all partitions of the written rows, or all that match a condition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ftfile.core.errors import ConfigError
from ftfile.formats.partition_paths import partition_schema
from ftfile.log.format.layout import directory_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import pyarrow as pa

    from ftfile.log.format.model import Add
    from ftfile.writing.files.directory_settings import DirectorySettings


_OPTION = "replaceWhere"
BY_ROWS = "partitions of the rows"  # value of `Body.replaces`; for other overwrites it is the text of a condition


@dataclass(frozen=True, slots=True)
class Replacement:
    """The partitions that an overwrite replaces."""

    schema: pa.Schema  # of the partition columns
    time_zone: str  # of the written directories
    where: str | None  # a condition on partition columns; None for the partitions of the written rows

    @classmethod
    def from_options(
        cls,
        mode: Literal["static", "dynamic"] | None,
        where: str | None,
        *,
        schema: pa.Schema,
        directories: DirectorySettings,
        overwrite: bool,
    ) -> Replacement | None:
        """Return the partitions for the values of `partitionOverwriteMode` and `replaceWhere`; None for all rows.

        Raises:
            ConfigError: the options contradict each other or the kind of write.
        """
        if where is not None:
            asked = _OPTION
        elif mode == "dynamic":
            asked = "partitionOverwriteMode=dynamic"
        else:
            return None
        if not overwrite:
            raise ConfigError(f"{asked} is only for overwrites: write with mode('overwrite'), or leave it out")
        if where is not None and mode == "dynamic":
            raise ConfigError(
                f"{asked} with partitionOverwriteMode=dynamic: each chooses which rows are replaced; leave out one"
            )
        if not (columns := directories.partition_by):
            raise ConfigError(
                f"{asked} replaces partitions, but this write has none: name the partition columns with the option "
                "partitionBy; .partitionBy() of Spark's writer never reaches a Python sink"
            )
        return cls(partition_schema(schema, columns), directories.time_zone, where)

    @property
    def recorded(self) -> str:
        """Return the text for the log."""
        if self.where is None:
            return BY_ROWS
        return self.where

    def with_clock_values(self, planned_ms: int) -> Replacement:
        """Return a copy whose condition has clock values for this planning time, in milliseconds since 1970 UTC.

        Raises:
            ConfigError: the condition is invalid, or uses a column that is not a partition column.
        """
        if self.where is None:
            return self
        from ftfile.rows.conditions import predicate  # noqa: PLC0415 - likewise
        from ftfile.rows.moments import with_clock_values  # noqa: PLC0415 - few writes have a condition

        where = with_clock_values(self.where, planned_ms, self.time_zone, _OPTION)
        predicate(where, self.schema, columns="partition columns", argument=_OPTION)
        return replace(self, where=where)

    def select_replaced(self, written: Sequence[Add], live: Sequence[Add], definitions: Mapping[str, Any]) -> list[Add]:
        """Return the live adds that are replaced. `definitions` contains their encodings.

        Raises:
            ConfigError: rows were written to a partition that does not match the condition.
        """
        from ftfile.formats.partition_paths import chosen_places, partitions_of  # noqa: PLC0415 - parses conditions

        new = []
        for add in written:
            new.append((directory_of(add.directory_key), self.time_zone))
        places = [(directory_of(add.directory_key), definitions[add.encoding]["timeZone"]) for add in live]
        if self.where is None:
            names = set(partitions_of(new, self.schema))
            return [add for add, name in zip(live, partitions_of(places, self.schema), strict=True) if name in names]
        matching = chosen_places(self.where, self.schema, [*new, *places], argument=_OPTION)
        foreign = sorted({place[0] for place in new if place not in matching})
        if foreign:
            raise ConfigError(
                f"{_OPTION}={self.where!r}: {len(foreign)} of the partitions with written rows do not match, such as "
                f"{foreign[0]!r}. Nothing was committed or replaced: leave out these rows, or widen the condition"
            )
        return [add for add, place in zip(live, places, strict=True) if place in matching]
