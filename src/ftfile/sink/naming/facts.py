"""The facts of a part that make its name."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("PartFacts", "first_part")


@dataclass(frozen=True, slots=True)
class PartFacts:
    """The facts that make a name; the user's naming function gets one."""

    name: str  # what the records say in `fileNameColumn` or a bucketer of the user's; else `partPrefix`
    directory: str  # of the bucket, relative; empty for the directory itself
    batch: str  # the batch id in ten digits; for a batch write, `w` and twelve characters
    index: int  # among the parts of the bucket in this batch, from 0
    number: int  # among all parts of the bucket, from 0, while the bucket is remembered
    unique: str  # twelve characters that no other part has
    extension: str  # of the file format, with its dot
    time_ms: int  # the driver's clock when the batch was planned, in milliseconds since 1970 UTC
    rows: int
    size_bytes: int
    query_id: str  # the streaming query, or the id of the batch write


def first_part(name: str, directory: str, extension: str) -> PartFacts:
    """Return an example."""
    return PartFacts(name, directory, "0000000000", 0, 0, "0123456789ab", extension, 0, 1, 1, "query")
