"""Overwrites of some partitions: those that the written rows have, or those that match a condition."""

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

    from ftfile.core.options import ParsedOptions
    from ftfile.log.format.model import Add


_OPTION = "replaceWhere"
BY_ROWS = "partitions of the rows"  # of `Body.replaces`, which is else the text of a condition


@dataclass(frozen=True, slots=True)
class Replacement:
    """Which partitions an overwrite replaces."""

    schema: pa.Schema  # of the partition columns
    time_zone: str  # of the directories that are written
    where: str | None  # a condition on partition columns; None for the partitions that the written rows have

    @property
    def recorded(self) -> str:
        """Return its text in the log."""
        return BY_ROWS if self.where is None else self.where

    def with_clock_values(self, planned_ms: int) -> Replacement:
        """Return it with times by the clock of a write that was planned then, in milliseconds since 1970 UTC.

        Raises:
            ConfigError: the condition is none, or none on the partition columns.
        """
        if self.where is None:
            return self
        from ftfile.rows.conditions import predicate  # noqa: PLC0415 - likewise
        from ftfile.rows.moments import with_clock_values  # noqa: PLC0415 - few writes have a condition

        where = with_clock_values(self.where, planned_ms, self.time_zone, _OPTION)
        predicate(where, self.schema, columns="partition columns", argument=_OPTION)
        return replace(self, where=where)

    def replaced(self, written: Sequence[Add], live: Sequence[Add], definitions: Mapping[str, Any]) -> list[Add]:
        """Return the live adds that go; `definitions` has their encodings.

        Raises:
            ConfigError: rows were written to a partition that does not match the condition.
        """
        from ftfile.formats.partition_paths import chosen_places, partitions_of  # noqa: PLC0415 - parses conditions

        new = [(directory_of(add.directory_key), self.time_zone) for add in written]
        places = [(directory_of(add.directory_key), definitions[add.encoding]["timeZone"]) for add in live]
        if self.where is None:
            names = set(partitions_of(new, self.schema))
            return [add for add, name in zip(live, partitions_of(places, self.schema), strict=True) if name in names]
        matching = chosen_places(self.where, self.schema, [*new, *places], argument=_OPTION)
        foreign = sorted({place[0] for place in new if place not in matching})
        if foreign:
            raise ConfigError(
                f"{_OPTION}={self.where!r}: {len(foreign)} of the partitions with written rows do not match, such "
                f"as {foreign[0]!r}. Nothing was committed and nothing replaced: leave these rows out, or widen the "
                "condition"
            )
        return [add for add, place in zip(live, places, strict=True) if place in matching]


def replacement_from_options(
    parsed: ParsedOptions, schema: pa.Schema, columns: Sequence[str], *, overwrite: bool
) -> tuple[Literal["static", "dynamic"] | None, Replacement | None]:
    """Return the mode of overwrites that was asked for, and the partitions that are replaced; None for everything.

    Raises:
        ConfigError: the options contradict each other or the kind of write.
    """
    mode, where = parsed["partitionOverwriteMode"], parsed[_OPTION]
    asked = _OPTION if where is not None else "partitionOverwriteMode=dynamic" if mode == "dynamic" else None
    if asked is None:
        return mode, None
    if not overwrite:
        raise ConfigError(f"{asked} is for overwrites: write with mode('overwrite'), or leave it out")
    if where is not None and mode == "dynamic":
        raise ConfigError(f"{asked} with partitionOverwriteMode=dynamic: each says what is replaced; leave one out")
    if not columns:
        raise ConfigError(
            f"{asked} replaces partitions, and this write has none: name their columns by the option partitionBy, "
            "since Spark's own .partitionBy() never reaches a Python sink"
        )
    return mode, Replacement(partition_schema(schema, columns), parsed["timeZone"], where)
