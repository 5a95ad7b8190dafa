"""The facts of a part that make its name."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("PartFacts", "first_part")


@dataclass(frozen=True, slots=True)
class PartFacts:
    """The facts that make a name; the user's naming function gets one.

    Attributes:
        name: what the records say in `fileNameColumn` or a bucketer of the user's; else `partPrefix`.
        directory: of the bucket, relative; empty for the directory itself.
        batch: the batch id in ten digits; for a batch write, `w` and twelve characters.
        index: among the parts of the bucket in this batch, from 0.
        number: among all parts of the bucket, from 0, while the bucket is remembered.
        unique: twelve characters that no other part has.
        extension: of the file format, with its dot.
        time_ms: the driver's clock when the batch was planned, in milliseconds since 1970 UTC.
        query_id: the streaming query, or the id of the batch write.
    """

    name: str
    directory: str
    batch: str
    index: int
    number: int
    unique: str
    extension: str
    time_ms: int
    rows: int
    size_bytes: int
    query_id: str


def first_part(name: str, directory: str, extension: str) -> PartFacts:
    """Return an example."""
    return PartFacts(name, directory, "0000000000", 0, 0, "0123456789ab", extension, 0, 1, 1, "query")
